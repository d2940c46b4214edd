"""Versions of the libraries that made a result."""

import platform
from functools import cache
from importlib import metadata

import torch


@cache
def library_versions() -> dict[str, str]:
    """Read once, not for every explanation. torch is asked itself: it also knows its build, such as +cpu."""
    return {
        "tokenlight": metadata.version("tokenlight"),
        "torch": str(torch.__version__),
        "transformers": metadata.version("transformers"),
        "python": platform.python_version(),
    }
