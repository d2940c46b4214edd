"""What reading a corpus needs beyond the readers themselves: folders, bad values, how many rows there are."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenlight.data.examples import TableRow
from tokenlight.data.row_readers import KINDS, READERS, Rows
from tokenlight.foundation.extras import from_extra
from tokenlight.text.rows import check_text

ENDINGS = (*KINDS, ".json")
LINES = ("text", "tsv", "jsonl")  # kinds in which a row is a line
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BLOCK = 1 << 22  # bytes
FIELD = 1 << 30  # characters that a field of a CSV file may have; Python's own limit is shorter than a long text


def files_in(folder: Path) -> tuple[Path, ...]:
    """Those of a known kind, by name; other files would be left out silently, so they are refused."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] not in "._")
    endings = sorted({path.suffix.lower() for path in files})
    if len(endings) != 1 or endings[0] not in ENDINGS:
        found = ", ".join(endings) or "nothing"
        raise ValueError(f"{folder}: expected files of one kind ({', '.join(ENDINGS)}), found {found}")
    return tuple(files)


def memory_rows(data: Sequence[Any]) -> Rows:
    """Texts, pairs, or rows with columns."""
    for number, one in enumerate(data, 1):
        if isinstance(one, Mapping):
            values: Mapping[str, object] = one
        elif isinstance(one, tuple) and len(one) == 2:
            values = {"text_a": one[0], "text_b": one[1]}
        else:
            values = {"text": one}
        yield TableRow(str(number), f"text {number}", values)


def text_problem(text: object) -> str | None:
    """Why this cannot be explained."""
    if isinstance(text, str) and any("\udc80" <= character <= "\udcff" for character in text):
        return "holds bytes that are not UTF-8"
    if isinstance(text, str) and "\0" in text:
        return "holds a NUL character, as no text does"
    try:
        check_text(text)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def value_problem(value: object) -> str | None:
    if value is None or value == "":
        return "no value"
    whole = isinstance(value, float) and value.is_integer()  # whole numbers with gaps are stored as floats
    good = isinstance(value, str | int) and not isinstance(value, bool)
    return None if good or whole else f"expected a name or a whole number, found {value!r}"


def refuse_utf16(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) in UTF16:
            raise ValueError(f"{path}: expected UTF-8 text, found UTF-16: convert it first")


def count_rows(path: Path, kind: str) -> int:
    """Quickly where a row is a line or the file says it; otherwise by reading."""
    if kind == "parquet":
        with from_extra("bench", "reading Parquet"):
            import pyarrow.parquet
        return pyarrow.parquet.read_metadata(path).num_rows
    if kind in LINES and not (kind == "jsonl" and starts_with_bracket(path)):
        return count_lines(path) - (kind == "tsv")
    with large_fields():
        return sum(1 for _ in READERS[kind](path, "surrogateescape"))


def starts_with_bracket(path: Path) -> bool:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.read(1 << 16).lstrip().startswith("[")


def count_lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")


@contextmanager
def large_fields() -> Iterator[None]:
    """Inside, fields of CSV files may be as long as texts are."""
    before = csv.field_size_limit(FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)
