"""The catalog that the command line reads instead of the registries equals them."""

from tokenlight.cli.catalog import read_catalog
from tokenlight.cli.write_catalog import current_catalog


def test_the_method_table_equals_the_registries():
    assert read_catalog() == current_catalog(), "methods, metrics, protocols or tasks changed: run `make catalog`"
