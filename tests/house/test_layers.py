"""Folders are layers: each imports only from those below it."""

from pathlib import Path

import pytest

from tests.house.plan import HEIGHT, LAYERS, PACKAGE, SHORTCUTS, imported_folders, modules


def forbidden_imports(path: str, source: str) -> list[str]:
    """Folders that a file imports from although they are not below it."""
    folder, allowed = path.split("/")[0], SHORTCUTS.get(path, set())
    return sorted(
        other
        for other in set(imported_folders(source))
        if other != folder and other not in allowed and HEIGHT.get(other, len(LAYERS)) >= HEIGHT[folder]
    )


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_folders_import_from_below():
    inside = [path for path in modules() if path.parent != PACKAGE]
    imports = {relative(path): forbidden_imports(relative(path), path.read_text(encoding="utf-8")) for path in inside}
    messages = [f"{path} imports from {', '.join(folders)}" for path, folders in imports.items() if folders]
    assert not messages, f"not below it: see tests/house/plan.py: {messages}"


def test_every_folder_has_a_level():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders == set(HEIGHT)


def test_only_init_and_main_lie_outside_of_folders():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize(
    "line",
    [
        "from tokenlight.cli.app import app",
        "from tokenlight import serve",
        "import tokenlight.bench.benchmark",
        "def f():\n    from tokenlight.bench import benchmark",
    ],
)
def test_every_kind_of_import_is_found(line):
    assert forbidden_imports("metrics/curves.py", line)
    assert not forbidden_imports(
        "metrics/curves.py", "from tokenlight.text.tokenized_text import TokenizedText\nimport torch"
    )


def test_folders_of_one_level_do_not_import_each_other():
    assert forbidden_imports("bench/cases.py", "from tokenlight.corpus.windows import cut") == ["corpus"]


def test_a_shortcut_is_allowed_in_its_own_file_only():
    line = "from tokenlight.views.html import page"
    assert not forbidden_imports("results/explanation.py", line)
    assert forbidden_imports("heads/mask.py", line) == ["views"]


def looked_up(source: str) -> set[str]:
    """Folders with registries that a file imports from when it runs."""
    return {"methods", "metrics", "tasks"} & set(imported_folders(source, for_types=False))


def test_results_and_views_do_not_look_up_methods_or_tasks():
    """A saved result has everything that is shown of it, so that it looks the same after an upgrade."""
    files = [path for folder in ("results", "views") for path in (PACKAGE / folder).rglob("*.py")]
    imports = {relative(path): looked_up(path.read_text(encoding="utf-8")) for path in files}
    evaluates = "results/explanation.py"  # Explanation.evaluate calls metrics/
    assert {path: folders for path, folders in imports.items() if folders} == {evaluates: {"metrics"}}


def test_an_import_for_type_checkers_is_allowed():
    line = "from tokenlight.methods import METHODS"
    assert looked_up(line) == {"methods"}
    assert looked_up(f"def f():\n    {line}") == {"methods"}
    assert looked_up(f"if TYPE_CHECKING:\n    {line}") == set()
