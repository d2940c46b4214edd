"""What the command line knows before torch is there: methods, metrics, protocols and tasks, from a file beside it."""

import json
from dataclasses import dataclass
from pathlib import Path

from tokenlight.views.method_table import MethodRow

FILE = Path(__file__).with_name("catalogue.json")  # `make catalog` writes it from the registries


@dataclass(frozen=True)
class Catalog:
    """The registries, as far as the table of methods and shell completion speak of them."""

    methods: tuple[MethodRow, ...]
    metrics: dict[str, str]  # name -> what papers call it
    protocols: tuple[str, ...]
    tasks: tuple[str, ...]


def read_catalog() -> Catalog:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return Catalog(
        tuple(MethodRow(**row) for row in found["methods"]),
        found["metrics"],
        tuple(found["protocols"]),
        tuple(found["tasks"]),
    )
