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


def families_table(checks: Sequence[ModelCheck]) -> Group:
    """A row for each model, with reasons below."""
    methods = list(dict.fromkeys(outcome.method for check in checks for outcome in check.outcomes))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("type", "head", *methods, "precision"):
        table.add_column(column, style="cyan" if column == "type" else "")
    for check in checks:
        verdicts = {outcome.method: MARKS[outcome.verdict] for outcome in check.outcomes}
        cells = [Text(*verdicts.get(method, ("", ""))) for method in methods]
        table.add_row(check.kind, check.task, *cells, check.precision or Text(check.problem, style="yellow"))
    return Group(table, *(Text(line) for check in checks for line in reasons(check)))


def reasons(model_check: ModelCheck) -> list[str]:
    """The reasons for which methods do not work, grouped, and the results of checks."""
    lines = [
        f"\n{model_check.kind}, {model_check.task} ({model_check.model or 'no model'}) {model_check.problem}".rstrip()
    ]
    by_reason: dict[tuple[str, str], list[str]] = {}
    for outcome in model_check.outcomes:
        by_reason.setdefault((MARKS[outcome.verdict][0], outcome.reason), []).append(outcome.method)
    lines += [f"  {', '.join(names)}: {mark} {reason}".rstrip() for (mark, reason), names in by_reason.items()]
    return lines + check_lines(model_check)


def check_lines(model_check: ModelCheck) -> list[str]:
    lines = []
    for check in model_check.checks:
        state = {True: "ok", False: "WRONG", None: "not checked"}[check.passed]
        difference = "" if check.difference is None else f" {check.difference:.0e}"
        lines.append(f"    {check.name}: {state}{difference} ({check.remark})")
    return lines


def in_short(model_check: ModelCheck) -> str:
    """One line on a model, for progress output."""
    counts = ", ".join(f"{model_check.count(verdict)} {verdict}" for verdict in FROM_BEST if model_check.count(verdict))
    return f"{model_check.kind}, {model_check.task}: {model_check.problem or counts}"


def made_now() -> str:
    """A sentence with date and versions."""
    installed = library_versions()
    versions = ", ".join(f"{name} {installed[name]}" for name in ("tokenlight", "transformers", "torch"))
    return f"Made by `tokenlight families` on {date.today()} with {versions}."


SIGNS = {"works": "yes", "refused": "–", "crashed": "CRASHED", "wrong": "WRONG"}
LONGEST = 220  # letters of a reason


