"""docs/how-it-works.md is true to the house: every file of the package is in its tables, once."""

import ast
import re
from collections import Counter

from tests.house.plan import LAYERS, PACKAGE, ROOT, modules

PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
HOUSE = PAGE.partition("## The rooms")[2]


def has_code(path) -> bool:
    """More than the sentence that says what a room is for."""
    return len(ast.parse(path.read_text(encoding="utf-8")).body) > 1


def test_every_module_is_in_the_tables_once():
    named = Counter()
    for room, table in re.findall(r"^### `(\w+)/`.*?\n(.*?)(?=^#|\Z)", HOUSE, re.MULTILINE | re.DOTALL):
        named.update(f"{room}/{file}" for file in re.findall(r"^\| `([\w/]+\.py)`", table, re.MULTILINE))
    there = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if path.parent != PACKAGE and (path.name != "__init__.py" or has_code(path))
    }
    assert set(named) == there
    assert set(named.values()) == {1}


def test_rooms_stand_in_the_order_of_the_layers():
    rooms = [room for rooms in LAYERS for room in rooms]
    assert re.findall(r"^### `(\w+)/`", HOUSE, re.MULTILINE) == rooms
