"""One standalone page for a benchmark run: table, curves, heatmaps, settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from tokenlight.common.files import write_atomically
from tokenlight.results.explanation import Explanation
from tokenlight.results.tables import Column, Line, Table
from tokenlight.views import html
from tokenlight.views.benchmark_table import (
    ARROWS,
    DAGGER,
    INTERVALS,
    all_decimals,
    comma_separated,
    facts,
    latex,
    legend,
    markdown,
    minus,
)
from tokenlight.views.curve_chart import CHART_STYLE, LineStyle, chart, colored, sample, styles_of
from tokenlight.views.html import document
from tokenlight.views.layout import notes_of, shared_notes

VIEWS = ("table.md", "table.tex", "table.csv", "report.html", "bad_rows.jsonl")  # files that `write_views` writes
CURVE_END_NOTE = (
    "At the right end almost all words are removed, yet the model still predicts something, even for a text of mask "
    "tokens alone. So curves may change direction there; compare the methods on the first half."
)
STYLE = f"""
body {{ max-width: 72rem }}
h2 {{ font: 600 16px/1.3 system-ui, sans-serif; margin: 0 0 .6rem }}
.facts {{ color: var(--quiet); margin: 0 0 1.2rem; padding: 0; list-style: none; font-size: 14px }}
table.results {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; white-space: nowrap }}
table.results thead th {{ font-weight: 600; border-bottom: 1.5px solid var(--ink); border-top: 2px solid var(--ink) }}
table.results th, table.results td {{ padding: .28rem .55rem; text-align: right }}
table.results th:first-child {{ text-align: left; padding-left: .2rem }}
table.results tbody th {{ font-weight: 400 }}
table.results tbody + tbody {{ border-top: 1px solid var(--faint); color: var(--quiet) }}
table.results tbody:last-child {{ border-bottom: 2px solid var(--ink) }}
table.results small {{ color: var(--faint); font-size: 12px }}
table.results sup {{ display: inline-block; width: .75em; line-height: 0; text-align: left }}
table.results i {{
  display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .5rem;
  background: var(--curve); print-color-adjust: exact; -webkit-print-color-adjust: exact
}}
.keys {{ color: var(--quiet); font-size: 13px; margin: .7rem 0 0 }}
.examples > div {{ border-top: 1px solid var(--grid); padding: .6rem 0 .3rem }}
.examples > div:first-of-type {{ border: 0 }}
details {{ font-size: 13px }} pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
@media (max-width: 40rem) {{
  table.results th, table.results td {{ padding: .28rem .35rem }}
  table.results th:first-child {{ position: sticky; left: 0; background: var(--paper) }}
  table.results tbody th {{ white-space: normal; overflow-wrap: normal; min-width: 6.5rem }}
  table.results small {{ display: block }}
}}
@media print {{ .examples {{ break-inside: auto }} .examples > div {{ break-inside: avoid }} }}
{CHART_STYLE}"""


def write_views(table: Table, folder: Path, examples: Sequence[Sequence[Explanation]]) -> list[Path]:
    """Write to a run's folder: table.md, table.tex, table.csv, report.html, bad_rows.jsonl; each atomically."""
    bad = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in table.run.bad)
    texts = (markdown(table), latex(table), comma_separated(table), report(table, examples), bad)
    documents = dict(zip(VIEWS, texts, strict=True))
    for name, text in documents.items():
        write_atomically(folder / name, text)
    return [folder / name for name in documents]


def report(table: Table, examples: Sequence[Sequence[Explanation]]) -> str:
    """The HTML page of a benchmark run."""
    styles = styles_of([line.label for line in table.methods], [line.label for line in table.controls])
    title = "Which explanation can you trust?"
    sections = [
        f"<section>{results_table(table, styles)}{keys(table)}</section>",
        charts(table, styles),
        heatmaps(table, examples),
        settings(table),
    ]
    facts_html = "".join(f"<li>{escape(line)}</li>" for line in facts(table))
    body = f'<ul class="facts">{facts_html}</ul>\n' + "\n".join(section for section in sections if section) + "\n"
    return document(title, body, html.STYLE, html.PAGE_STYLE, STYLE)


def results_table(table: Table, styles: Mapping[str, LineStyle]) -> str:
    head = "".join(f'<th scope="col">{escape(column.title)} {direction(column)}</th>' for column in table.columns)
    digits = all_decimals(table)
    groups = "".join(
        f"<tbody>{''.join(results_row(line, digits, styles[line.label]) for line in lines)}</tbody>"
        for lines in (table.methods, table.controls)
        if lines
    )
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="Methods and metrics"><table class="results">'
        f'<thead><tr><th scope="col">method</th>{head}</tr></thead>{groups}</table></div>'
    )


def direction(column: Column) -> str:
    """An arrow, with its meaning as label for screen readers."""
    return f'<span role="img" aria-label="{column.direction} is better">{ARROWS[column.direction]}</span>'


def results_row(line: Line, digits: Sequence[int], style: LineStyle) -> str:
    cells = []
    for cell, d in zip(line.cells, digits, strict=True):
        mean, low, high = (minus(f"{value:.{d}f}") for value in (cell.mean, cell.low, cell.high))
        mean = f"<b>{mean}</b>" if cell.best else mean
        cells.append(f"<td>{mean}<sup>{DAGGER if cell.level else ''}</sup><small>[{low}, {high}]</small></td>")
    return f'<tr><th scope="row"><i style="{colored(style)}"></i>{escape(line.title)}</th>{"".join(cells)}</tr>'


def keys(table: Table) -> str:
    return f'<p class="keys">{escape(". ".join(legend(table)))}.</p>'


def charts(table: Table, styles: Mapping[str, LineStyle]) -> str:
    if not table.panels:
        return ""
    titles = {line.label: line.title for line in table.lines}
    charts_html = "".join(chart(panel, styles, titles) for panel in table.panels)
    lines = "".join(f"<span>{sample(style)}{escape(titles[label])}</span>" for label, style in styles.items())
    return (
        f'<section class="curves"><h2>Curves</h2><div class="charts">{charts_html}</div>'
        f'<div class="lines">{lines}</div>'
        '<p class="keys">p is the probability of the target on the whole input, p_k on the changed one. '
        f"Lines are means over texts, shaded areas their 95 % intervals at each point, {INTERVALS}. "
        f"{CURVE_END_NOTE}</p>"
        "</section>"
    )


def heatmaps(table: Table, examples: Sequence[Sequence[Explanation]]) -> str:
    if not examples:
        return ""
    titles = {line.label: line.title for line in table.lines}
    groups = [
        [
            replace(e, method=titles.get(e.method, e.method), method_title="", method_caution="", notes=notes_of(e))
            for e in group
        ]
        for group in examples
    ]
    shared = shared_notes(groups)
    bodies = "".join(f"<div>{html.body(group, shared)}</div>" for group in groups)
    return f'<section class="examples"><h2>Examples</h2>{html.legend()}{html.remarks(shared)}{bodies}</section>'


def settings(table: Table) -> str:
    text = json.dumps(table.run.settings, ensure_ascii=False, indent=1)
    return f"<section><details><summary>All settings of this run</summary><pre>{escape(text)}</pre></details></section>"
