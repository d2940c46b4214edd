"""Versions of the libraries that made a result."""

import platform
from functools import cache
from importlib import metadata

import torch


@cache
def library_versions() -> dict[str, str]:
    """Versions by library, cached. torch's own string also names its build, such as +cpu."""
    return {
        "tokenlight": metadata.version("tokenlight"),
        "torch": str(torch.__version__),
        "transformers": metadata.version("transformers"),
        "python": platform.python_version(),
    }
