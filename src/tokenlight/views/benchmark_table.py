"""The benchmark's table for terminals, notebooks, Markdown, LaTeX and CSV."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tokenlight.common.console import SafeConsole
from tokenlight.results.explanation import printable
from tokenlight.results.tables import FEWEST, Cell, Line, Table
from tokenlight.views.csv_text import csv_text

ARROWS = {"higher": "↑", "lower": "↓"}
DAGGER = "†"
INTERVALS = "the wider of Student-t and bootstrap-t (Clopper-Pearson for 0-1 metrics, Gaffke where it is narrower)"
PAIRED = "paired sign-flip test, family-wise error 5 % over all pairs of methods"
PROTOCOLS = {"clean": "clean (the metrics as defined, on every usable example; papers' own protocols are presets)"}
CSV_HEADER = "method,title,control,metric,direction,mean,low,high,best,not_distinguishable,examples"
INFINITY = r"\infty"
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: f"\\{c}" for c in "&%$#_{}"
}
LATEX |= {"τ": r"$\tau$", "α": r"$\alpha$", "β": r"$\beta$", "×": r"$\times$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}


def show_table(table: Table, console: Console | None = None) -> None:
    """Print the table, with facts about the examples above and the legend below."""
    console = console or SafeConsole()
    for line in facts(table):
        console.print(printable(line), markup=False, highlight=False, style="dim")
    plain = console.color_system is None
    console.print(terminal(table, plain))
    for line in legend(table, "*" if plain else "bold"):
        console.print(line, markup=False, highlight=False, style="dim")


def terminal(table: Table, plain: bool = False) -> RichTable:
    """The table for a terminal; without color, the best has a star."""
    view = RichTable(box=None, header_style="bold", padding=(0, 2, 0, 0))
    view.add_column("method", no_wrap=True)
    for column in table.columns:
        view.add_column(f"{column.title} {ARROWS[column.direction]}", justify="right", overflow="fold")
    digits = all_decimals(table)
    for group, lines in enumerate((table.methods, table.controls)):
        if group == 1:
            view.add_section()
            view.add_row("controls", style="dim italic")
        for line in lines:
            cells = [terminal_cell(cell, d, plain) for cell, d in zip(line.cells, digits, strict=True)]
            view.add_row(Text(printable(line.label), style="dim" if line.control else "cyan"), *cells)
    return view


def terminal_cell(cell: Cell, digits: int, plain: bool) -> Text:
    """Mean and interval; a narrow terminal wraps them at blanks."""
    low, high = (minus(f"{value:.{digits}f}") for value in (cell.low, cell.high))
    sign = "*" if cell.best and plain else DAGGER if cell.level else " "
    mean = (minus(f"{cell.mean:.{digits}f}"), "bold green" if cell.best else "")
    return Text.assemble(mean, sign, (f" [{low}, {high}]", "dim"))


def markdown(table: Table) -> str:
    """A table that GitHub shows, with its facts and its legend."""
    head = ["method", *(f"{column.title} {ARROWS[column.direction]}" for column in table.columns)]
    rows = [f"| {' | '.join(head)} |", f"|:--{'|--:' * len(table.columns)}|"]
    digits = all_decimals(table)
    rows += [f"| {markdown_row(line, digits)} |" for line in table.methods]
    if table.controls:
        rows.append(f"| *controls* {'| ' * len(table.columns)}|")
        rows += [f"| {markdown_row(line, digits)} |" for line in table.controls]
    above, below = (
        " ".join(f"{escape_markdown(sentence)}." for sentence in sentences)
        for sentences in (facts(table), legend(table))
    )
    return f"{above}\n\n" + "\n".join(rows) + f"\n\n{below}\n"


def markdown_row(line: Line, digits: Sequence[int]) -> str:
    cells = []
    for cell, d in zip(line.cells, digits, strict=True):
        mean = minus(f"{cell.mean:.{d}f}")
        mean = f"**{mean}**" if cell.best else mean + (DAGGER if cell.level else "")
        cells.append(f"{mean} [{minus(f'{cell.low:.{d}f}')}, {minus(f'{cell.high:.{d}f}')}]")
    return " | ".join([escape_markdown(line.title), *cells])


def escape_markdown(text: str) -> str:
    """Escape Markdown: a bar would end a cell, a star would begin bold text, `](` makes links and images."""
    return "".join(f"\\{c}" if c in "\\|*_<>`" else c for c in printable(text)).replace("](", "]\\(")


def latex(table: Table) -> str:
    """A table for \\usepackage{booktabs}, with the legend as its caption."""
    head = " & ".join(["", *(tex(f"{column.title} {ARROWS[column.direction]}") for column in table.columns)])
    digits = all_decimals(table)
    groups = [[latex_row(line, digits) for line in lines] for lines in (table.methods, table.controls) if lines]
    body = "\n\\midrule\n".join("\n".join(rows) for rows in groups)
    caption = " ".join(f"{tex(sentence)}." for sentence in (*facts(table), *legend(table))).replace(
        DAGGER, r"$^\dagger$"
    )
    return (
        "% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n\\small\n"
        f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\n"
        f"\\bottomrule\n\\end{{tabular}}\n\\caption{{{caption}}}\n\\end{{table}}\n"
    )


def latex_row(line: Line, digits: Sequence[int]) -> str:
    cells = []
    for cell, d in zip(line.cells, digits, strict=True):
        if cell.mean != cell.mean:
            cells.append("--")
            continue
        numbers = (f"{value:.{d}f}" for value in (cell.mean, cell.low, cell.high))
        mean, low, high = ("--" if n == "nan" else f"${n.replace('inf', INFINITY)}$" for n in numbers)
        mean = f"$\\mathbf{{{cell.mean:.{d}f}}}$" if cell.best else mean + (r"$^\dagger$" if cell.level else "")
        cells.append(f"{mean} {{\\scriptsize[{low}, {high}]}}")
    return " & ".join([tex(line.title), *cells]) + r" \\"


def tex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in printable(text))


def comma_separated(table: Table) -> str:
    """One line for each method and metric, with all digits."""
    rows: list[Sequence[object]] = [CSV_HEADER.split(",")]
    counts = (~np.isnan(table.values)).sum(0).tolist()  # [line, column]
    for line, examples in zip(table.lines, counts, strict=True):
        for column, cell, count in zip(table.columns, line.cells, examples, strict=True):
            numbers = [repr(float(value)) for value in (cell.mean, cell.low, cell.high)]
            names = [line.label, line.title, int(line.control is not None), column.label, column.direction]
            rows.append([*names, *numbers, int(cell.best), int(cell.level), count])
    return csv_text(rows)


def facts(table: Table) -> list[str]:
    """Sentences on the run: model, data, protocol, and skipped examples."""
    run, settings = table.run, table.run.settings
    name, protocol = settings["model"]["name"] or "a model in memory", settings["protocol"]["name"]
    protocol_name = PROTOCOLS.get(protocol, protocol)
    lines = [f"{name} on {short_source(settings)}: {run.examples:,} examples, protocol {protocol_name}"]
    if run.judged:
        lines.append(f"The model is right on {run.right / run.judged:.1%} of {run.judged:,} examples")
    bad = Counter(record["bad"] for record in run.bad)
    lines += [f"Skipped {n:,}: {reason}" for reason, n in run.set_aside.most_common()]
    lines += [f"Not usable {n:,}: {reason}" for reason, n in few(bad)]
    if not run.ended:
        lines.append("This run has not ended: start it again to finish it")
    if run.lost:
        lines.append(
            f"The best method reversed could not be measured on {run.lost:,} of them: its mean is over the others"
        )
    if run.examples < FEWEST:
        lines.append(f"Fewer than {FEWEST} examples: too few to say that one method is better than another")
    if run.copies:
        lines.append(
            f"{run.copies:,} of the examples are copies of others, the same tokens and target: intervals and tests "
            "take all of them for different texts, and so promise too much"
        )
    if run.cut:
        lines.append(f"{run.cut:,} texts were too long for the model and were cut")
    return lines


def short_source(settings: Mapping[str, Any]) -> str:
    """The name of a file with its folder, and the sample; details are in run.json."""
    data = settings["data"]
    name = data["source"] if data["hub"] else "/".join(Path(data["source"]).parts[-2:])
    return f"{name} (random sample of {data['sample']:,} rows, seed {data['seed']})" if "sample" in data else name


def few(reasons: Counter[str], most: int = 5) -> Iterator[tuple[str, int]]:
    yield from reasons.most_common(most)
    if others := reasons.most_common()[most:]:
        yield "other reasons: see bad_rows.jsonl", sum(n for _, n in others)


def legend(table: Table, best: str = "bold") -> list[str]:
    """Sentences that explain the signs in the table."""
    cells = [cell for line in table.lines for cell in line.cells if not isnan(cell.mean)]
    unknown = "; [–, –]: not known, since there are too few texts or all have the same value"
    return [
        f"Mean over texts with its 95 % interval, {INTERVALS}{unknown if any(isnan(c.low) for c in cells) else ''}; "
        "arrows say which way is better",
        f"{best.capitalize()}: the best method; {DAGGER}: cannot be told from it ({PAIRED})",
        f"Controls are never called the best: {', '.join(line.control for line in table.controls if line.control)}",
        *(describe_runs(table, line) for line in table.lines if line.spreads),
    ]


def describe_runs(table: Table, line: Line) -> str:
    """The standard deviations over several runs of a line."""
    digits = all_decimals(table)
    columns = zip(table.columns, line.spreads, digits, strict=True)
    listed = ", ".join(f"{column.title} {spread:.{d}f}" for column, spread, d in columns)
    return f"{line.title}: the mean of several runs with standard deviations {listed}"


def all_decimals(table: Table) -> list[int]:
    return [decimals([line.cells[k] for line in table.lines]) for k in range(len(table.columns))]


def decimals(cells: Sequence[Cell]) -> int:
    """Decimals of a column: three; one for numbers from 10, four if all are small."""
    largest = max((abs(cell.mean) for cell in cells if cell.mean == cell.mean), default=0.0)  # NaN does not apply
    return 1 if largest >= 10 else 3 if largest >= 0.05 else 4


def minus(number: str) -> str:
    """Typographic numbers: a minus sign instead of a hyphen, none before 0, and a dash for undefined values."""
    if number == "nan":
        return "–"
    number = number.replace("inf", "∞")
    return number.replace("-", "−" if any(digit in "123456789∞" for digit in number) else "")


SMALL = "opacity: .7; font-size: .85em"


def table_html(table: Table) -> str:
    """The table as HTML, with facts about the run above and the legend below."""
    digits = all_decimals(table)
    head = "".join(f"<th>{escape(column.title)} {ARROWS[column.direction]}</th>" for column in table.columns)
    rows = [row(line, digits) for line in table.methods]
    if table.controls:
        rows += [f'<tr><td colspan="{len(table.columns) + 1}"><i>controls</i></td></tr>']
        rows += [row(line, digits) for line in table.controls]
    above, below = ("<br>".join(map(escape, lines)) for lines in (facts(table), legend(table)))
    return (
        f'<div><p style="{SMALL}">{above}</p><table><thead><tr><th>method</th>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table><p style="{SMALL}">{below}</p></div>'
    )


def row(line: Line, digits: Sequence[int]) -> str:
    cells = "".join(cell_html(cell, d) for cell, d in zip(line.cells, digits, strict=True))
    return f"<tr><td>{escape(line.title)}</td>{cells}</tr>"


def cell_html(cell: Cell, digits: int) -> str:
    mean, low, high = (minus(f"{value:.{digits}f}") for value in (cell.mean, cell.low, cell.high))
    shown = f"<b>{mean}</b>" if cell.best else mean + (DAGGER if cell.level else "")
    return f'<td>{shown} <span style="{SMALL}">[{low}, {high}]</span></td>'
