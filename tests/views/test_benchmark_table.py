"""Benchmark tables in the terminal, as Markdown, LaTeX and CSV, and the HTML report with its charts."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.bench.known_runs import write_four_methods
from tokenlight.bench.tabulate import read_table
from tokenlight.results.tables import Cell, Column, Panel
from tokenlight.views.benchmark_report import report, write_views
from tokenlight.views.benchmark_table import decimals, escape_markdown, minus, show_table
from tokenlight.views.curve_chart import chart, nice_range, number, styles_of


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_four_methods(tmp_path / "run")


def terminal_output(folder: Path, **settings: Any) -> str:
    file = io.StringIO()
    show_table(read_table(folder), Console(file=file, **settings))
    return file.getvalue()


def test_terminal_table(folder):
    plain = terminal_output(folder, width=200)
    assert "a/model on data/dev.tsv: 200 examples, protocol clean" in plain
    assert re.search(r"good +0\.\d{3}\* \[0\.\d{3}, 0\.\d{3}\] +−0\.\d{3}\* \[−0", plain)
    assert re.search(r"similar +0\.\d{3}† ", plain)
    assert "AOPC ↑" in plain
    assert "LOdds ↓" in plain
    assert plain.index("controls") < plain.index("random ") < plain.index("inverse of good")
    colored = terminal_output(folder, width=200, force_terminal=True, color_system="truecolor")
    assert "*" not in colored
    assert "\x1b[1;32m0." in colored
    narrow = terminal_output(folder, width=60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert "…" not in terminal_output(folder, width=44)  # wrapped, not truncated


def test_markdown_table(folder):
    lines = read_table(folder).to_markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows[0] == "| method | AOPC ↑ | LOdds ↓ |"
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert rows[2].startswith(r"| Similar \| to good | 0.")
    assert rows[3].startswith(r"| Good & \<b\>\_new\_\</b\> | **0.")
    assert "†" in rows[2]
    assert rows[5] == "| *controls* | | |"


def test_latex_table(folder):
    text = read_table(folder).to_latex()
    assert r"\toprule" in text
    assert text.count(r"\midrule") == 2
    assert r"Good \& <b>\_new\_</b> & $\mathbf{0." in text
    assert r"$^\dagger$ {\scriptsize[" in text
    assert r"AOPC $\uparrow$ & LOdds $\downarrow$ \\" in text
    assert text.count("{") == text.count("}")
    assert r"95 \%" in text


def test_method_names_with_link_syntax_are_escaped_in_markdown():
    assert escape_markdown("![a](b)|[c](d) [0, 1]") == "![a]\\(b)\\|[c]\\(d) [0, 1]"


def test_csv_table(folder):
    rows = list(csv.DictReader(io.StringIO(read_table(folder).to_csv())))
    assert len(rows) == 5 * 2
    first = next(row for row in rows if row["method"] == "good" and row["metric"] == "aopc")
    assert float(first["mean"]) == read_table(folder).cell("good", "aopc").mean
    assert (first["best"], first["not_distinguishable"], first["control"], first["examples"]) == ("1", "0", "0", "200")


def test_the_report_is_one_escaped_html_page_without_external_assets(folder):
    page = report(read_table(folder), [])
    assert "<b>_new_</b>" not in page
    assert "Good &amp; &lt;b&gt;" in page
    assert page.count("<svg viewBox") == 2 + 5  # panels, and the lines of the legend
    assert page.count("<polygon") == 2 * 5
    for reference in ("<script", "http://", "https://", "<link", "@import", "url("):
        assert reference not in page
    assert len(re.findall(r"<tbody>", page)) == 2
    assert {path.name for path in write_views(read_table(folder), folder, [])} <= {
        path.name for path in folder.iterdir()
    }


def test_decimals_and_ticks(folder):
    cell = read_table(folder).cell("good", "aopc")
    assert decimals([cell]) == 3
    low, high, ticks = nice_range(-0.03, 0.71)
    assert (low, high) == pytest.approx((-0.2, 0.8))
    assert [number(tick, ticks) for tick in ticks] == ["−0.2", "0.0", "0.2", "0.4", "0.6", "0.8"]
    low, high, ticks = nice_range(1.0, 1.0)
    assert low < 1 < high
    low, high, ticks = nice_range(0.0, 1.2)
    assert [number(tick, ticks) for tick in ticks] == ["0.00", "0.25", "0.50", "0.75", "1.00", "1.25"]


def test_every_method_and_control_has_its_own_line_style():
    styles = styles_of([f"m{i}" for i in range(12)], ["random", "erasure", "inverse"])
    assert len(set(styles.values())) == 15


def test_nan_and_infinities_are_shown_as_symbols():
    assert [minus(f"{number:.3f}") for number in (float("nan"), float("inf"), float("-inf"))] == ["–", "∞", "−∞"]


def test_a_chart_omits_interval_limits_that_are_not_finite():
    nan, inf = float("nan"), float("inf")
    cells = (Cell(0.0, 0.0, 0.0), Cell(0.2, 0.1, 0.3), Cell(0.3, nan, nan), Cell(0.4, 0.2, inf))
    panel = Panel(Column("aopc", "AOPC", "higher"), "removed", "p", (0.0, 1.0, 2.0, 3.0), {"one": cells})
    svg = chart(panel, styles_of(["one"], []), {"one": "One"})
    assert "nan" not in svg
    assert "inf" not in svg
    (shade,) = re.findall('<polygon points="([^"]*)"', svg)
    assert len(shade.split()) == 4  # two points, above and below
