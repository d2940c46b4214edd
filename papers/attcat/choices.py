"""What AttCAT's scripts run: methods and protocols as the paper writes them, or with `--released` as its code does."""

import argparse
from collections.abc import Iterable
from dataclasses import replace

from papers.attcat.facts import METHODS
from papers.options import Run
from tokenlight.bench.protocol import Protocol
from tokenlight.bench.protocol import protocol as find_protocol
from tokenlight.runs.method_specs import MethodSpec

# Options of methods for equations 8 to 12 and figure 2; the defaults are the release's.
WRITTEN_OPTIONS = {
    "TransAtt": {"normalize": False},
    "CAT": {"states": "outputs"},
    "AttCAT": {"states": "outputs"},
}
RELEASED_PROTOCOLS = {"qqp": "attcat_qqp", "mnli": "attcat_mnli"}  # other data sets: "attcat"


def add_released(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--released", action="store_true", help="methods and protocol of the authors' code; default: as written"
    )
    return parser


def choose_methods(names: Iterable[str], released: bool) -> list[MethodSpec]:
    """The methods under the paper's names."""
    options = {} if released else WRITTEN_OPTIONS
    return [MethodSpec(name, METHODS[name], options.get(name, {})) for name in names]


def choose_protocol(dataset: str, released: bool) -> Protocol:
    if not dataset.startswith("squad"):
        return find_protocol(RELEASED_PROTOCOLS.get(dataset, "attcat") if released else "attcat_written")
    protocol = find_protocol("attcat_squad" if released else "attcat_squad_written")
    if released and dataset.startswith("squad2"):  # that notebook drops the signs
        return replace(protocol, absolute=frozenset({"attcat"}))
    return protocol


def name_run(run: Run, released: bool) -> tuple[Run, str]:
    """The run with a name and a folder that say how it is run, and the same in words."""
    name = f"{run.name}{'-small' if run.small else ''}-{'released' if released else 'written'}"
    return replace(run, name=name, folder=run.folder.with_name(name)), "as released" if released else "as written"
