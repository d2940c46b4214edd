"""For the tests of all recipes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts import run_script

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A script by its name with its arguments; what it prints."""
    monkeypatch.syspath_prepend(str(RECIPES))  # for tests that look into a script without running it

    def call(name: str, *arguments: object) -> str:
        capsys.readouterr()
        run_script(RECIPES / f"{name}.py", arguments, monkeypatch)
        return capsys.readouterr().out

    return call
