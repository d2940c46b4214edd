"""Comma-separated values as one text."""

import csv
import io
from collections.abc import Iterable

LINE_END = "\r\n"  # while it is written: the csv module quotes what holds a character of it


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Lines that end with a line feed. A value with a carriage return is quoted: readers would end the row there."""
    lines: list[str] = []
    for row in rows:
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator=LINE_END).writerow(row)
        lines.append(file.getvalue().removesuffix(LINE_END) + "\n")
    return "".join(lines)
