"""Refusals are classes of their own; an error about a missing package names what to install."""

import ast
import sys
from importlib import import_module

import pytest

from tests.house.plan import PACKAGE
from tokenlight.common.error_location import is_refusal
from tokenlight.common.errors import RefusedType, RefusedValue, UnsupportedModelError, from_extra

BARE = ("ValueError", "TypeError")


@pytest.mark.parametrize("module", ["spacy", "spacy.tokens"])
def test_the_error_names_the_package_and_the_extra(module, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "spacy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError) as error, from_extra("syntax", "parsing"):
        import_module(module)
    assert str(error.value) == 'parsing needs spacy: pip install "tokenlight[syntax]"'


@pytest.mark.parametrize(
    "error",
    [
        ImportError("pyarrow requires NumPy 2.0 or newer, found 1.26.4"),  # it is there, and broken
        ModuleNotFoundError("No module named 'tokenlight.misspelled'", name="tokenlight.misspelled"),
    ],
)
def test_errors_of_other_packages_are_unchanged(error):
    with pytest.raises(ImportError) as raised, from_extra("scale", "Parquet"):
        raise error
    assert raised.value is error


def test_an_installed_package_raises_nothing():
    with from_extra("figures", "a figure"):
        import json
    assert json.loads("1") == 1


def bare_refusals(source: str) -> list[int]:
    """Lines that make a ValueError or a TypeError of Python's own, which would count as a bug of the package."""
    made = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [node.lineno for node in made if isinstance(node.func, ast.Name) and node.func.id in BARE]


def test_every_error_that_the_package_raises_on_purpose_is_a_refusal():
    lines = {path.name: found for path in PACKAGE.rglob("*.py") if (found := bare_refusals(path.read_text()))}
    assert lines == {}
    assert bare_refusals("raise RefusedValue('a')\nraise ValueError('b')\nreturn TypeError('c')") == [2, 3]


def test_a_refusal_needs_no_source_and_no_traceback():
    assert is_refusal(RefusedType("found 7"))
    assert is_refusal(UnsupportedModelError("no"))
    assert not is_refusal(ValueError("found 7"))
    assert isinstance(RefusedValue("found 7"), ValueError)
    assert isinstance(RefusedType("found 7"), TypeError)
