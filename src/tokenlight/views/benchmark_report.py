"""One self-contained page for a run: the table, the curves, heatmaps of several methods side by side, all settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from tokenlight.foundation.files import write_whole
from tokenlight.results.explanation import Explanation
from tokenlight.results.table import Line, Table
from tokenlight.views import html
from tokenlight.views.benchmark_table import (
    ARROWS,
    DAGGER,
    all_decimals,
    comma_separated,
    facts,
    latex,
    legend,
    markdown,
    minus,
)
from tokenlight.views.curve_chart import chart, styles_of

STYLE = """
body { max-width: 72rem; font: 15px/1.5 system-ui, sans-serif; color: #1b1f24 }
h2 { font: 600 16px/1.3 system-ui, sans-serif; margin: 0 0 .6rem }
section { overflow-x: auto }
.facts { color: #57606a; margin: 0 0 1.2rem; padding: 0; list-style: none; font-size: 14px }
table.results { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; white-space: nowrap }
table.results th { font-weight: 600; border-bottom: 1.5px solid #1b1f24; border-top: 2px solid #1b1f24 }
table.results th, table.results td { padding: .28rem .55rem; text-align: right }
table.results th:first-child, table.results td:first-child { text-align: left; padding-left: .2rem }
table.results tbody + tbody { border-top: 1px solid #8c959f; color: #57606a }
table.results tbody:last-child { border-bottom: 2px solid #1b1f24 }
table.results small { color: #6e7781; font-size: 12px }
table.results sup { display: inline-block; width: .75em; line-height: 0; text-align: left }
table.results i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .5rem }
.keys { color: #57606a; font-size: 13px; margin: .7rem 0 0 }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: .4rem 1.2rem }
.charts svg { width: 100%; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: #57606a }
svg .head { font-size: 13px; font-weight: 600; fill: #1b1f24 }
svg .quiet { font-size: 11px; font-weight: 400; fill: #57606a }
svg .mid { text-anchor: middle }
svg .end { text-anchor: end }
svg .grid { stroke: #eaeef2 }
svg .axis { stroke: #57606a }
svg .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round }
.lines { display: flex; flex-wrap: wrap; gap: .1rem 1.3rem; font-size: 13px; margin: .5rem 0 0 }
.lines svg { width: 30px; height: 10px; margin-right: .4rem; vertical-align: middle }
.examples > div { border-top: 1px solid #eaeef2; padding: .6rem 0 .3rem }
.examples > div:first-of-type { border: 0 }
.examples .note { font-size: 13px; line-height: 1.4 }
details { font-size: 13px } pre { white-space: pre-wrap; overflow-wrap: anywhere }
"""


def write_views(table: Table, folder: Path, examples: Sequence[Sequence[Explanation]]) -> list[Path]:
    """Into a run's folder: table.md, table.tex, table.csv, report.html, bad_rows.jsonl; each whole or not at all."""
    bad = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in table.run.bad)
    documents = {
        "table.md": markdown(table),
        "table.tex": latex(table),
        "table.csv": comma_separated(table),
        "report.html": report(table, examples),
        "bad_rows.jsonl": bad,
    }
    for name, text in documents.items():
        write_whole(folder / name, text)
    return [folder / name for name in documents]


def report(table: Table, examples: Sequence[Sequence[Explanation]]) -> str:
    """The page."""
    styles = styles_of([line.label for line in table.methods], [line.label for line in table.controls])
    title = "Which explanation can you trust?"
    parts = [
        f"<section>{results_table(table, styles)}{keys(table)}</section>",
        charts(table, styles),
        heatmaps(table, examples),
        settings(table),
    ]
    said = "".join(f"<li>{escape(line)}</li>" for line in facts(table))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{html.STYLE}{html.PAGE_STYLE}{STYLE}</style></head>\n"
        f'<body><h1>{title}</h1><ul class="facts">{said}</ul>\n'
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def results_table(table: Table, styles: Mapping[str, tuple[str, str]]) -> str:
    head = "".join(f"<th>{escape(column.title)} {ARROWS[column.direction]}</th>" for column in table.columns)
    digits = all_decimals(table)
    groups = "".join(
        f"<tbody>{''.join(results_row(line, digits, styles[line.label][0]) for line in lines)}</tbody>"
        for lines in (table.methods, table.controls)
        if lines
    )
    return f'<table class="results"><thead><tr><th>method</th>{head}</tr></thead>{groups}</table>'


def results_row(line: Line, digits: Sequence[int], colour: str) -> str:
    cells = []
    for cell, d in zip(line.cells, digits, strict=True):
        mean, low, high = (minus(f"{value:.{d}f}") for value in (cell.mean, cell.low, cell.high))
        mean = f"<b>{mean}</b>" if cell.best else mean
        cells.append(f"<td>{mean}<sup>{DAGGER if cell.level else ''}</sup><small>[{low}, {high}]</small></td>")
    return f'<tr><td><i style="background:{colour}"></i>{escape(line.title)}</td>{"".join(cells)}</tr>'


def keys(table: Table) -> str:
    return f'<p class="keys">{escape(". ".join(legend(table)))}.</p>'


def charts(table: Table, styles: Mapping[str, tuple[str, str]]) -> str:
    if not table.panels:
        return ""
    titles = {line.label: line.title for line in table.lines}
    drawn = "".join(chart(panel, styles, titles) for panel in table.panels)
    lines = "".join(
        f'<span><svg viewBox="0 0 30 10"><line x1="0" x2="30" y1="5" y2="5" stroke="{colour}" stroke-width="2"'
        f"{f' stroke-dasharray={chr(34)}{dashes}{chr(34)}' if dashes else ''}/></svg>{escape(titles[label])}</span>"
        for label, (colour, dashes) in styles.items()
    )
    return (
        f'<section><h2>Curves</h2><div class="charts">{drawn}</div><div class="lines">{lines}</div>'
        '<p class="keys">p is the probability of what was explained on the whole input, p_k on the changed one. '
        "Lines are means over the examples, shades their 95 % bootstrap intervals.</p></section>"
    )


def heatmaps(table: Table, examples: Sequence[Sequence[Explanation]]) -> str:
    if not examples:
        return ""
    titles = {line.label: line.title for line in table.lines}
    groups = [[replace(e, method=titles.get(e.method, e.method)) for e in group] for group in examples]
    bodies = "".join(f"<div>{html.body(group)}</div>" for group in groups)
    return f'<section class="examples"><h2>Examples</h2>{html.legend()}{bodies}</section>'


def settings(table: Table) -> str:
    text = json.dumps(table.run.settings, ensure_ascii=False, indent=1)
    return f"<section><details><summary>All settings of this run</summary><pre>{escape(text)}</pre></details></section>"
