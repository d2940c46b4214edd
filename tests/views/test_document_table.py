"""Which passage made it say this sentence? The same numbers in the terminal, as HTML, as LaTeX and as a figure."""

import io
import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from tokenlight.results.units import DocumentTable, Passage
from tokenlight.views.document_table import show_table, strengths
from tokenlight.views.drawing import SUPPORT, css, shade

SCORES = [[0.5, 4.0, -1.25], [-2.0, 0.25, 30.0]]
HOSTILE = "<b>x</b> & \x1b[31m $100_{2}"


@pytest.fixture
def table() -> DocumentTable:
    documents = [
        Passage("Boats stay in the harbour.", -1.5, (0, 1), 0, (0, 26), "Harbour"),
        Passage("It opened in 1992.", 4.25, (2, 3), 0, (27, 45), "Museum"),
        Passage("", 28.75, (), None, (0, 0), "the answer itself"),
    ]
    parts = [Passage("It opened then.", 3.25, (), None, (0, 15)), Passage("Boats stay.", 28.25, (), None, (16, 27))]
    return DocumentTable(parts, documents, torch.tensor(SCORES))


def printed(table: DocumentTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_table(table, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_strongest_document_has_the_full_shade_and_other_passages_have_none(table):
    assert strengths(table) == [[0.125, 1.0, 0.0], [-0.5, 0.0625, 0.0]]


def test_wide_terminals_show_a_table_and_narrow_ones_the_strongest_documents(table):
    rows = [line.split() for line in printed(table, 80).splitlines()]
    assert [*["It", "opened", "then."], "+0.5", "+4", "−1.25"] == rows[-2][1:]
    assert rows[-1][-3:] == ["−2", "+0.25", "+30"]
    lines = printed(table, 40).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert lines[1].split()[:2] == ["+4", "Museum:"]
    assert lines[-1].strip() == "the answer itself +30"


def test_html_has_every_number_and_the_shades(table):
    page = table.to_html()
    cells = re.findall(r'<td class="([^"]*)"(?: style="background:(#\w+)[^"]*")?>([^<]*)</td>', page)
    assert [number for _, _, number in cells] == ["+0.5", "+4", "−1.25", "−2", "+0.25", "+30"]
    assert cells[1][1] == css(SUPPORT)
    assert cells[3][1] == css(shade(-0.5))
    assert cells[2][1] == cells[5][1] == ""
    assert table._repr_html_().count("<td") == 6


def test_text_is_escaped_in_html_and_latex(table):
    hostile = replace(
        table,
        parts=[replace(part, text=HOSTILE) for part in table.parts],
        documents=[replace(source, name=HOSTILE, text=HOSTILE) for source in table.documents],
    )
    assert "<b>" not in hostile.to_html()
    assert "\x1b" not in printed(hostile, 80) + printed(hostile, 30)
    latex = hostile.to_latex()
    assert r"\$100\_\{2\}" in latex
    assert latex.count(r"\cellcolor") == 4


def test_latex_has_a_row_for_each_sentence(table):
    rows = [line for line in table.to_latex().splitlines() if line.startswith(("It opened", "Boats"))]
    assert rows[0].endswith(r"\cellcolor{tokenlightsupport!100}\textcolor{white}{$+4$} & $-1.25$ \\")
    assert [row.count("&") for row in rows] == [3, 3]


def test_the_figure_has_the_same_numbers(table, tmp_path):
    table.save_figure(tmp_path / "sources.svg")
    table.save_figure(tmp_path / "sources.png")
    assert (tmp_path / "sources.svg").stat().st_size > 1000
    assert (tmp_path / "sources.png").read_bytes().startswith(b"\x89PNG")
    from tokenlight.views.document_table import document_figure

    (axes,) = document_figure(table).axes
    written = [text.get_text().replace("\n", " ") for text in axes.texts]
    assert written == [
        *("It opened then.", "+0.5", "+4", "−1.25", "Boats stay.", "−2", "+0.25", "+30"),
        *("Harbour", "Museum", "the answer itself"),
    ]


def test_dollar_signs_in_a_figure_are_not_formulas(table, tmp_path):
    from tokenlight.views.document_table import document_figure
    from tokenlight.views.drawing import save

    figure = document_figure(replace(table, parts=[replace(table.parts[0], text="It cost $5 or $6."), table.parts[1]]))
    save(figure, tmp_path / "sources.png")
    drawn = figure.axes[0].texts[0]
    assert drawn.get_text() == "It cost $5 or $6."
    assert not drawn.get_parse_math()
