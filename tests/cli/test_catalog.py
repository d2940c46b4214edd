"""The catalog that the command line reads in place of the registries says what they say."""

from tokenlight.cli.catalog import read_catalog
from tokenlight.cli.write_catalog import current_catalog


def test_it_is_what_the_registries_say():
    assert read_catalog() == current_catalog(), "methods, metrics, protocols or tasks changed: run `make catalog`"
