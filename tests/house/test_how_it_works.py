"""The tables of docs/how-it-works.md list every file of the package once, in the order of the layers."""

import ast
import re
from collections import Counter

from tests.house.plan import LAYERS, PACKAGE, ROOT, modules

PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
FOLDERS = PAGE.partition("## Folders")[2]


def has_code(path) -> bool:
    """Whether a file has more than its docstring."""
    return len(ast.parse(path.read_text(encoding="utf-8")).body) > 1


def test_every_module_is_in_the_tables_once():
    named = Counter()
    for folder, table in re.findall(r"^### `(\w+)/`.*?\n(.*?)(?=^#|\Z)", FOLDERS, re.MULTILINE | re.DOTALL):
        named.update(f"{folder}/{file}" for file in re.findall(r"^\| `([\w/]+\.py)`", table, re.MULTILINE))
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if path.parent != PACKAGE and (path.name != "__init__.py" or has_code(path))
    }
    assert set(named) == files
    assert set(named.values()) == {1}


def test_folders_are_listed_in_the_order_of_the_layers():
    folders = [folder for level in LAYERS for folder in level]
    assert re.findall(r"^### `(\w+)/`", FOLDERS, re.MULTILINE) == folders
