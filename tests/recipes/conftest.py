"""For the tests of all recipes and studies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts import run_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A script by its name with its arguments; what it prints."""

    def call(name: str, *arguments: object) -> str:
        capsys.readouterr()
        (path,) = [path for folder in ("recipes", "studies") for path in (ROOT / folder).rglob(f"{name}.py")]
        run_script(path, arguments, monkeypatch)
        return capsys.readouterr().out

    return call
