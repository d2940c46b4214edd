"""Scripts of `papers/`, run in this process on models that are hardly trained."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from papers import small_models

RunScript = Callable[..., Path]


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