def families_page(checks: Sequence[ModelCheck], made: str) -> str:
    """The page on all families; `made` is a sentence with date and versions."""
    text = [check for check in checks if check.text]
    built = [check for check in text if not check.problem]
    methods = list(dict.fromkeys(outcome.method for check in checks for outcome in check.outcomes))
    sections = [
        "# Families",
        f"What every method does on every text family of transformers. {made} It is made by a program; do not edit it.",
        HOW,
        "## In numbers",
        counted(built, methods, len(by_kind(text))),
        "## Checks",
        checks_table(checks),
        *faults(checks),
        "## Families of text",
        HEADS,
        method_table(built, methods),
        "## Why not",
        "A family stands under every reason that one of its methods gives; × 3: with three of its heads.",
        reasons_list(built, "refused"),
        "## The text part of other models",
        method_table([check for check in checks if not check.text and not check.problem], methods),
        "## Not tried",
        "\n".join(
            f"- `{check.kind}`, {check.task}: {shortened(check.problem, check.model)}"
            for check in checks
            if check.problem
        ),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


HOW = """A tiny model of each type (two layers, or as many as it has kinds of layers; random weights, drawn so that
attention is sharp) reads two rows of 12 and 9 token ids. Methods are tried in double and in single precision.
*yes* means that they gave scores and that every check below held, in double precision where the family runs in
it. What cannot be explained exactly is refused with a reason. `tokenlight doctor MODEL` makes the same checks
on a model of yours, and `tokenlight families TYPE` those of one row."""

HEADS = "*yes*: with every head that the family has; a number: with so many of its heads; –: refused with a reason."


def by_kind(checks: Iterable[ModelCheck]) -> dict[str, list[ModelCheck]]:
    """Checks by model type."""
    groups: dict[str, list[ModelCheck]] = {}
    for check in checks:
        groups.setdefault(check.kind, []).append(check)
    return groups


def counted(checks: Sequence[ModelCheck], methods: Sequence[str], types: int) -> str:
    """The numbers of types by how many methods work, and of (type, head) pairs by method."""
    kinds = {
        kind: [outcome for check in group for outcome in check.outcomes] for kind, group in by_kind(checks).items()
    }
    complete = sum(all(outcome.verdict == "works" for outcome in outcomes) for outcomes in kinds.values())
    all_defined = sum(all(makes_sense(outcome) for outcome in outcomes) for outcomes in kinds.values())
    none = sum(all(outcome.verdict != "works" for outcome in outcomes) for outcomes in kinds.values())
    lines = [
        f"{types} types and variants, {len(kinds)} of them tried: {complete} with every head and all {len(methods)} "
        f"methods, {all_defined} with all that are defined for them (those that read attention are not, where blocks "
        f"have none, or several), {len(kinds) - complete - none} with some, {none} with none.",
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


def checks_table(model_checks: Sequence[ModelCheck]) -> str:
    """For each kind of check: its count, and the largest difference among those that passed."""
    groups: dict[str, list[tuple[bool, float]]] = {}
    for check in (check for model_check in model_checks for check in model_check.checks):
        if check.difference is not None:
            groups.setdefault(check.name, []).append((bool(check.passed), check.difference))
    lines = ["| check | models | passed | largest difference of those |", "|---|---:|---:|---:|"]
    for name, results in groups.items():
        passed = [difference for passed, difference in results if passed]
        lines.append(f"| {name} | {len(results)} | {len(passed)} | {max(passed, default=0):.0e} |")
    return "\n".join(lines)


def faults(checks: Sequence[ModelCheck]) -> list[str]:
    """A section on crashes and wrong results."""
    lists = {title: reasons_list(checks, verdict) for title, verdict in (("Wrong", "wrong"), ("Crashed", "crashed"))}
    paragraphs = [paragraph for title, text in lists.items() if text for paragraph in (f"### {title}", text)]
    return ["## Faults", *(paragraphs or ["None: nothing crashed, and no check failed."])]


def method_table(checks: Sequence[ModelCheck], methods: Sequence[str]) -> str:
    """A table of families by methods, those with the most working methods first."""
    rows = []
    for kind, group in by_kind(checks).items():
        outcomes = [outcome for check in group for outcome in check.outcomes]
        cells = [cell([outcome for outcome in outcomes if outcome.method == method]) for method in methods]
        works = sum(outcome.verdict == "works" for outcome in outcomes) / len(outcomes)
        rows.append((-works, kind, f"| `{kind}` | {len(group)} | {' | '.join(cells)} |"))
    header = [f"| type | heads | {' | '.join(methods)} |", f"|---|---:|{'---|' * len(methods)}"]
    return "\n".join([*header, *(row for *_, row in sorted(rows))])


def cell(outcomes: Sequence[Outcome]) -> str:
    """The verdicts of one method with all heads of a family."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    if len(verdicts) == 1:
        return SIGNS[outcomes[0].verdict]
    return next((SIGNS[bad] for bad in ("wrong", "crashed") if verdicts[bad]), f"{verdicts['works']}")


def reasons_list(checks: Sequence[ModelCheck], verdict: str) -> str:
    """A list of reasons, those of the most families first."""
    groups: dict[str, dict[str, list[str]]] = {}
    for check in checks:
        for outcome in check.outcomes:
            if outcome.verdict == verdict:
                reason = shortened(outcome.reason, check.model, check.kind)
                groups.setdefault(reason, {}).setdefault(check.kind, []).append(outcome.method)
    ordered = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return "\n".join(f"- {reason}: {described(kinds)}" for reason, kinds in ordered)


def described(kinds: Mapping[str, Sequence[str]]) -> str:
    """Families, grouped by their methods."""
    groups: dict[str, list[str]] = {}
    for kind, methods in kinds.items():
        counts = Counter(methods)
        words = ", ".join(method if n == 1 else f"{method} × {n}" for method, n in counts.items())
        groups.setdefault(words, []).append(f"`{kind}`")
    return "; ".join(f"{', '.join(names)} ({words})" for words, names in groups.items())


def shortened(reason: str, *names: str) -> str:
    """A reason without the names of its family, so that equal reasons are equal, and truncated."""
    for name in filter(None, names):
        reason = reason.replace(name, "…")
    reason = reason.replace("|", "\\|")
    return reason if len(reason) <= LONGEST else reason[:LONGEST] + " …"


MANY = 9999  # texts that fit at once; more than that is "many"


def outlook_table(outlook: Outlook) -> Group:
    """A row for methods with equal needs, the smallest need first."""
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
    """Groups of methods with equal needs."""
    groups: dict[tuple[int | None, ...], tuple[list[str], Need]] = {}
    for need in needs:
        key = (need.need, need.need_low, need.fitting, need.fitting_low)
        groups.setdefault(key, ([], need))[0].append(need.method)
    return list(groups.values())


def texts_that_fit(count: int | None) -> str:
    return "?" if count is None else f"> {MANY}" if count > MANY else str(count)


def examination_table(examination: Examination) -> Group:
    """For each method: whether it works, or the reason, and its time and memory."""
    header = Text(
        f"{examination.model}, {examination.task}, {examination.parameters / 1e6:.1f} M weights "
        f"({examination.weights / 1e6:.0f} MB, {examination.dtype}); one text of {examination.tokens} tokens "
        f"on {examination.device}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "works", "time", "held for backward"):
        table.add_column(column, style="cyan" if column == "method" else "", no_wrap=column == "method")
    for finding in examination.findings:
        if finding.error is not None:
            table.add_row(finding.method, Text(f"no: {finding.error}", style="yellow"), "", "")
        else:
            held = f"{finding.held / 1e6:.1f} MB" if finding.held else "nothing"
            table.add_row(finding.method, "yes", f"{finding.seconds * 1e3:.0f} ms", held)
    checks = [
        Text("\nChecked against the model itself, as in docs/families.md:"),
        *map(Text, check_lines(examination.check)),
    ]
    wrong = [outcome for outcome in examination.check.outcomes if outcome.verdict in ("wrong", "crashed")]
    faults = [Text(f"{outcome.method}: {outcome.verdict.upper()} {outcome.reason}", style="red") for outcome in wrong]
    return Group(header, table, *checks, *faults)
