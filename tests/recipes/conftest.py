"""For the tests of all recipes."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A script by its name with its arguments; what it prints."""
    monkeypatch.syspath_prepend(str(RECIPES))

    def call(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return call
