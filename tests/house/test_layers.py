"""The house stays as it was built: rooms in layers, each importing only from those below."""

from pathlib import Path

import pytest

from tests.house.plan import HEIGHT, LAYERS, PACKAGE, SHORTCUTS, imported_rooms, modules


def climbs(path: str, source: str) -> list[str]:
    """Rooms that a file must not know of."""
    room, allowed = path.split("/")[0], SHORTCUTS.get(path, set())
    return sorted(
        other
        for other in set(imported_rooms(source))
        if other != room and other not in allowed and HEIGHT.get(other, len(LAYERS)) >= HEIGHT[room]
    )


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_rooms_import_from_below():
    inside = [path for path in modules() if path.parent != PACKAGE]
    found = {relative(path): climbs(relative(path), path.read_text(encoding="utf-8")) for path in inside}
    said = [f"{path} imports from {', '.join(rooms)}" for path, rooms in found.items() if rooms]
    assert not said, f"not below it: see tests/house/plan.py: {said}"


def test_every_folder_is_in_the_plan():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders == set(HEIGHT)


def test_nothing_but_the_entrance_lies_outside_the_rooms():
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
def test_the_check_sees_every_kind_of_import(line):
    assert climbs("metrics/curves.py", line)
    assert not climbs("metrics/curves.py", "from tokenlight.text.tokenized_text import Row\nimport torch")


def test_rooms_side_by_side_do_not_know_each_other():
    assert climbs("bench/cases.py", "from tokenlight.corpus.windows import cut") == ["corpus"]


def test_a_shortcut_is_for_its_own_file():
    line = "from tokenlight.views.html import page"
    assert not climbs("results/explanation.py", line)
    assert climbs("record/trace.py", line) == ["views"]
