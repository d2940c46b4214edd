"""Scripts of `papers/`, run in this process on models that are hardly trained."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import tokenlight as tl
from papers import options, small_models
from tests.hub import Hub

RunScript = Callable[..., Path]
RunDefault = Callable[..., list[str]]


@pytest.fixture(scope="session", autouse=True)
def _hardly_trained(tmp_path_factory: pytest.TempPathFactory):
    """Small models learn for three steps and are kept for the session."""
    recipes: Mapping[str, small_models.Recipe] = small_models.RECIPES
    quick = {name: replace(recipe, steps=3) for name, recipe in recipes.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_models, "CACHE", tmp_path_factory.mktemp("small_models"))
        patch.setattr(small_models, "RECIPES", quick)
        yield


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Runs a script such as "attcat.table1" with `--small` and these arguments; returns the folder of its results."""

    def run(script: str, *arguments: object, small: bool = True) -> Path:
        chosen = ["--small"] if small else []
        import_module(f"papers.{script}").main([*chosen, "--output", str(tmp_path), *map(str, arguments)])
        return tmp_path

    return run


@pytest.fixture
def run_default(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> RunDefault:
    """Runs a script as it is without `--small`, against a stub of the Hub; returns the models that it asked for.

    Whatever model is asked for is `explainer`. The data are those of `hub`.
    """

    def run(script: str, hub: Hub, explainer: tl.Explainer, *arguments: object) -> list[str]:
        asked: list[str] = []

        def load(name: str, task: str | None, device: str | None = None) -> tl.Explainer:
            asked.append(name)
            return explainer

        hub.install(monkeypatch)
        monkeypatch.setattr(options, "load_model", load)
        run_script(script, *arguments, small=False)
        return asked

    return run
