"""Writes the catalog of the command line from the registries: `make catalog`."""

import json
from dataclasses import asdict, fields

from tokenlight.bench.protocol import PROTOCOLS
from tokenlight.cli.catalog import FILE, Catalog, MethodRow
from tokenlight.common.files import write_atomically
from tokenlight.methods import METHODS
from tokenlight.metrics import METRICS
from tokenlight.tasks import TASKS

COLUMNS = [field.name for field in fields(MethodRow)]


def current_catalog() -> Catalog:
    """The catalog of the current registries."""
    return Catalog(
        tuple(MethodRow(**{column: getattr(entry, column) for column in COLUMNS}) for entry in METHODS.values()),
        {name: entry.title for name, entry in METRICS.items()},
        tuple(PROTOCOLS),
        tuple(TASKS),
    )


def write_catalog() -> None:
    write_atomically(FILE, json.dumps(asdict(current_catalog()), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    write_catalog()
