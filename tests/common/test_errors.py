"""A package that is missing is an error that says what to install; any other error stays as it is."""

import sys
from importlib import import_module

import pytest

from tokenlight.common.errors import from_extra


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
def test_errors_that_no_extra_would_mend_stay(error):
    with pytest.raises(ImportError) as raised, from_extra("scale", "Parquet"):
        raise error
    assert raised.value is error


def test_nothing_happens_to_a_package_that_is_there():
    with from_extra("figures", "a figure"):
        import json
    assert json.loads("1") == 1
