"""docs/glossary.md names classes and files that exist, and defines no term twice."""

import ast
import re
from collections import Counter

import pytest

from tests.house.plan import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\| (.+?) \| .+ \| (.*?) ?\|$", PAGE, re.MULTILINE)
CLASS = re.compile(r"`([A-Z]\w+)`")


def defined_names(file: str) -> set[str]:
    """Names of classes and functions, and module-level values, that a file defines."""
    nodes = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
    named = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return named | {target.id for target in targets if isinstance(target, ast.Name)}


def test_no_term_is_defined_twice():
    terms = Counter(term for term, _ in ENTRIES if term not in ("term", "---"))
    assert len(terms) > 50
    assert set(terms.values()) == {1}


@pytest.mark.parametrize(("term", "files"), [entry for entry in ENTRIES if entry[1].startswith("`")])
def test_files_of_a_term_exist_and_define_its_class(term, files):
    paths = re.findall(r"`([\w/]+\.py)`", files)
    assert paths
    assert all((PACKAGE / path).is_file() for path in paths)
    names = set().union(*map(defined_names, paths))
    assert set(CLASS.findall(term)) <= names
