"""The table of methods: a line for each, from plain rows."""

import io
import re

from rich.console import Console

from tokenlight.cli.catalog import LEGEND, MethodRow, method_table

ROWS = [
    MethodRow("attcat", "AttCAT", "CAT, weighted.", "Qiang et al. 2022, eq. 11", True, True, "forward + backward"),
    MethodRow("rollout", "Rollout", "Attention, multiplied.", "Abnar & Zuidema 2020", False, False, "forward"),
]


def lines(width: int) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(method_table(ROWS, width))
    return [re.split(" {2,}", line.strip()) for line in console.export_text().splitlines()]


def test_a_method_is_a_line():
    assert lines(400) == [
        ["method", "what it does", "signed", "passes", "papers call it", "paper", "class-specific"],
        ["attcat", "CAT, weighted.", "yes", "forward + backward", "AttCAT", "Qiang et al. 2022, eq. 11", "yes"],
        ["rollout", "Attention, multiplied.", "no", "forward", "Rollout", "Abnar & Zuidema 2020", "no"],
        [LEGEND],
    ]


def test_a_narrow_terminal_shows_what_a_method_does():
    shown = lines(80)
    assert shown[:5] == [
        ["method", "what it does"],
        ["attcat", "CAT, weighted."],
        ["forward + backward; signed"],
        ["rollout", "Attention, multiplied."],
        ["forward; not signed"],
    ]
    assert " ".join(line for (line,) in shown[5:]) == LEGEND
