"""The papers' pages are what is written from the facts and the stored numbers, and the code they name exists."""

import importlib
import re
from pathlib import Path

import pytest

import tokenlight
from papers.facts import Item
from papers.page import DOCS, FOLDERS, find_paper, write_page

FOLDERS_OF_PACKAGE = {path.name for path in Path(str(tokenlight.__file__)).parent.iterdir() if path.is_dir()}
DOTTED = re.compile(r"`((?:\w+\.)+\w+)")


@pytest.mark.parametrize("folder", FOLDERS)
def test_pages_are_up_to_date(folder: str):
    """If this fails, run `python -m papers.page`."""
    assert (DOCS / f"{folder}.md").read_text(encoding="utf-8") == write_page(find_paper(folder))


@pytest.mark.parametrize("folder", FOLDERS)
def test_items_name_modules_and_functions_that_exist(folder: str):
    missing = [
        (item.title, name)
        for item in find_paper(folder).items
        for name in names_of_code(item)
        if not exists(name if name.startswith(("tokenlight.", "papers.")) else f"tokenlight.{name}")
    ]
    assert not missing


def names_of_code(item: Item) -> list[str]:
    """Dotted names in backticks that begin with `tokenlight`, `papers` or a folder of the package."""
    roots = {"tokenlight", "papers", *FOLDERS_OF_PACKAGE}
    names = DOTTED.findall(f"{item.here} {item.differs}")
    return [name for name in names if name.partition(".")[0] in roots]


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            if not hasattr(owner, attribute):
                return False
            owner = getattr(owner, attribute)
        return True
    return False
