"""The table of methods: a line for each, from plain rows."""

import io
import re

from rich.console import Console

from tokenlight.views.method_table import MethodRow, method_table

ROWS = [
    MethodRow("attcat", "AttCAT", "Qiang et al. 2022, eq. 11", True, True, "forward + backward"),
    MethodRow("rollout", "Rollout", "Abnar & Zuidema 2020", False, False, "forward"),
]


def test_a_method_is_a_line():
    console = Console(file=io.StringIO(), width=400, record=True)
    console.print(method_table(ROWS))
    lines = [re.split(" {2,}", line.strip()) for line in console.export_text().splitlines()]
    assert lines == [
        ["method", "papers call it", "paper", "signed", "class-specific", "passes"],
        ["attcat", "AttCAT", "Qiang et al. 2022, eq. 11", "yes", "yes", "forward + backward"],
        ["rollout", "Rollout", "Abnar & Zuidema 2020", "no", "no", "forward"],
    ]
