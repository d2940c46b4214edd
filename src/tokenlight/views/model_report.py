"""Model reports: the output of `tokenlight families` and `tokenlight doctor`, and the page of all families."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tokenlight.common.formatting import describe_bytes
from tokenlight.common.versions import library_versions
from tokenlight.results.model_report import FROM_BEST, Examination, ModelCheck, Need, Outcome, Outlook

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
    counts = ", ".join(f"{one.count(verdict)} {verdict}" for verdict in FROM_BEST if one.count(verdict))
    return f"{one.kind}, {one.task}: {one.problem or counts}"


def made_now() -> str:
    """When and with what."""
    known = library_versions()
    versions = ", ".join(f"{name} {known[name]}" for name in ("tokenlight", "transformers", "torch"))
    return f"Made by `tokenlight families` on {date.today()} with {versions}."


SIGNS = {"works": "yes", "refused": "–", "crashed": "CRASHED", "wrong": "WRONG"}
LONGEST = 220  # letters of a reason


def families_page(found: Sequence[ModelCheck], made: str) -> str:
    """`made` says when and with what."""
    text = [one for one in found if one.text]
    built = [one for one in text if not one.problem]
    methods = list(dict.fromkeys(outcome.method for one in found for outcome in one.outcomes))
    parts = [
        "# Families",
        f"What every method does on every text family of transformers. {made} It is made by a program; do not edit it.",
        HOW,
        "## In numbers",
        counted(built, methods, len(by_kind(text))),
        "## Checks",
        checks_table(found),
        *faults(found),
        "## Families of text",
        HEADS,
        method_table(built, methods),
        "## Why not",
        "A family stands under every reason that one of its methods gives; × 3: with three of its heads.",
        reasons_list(built, "refused"),
        "## The text part of other models",
        method_table([one for one in found if not one.text and not one.problem], methods),
        "## Not tried",
        "\n".join(f"- `{one.kind}`, {one.task}: {shortened(one.problem, one.model)}" for one in found if one.problem),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


HOW = """A tiny model of each type (two layers, or as many as it has kinds of layers; random weights, drawn so that
attention is sharp) reads two rows of 12 and 9 token ids. Methods are tried in double and in single precision.
*yes* means that they gave scores and that every check below held, in double precision where the family runs in
it. What cannot be explained exactly is refused with a reason. `tokenlight doctor MODEL` makes the same checks
on a model of yours, and `tokenlight families TYPE` those of one row."""

HEADS = "*yes*: with every head that the family has; a number: with so many of its heads; –: refused with a reason."


def by_kind(found: Iterable[ModelCheck]) -> dict[str, list[ModelCheck]]:
    """Heads of one family together."""
    groups: dict[str, list[ModelCheck]] = {}
    for one in found:
        groups.setdefault(one.kind, []).append(one)
    return groups


def counted(found: Sequence[ModelCheck], methods: Sequence[str], types: int) -> str:
    """Types by how much works, and (type, head) pairs by method."""
    kinds = {kind: [outcome for one in group for outcome in one.outcomes] for kind, group in by_kind(found).items()}
    whole = sum(all(outcome.verdict == "works" for outcome in outcomes) for outcomes in kinds.values())
    sensible = sum(all(makes_sense(outcome) for outcome in outcomes) for outcomes in kinds.values())
    none = sum(all(outcome.verdict != "works" for outcome in outcomes) for outcomes in kinds.values())
    lines = [
        f"{types} types and variants, {len(kinds)} of them tried: {whole} with every head and all {len(methods)} "
        f"methods, {sensible} with all that are defined for them (those that read attention are not, where blocks have "
        f"none, or several), {len(kinds) - whole - none} with some, {none} with none.",
        "",
        "| method | works | refused | crashed | wrong |",
        "|---|---:|---:|---:|---:|",
    ]
    for method in methods:
        verdicts = Counter(o.verdict for outcomes in kinds.values() for o in outcomes if o.method == method)
        counts = " | ".join(str(verdicts[verdict]) for verdict in SIGNS)
        lines.append(f"| {method} | {counts} |")
    return "\n".join([*lines, "", "(Pairs of type and head.)"])


def makes_sense(outcome: Outcome) -> bool:
    return outcome.verdict == "works" or not outcome.defined


def checks_table(found: Sequence[ModelCheck]) -> str:
    """Of each kind of check: how often it was made, and the largest difference among those that passed."""
    groups: dict[str, list[tuple[bool, float]]] = {}
    for check in (check for one in found for check in one.checks):
        if check.difference is not None:
            groups.setdefault(check.name, []).append((bool(check.passed), check.difference))
    lines = ["| check | models | passed | largest difference of those |", "|---|---:|---:|---:|"]
    for name, results in groups.items():
        passed = [apart for passed, apart in results if passed]
        lines.append(f"| {name} | {len(results)} | {len(passed)} | {max(passed, default=0):.0e} |")
    return "\n".join(lines)


def faults(found: Sequence[ModelCheck]) -> list[str]:
    """What must not be: crashes, and results that are wrong."""
    lists = {title: reasons_list(found, verdict) for title, verdict in (("Wrong", "wrong"), ("Crashed", "crashed"))}
    told = [part for title, text in lists.items() if text for part in (f"### {title}", text)]
    return ["## Faults", *(told or ["None: nothing crashed, and no check failed."])]


def method_table(found: Sequence[ModelCheck], methods: Sequence[str]) -> str:
    """Families with the most methods first."""
    rows = []
    for kind, group in by_kind(found).items():
        outcomes = [outcome for one in group for outcome in one.outcomes]
        cells = [cell([outcome for outcome in outcomes if outcome.method == method]) for method in methods]
        works = sum(outcome.verdict == "works" for outcome in outcomes) / len(outcomes)
        rows.append((-works, kind, f"| `{kind}` | {len(group)} | {' | '.join(cells)} |"))
    header = [f"| type | heads | {' | '.join(methods)} |", f"|---|---:|{'---|' * len(methods)}"]
    return "\n".join([*header, *(row for *_, row in sorted(rows))])


def cell(outcomes: Sequence[Outcome]) -> str:
    """Of one method with all heads of a family."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    if len(verdicts) == 1:
        return SIGNS[outcomes[0].verdict]
    return next((SIGNS[bad] for bad in ("wrong", "crashed") if verdicts[bad]), f"{verdicts['works']}")


def reasons_list(found: Sequence[ModelCheck], verdict: str) -> str:
    """Reasons, those of the most families first."""
    groups: dict[str, dict[str, list[str]]] = {}
    for one in found:
        for outcome in one.outcomes:
            if outcome.verdict == verdict:
                reason = shortened(outcome.reason, one.model, one.kind)
                groups.setdefault(reason, {}).setdefault(one.kind, []).append(outcome.method)
    ordered = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return "\n".join(f"- {reason}: {described(kinds)}" for reason, kinds in ordered)


def described(kinds: Mapping[str, Sequence[str]]) -> str:
    """Families with the same methods together."""
    groups: dict[str, list[str]] = {}
    for kind, methods in kinds.items():
        counts = Counter(methods)
        words = ", ".join(method if n == 1 else f"{method} × {n}" for method, n in counts.items())
        groups.setdefault(words, []).append(f"`{kind}`")
    return "; ".join(f"{', '.join(names)} ({words})" for words, names in groups.items())


def shortened(reason: str, *names: str) -> str:
    """The same for every family that has it: without the names of this one, and not for ever."""
    for name in filter(None, names):
        reason = reason.replace(name, "…")
    reason = reason.replace("|", "\\|")
    return reason if len(reason) <= LONGEST else reason[:LONGEST] + " …"


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
