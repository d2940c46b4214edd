"""What `tokenlight families` prints: method × family, the reasons, and how it was checked."""

from collections.abc import Sequence
from datetime import date

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.versions import library_versions
from tokenlight.results.model_check import WORST, ModelCheck

MARKS = {
    "works": ("yes", "green"),
    "refused": ("refused", "yellow"),
    "crashed": ("CRASHED", "red"),
    "wrong": ("WRONG", "red"),
}


def families_table(found: Sequence[ModelCheck]) -> Group:
    """A row a model, the reasons below."""
    methods = list(dict.fromkeys(outcome.method for one in found for outcome in one.outcomes))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("type", "head", *methods, "precision"):
        table.add_column(column, style="cyan" if column == "type" else "")
    for one in found:
        verdicts = {outcome.method: MARKS[outcome.verdict] for outcome in one.outcomes}
        cells = [Text(*verdicts.get(method, ("", ""))) for method in methods]
        table.add_row(one.kind, one.task, *cells, one.precision or Text(one.problem, style="yellow"))
    return Group(table, *(Text(line) for one in found for line in reasons(one)))


def reasons(one: ModelCheck) -> list[str]:
    """Why a method does not work, the methods with the same reason together; which checks were made."""
    lines = [f"\n{one.kind}, {one.task} ({one.model or 'no model'}) {one.problem}".rstrip()]
    by_reason: dict[tuple[str, str], list[str]] = {}
    for outcome in one.outcomes:
        by_reason.setdefault((MARKS[outcome.verdict][0], outcome.reason), []).append(outcome.method)
    lines += [f"  {', '.join(names)}: {mark} {reason}".rstrip() for (mark, reason), names in by_reason.items()]
    return lines + check_lines(one)


def check_lines(one: ModelCheck) -> list[str]:
    lines = []
    for check in one.checks:
        state = {True: "ok", False: "WRONG", None: "not checked"}[check.passed]
        apart = "" if check.difference is None else f" {check.difference:.0e}"
        lines.append(f"    {check.name}: {state}{apart} ({check.remark})")
    return lines


def in_short(one: ModelCheck) -> str:
    """One line, while the others are still being tried."""
    counts = ", ".join(f"{one.count(verdict)} {verdict}" for verdict in WORST if one.count(verdict))
    return f"{one.kind}, {one.task}: {one.problem or counts}"


def made_now() -> str:
    """When and with what."""
    known = library_versions()
    versions = ", ".join(f"{name} {known[name]}" for name in ("tokenlight", "transformers", "torch"))
    return f"Made by `tokenlight families` on {date.today()} with {versions}."
