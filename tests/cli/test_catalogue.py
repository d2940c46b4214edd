"""The catalogue that the command line reads in place of the registries says what they say."""

from tokenlight.cli.catalogue import read_catalogue
from tokenlight.cli.write_catalogue import current_catalogue


def test_it_is_what_the_registries_say():
    assert read_catalogue() == current_catalogue(), "methods, metrics, protocols or tasks changed: run `make catalogue`"
