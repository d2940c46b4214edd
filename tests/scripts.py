"""Scripts of the repository, run as a person would run them, in the process of the tests."""

import runpy
import sys
from pathlib import Path

import pytest


def run_script(path: Path, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is beside it to import from, as Python does it for a script."""
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [path.stem, *map(str, arguments)])
    runpy.run_path(str(path), run_name="__main__")
