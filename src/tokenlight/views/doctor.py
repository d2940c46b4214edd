"""What `tokenlight doctor` prints: the memory that methods will need, and how each of them did."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.sizes import describe_bytes
from tokenlight.results.examination import Examination, Need, Outlook
from tokenlight.views.families import check_lines

MANY = 9999  # texts that fit at once; more than that is "many"


def outlook_table(outlook: Outlook) -> Group:
    """Methods with equal needs in one row, the smallest need first."""
    free = "unknown" if outlook.free is None else describe_bytes(outlook.free)
    header = Text(
        f"Memory in addition to the weights ({describe_bytes(outlook.weights)}) for texts of {outlook.tokens} tokens, "
        f"estimated; free on {outlook.device}: {free}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in (f"{outlook.texts} texts", "with low_memory", "fit at once", "fit with low_memory"):
        table.add_column(column, justify="right")
    table.add_column("method", style="cyan")
    for names, need in sorted(alike(outlook.needs), key=lambda pair: pair[1].need):
        counts = (texts_that_fit(count) for count in (need.fitting, need.fitting_low))
        table.add_row(describe_bytes(need.need), describe_bytes(need.need_low), *counts, ", ".join(names))
    return Group(header, table, Text())


def alike(needs: tuple[Need, ...]) -> list[tuple[list[str], Need]]:
    """The methods that need the same, and what they need."""
    groups: dict[tuple[int | None, ...], tuple[list[str], Need]] = {}
    for one in needs:
        key = (one.need, one.need_low, one.fitting, one.fitting_low)
        groups.setdefault(key, ([], one))[0].append(one.method)
    return list(groups.values())


def texts_that_fit(count: int | None) -> str:
    return "?" if count is None else f"> {MANY}" if count > MANY else str(count)


def examination_table(found: Examination) -> Group:
    """Method by method: whether it works, or why not, and what it took."""
    header = Text(
        f"{found.model}, {found.task}, {found.parameters / 1e6:.1f} M weights "
        f"({found.weights / 1e6:.0f} MB, {found.dtype}); one text of {found.tokens} tokens on {found.device}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "works", "time", "held for backward"):
        table.add_column(column, style="cyan" if column == "method" else "", no_wrap=column == "method")
    for finding in found.findings:
        if finding.error is not None:
            table.add_row(finding.method, Text(f"no: {finding.error}", style="yellow"), "", "")
        else:
            held = f"{finding.held / 1e6:.1f} MB" if finding.held else "nothing"
            table.add_row(finding.method, "yes", f"{finding.seconds * 1e3:.0f} ms", held)
    checks = [Text("\nChecked against the model itself, as in docs/families.md:"), *map(Text, check_lines(found.check))]
    wrong = [outcome for outcome in found.check.outcomes if outcome.verdict in ("wrong", "crashed")]
    faults = [Text(f"{one.method}: {one.verdict.upper()} {one.reason}", style="red") for one in wrong]
    return Group(header, table, *checks, *faults)
