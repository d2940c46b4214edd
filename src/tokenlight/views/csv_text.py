"""Comma-separated values as one text."""

import csv
import io
from collections.abc import Iterable

LINE_END = "\r\n"  # used for writing, because the csv module quotes values with a character of it


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """CSV with line feeds. Values with a carriage return are quoted, since readers would end the row there."""
    lines: list[str] = []
    for row in rows:
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator=LINE_END).writerow(row)
        lines.append(file.getvalue().removesuffix(LINE_END) + "\n")
    return "".join(lines)
