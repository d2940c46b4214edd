"""Which kind of data a file holds, which files a folder has, and how many rows there are."""

import json
from pathlib import Path

from tokenlight.data.examples import MASK_MARK
from tokenlight.foundation.extras import from_extra
from tokenlight.foundation.files import open_text

KINDS = {  # file name ending -> kind
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".conllu": "conllu",
}
ENDINGS = (*KINDS, ".json")
LINES = ("text", "tsv", "jsonl", "lgd")  # kinds in which a row is a line
UTF16 = (b"\xff\xfe", b"\xfe\xff")
PREVIEW = 1 << 16  # characters
BLOCK = 1 << 22  # bytes


def guess_kind(path: Path) -> str:
    """The kind of a file by its name, and by its first lines where the name leaves it open."""
    start = first_characters(path)
    if path.suffix == ".json":
        first_line = start.partition("\n")[0]
        return "squad" if '"data"' in start[:PREVIEW] and not is_record(first_line) else "jsonl"
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(ENDINGS)}; or say which kind it is (--kind)")
    columns = start.partition("\n")[0].split("\t")
    return "lgd" if kind == "tsv" and len(columns) == 5 and MASK_MARK in columns[2] else kind


def first_characters(path: Path) -> str:
    """Behind blanks."""
    with open_text(path, "replace") as file:
        return file.read(PREVIEW).lstrip()


def is_record(line: str) -> bool:
    """Whether a line is a JSON-lines record of its own, and not a whole SQuAD file."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return line.startswith("[")
    return not (isinstance(value, dict) and isinstance(value.get("data"), list))


def files_in(folder: Path) -> tuple[Path, ...]:
    """Those of a known kind, by name; other files would be left out silently, so they are refused."""
    shown = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    files = [path for path in shown if path.is_file()]
    if strange := [path for path in shown if path.is_dir() and path.suffix.lower() in ENDINGS]:
        raise ValueError(
            f"{strange[0]} is a folder, though it is named like a file of data: expected files. Name that folder as "
            "the source, or move it somewhere else"
        )
    endings = sorted({path.suffix.lower() for path in files})
    if len(endings) != 1 or endings[0] not in ENDINGS:
        found = ", ".join(endings) or "nothing"
        raise ValueError(f"{folder}: expected files of one kind ({', '.join(ENDINGS)}), found {found}")
    return tuple(files)


def refuse_utf16(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) in UTF16:
            raise ValueError(f"{path}: expected UTF-8 text, found UTF-16: convert it first")


def has_lines(path: Path, kind: str) -> bool:
    """Whether rows, or lines of rows, end where lines do; a JSON array is a kind of its own in this."""
    is_array = kind == "jsonl" and first_characters(path).startswith("[")
    return kind in (*LINES, "conllu") and not is_array


def quick_count(path: Path, kind: str) -> int | None:
    """How many rows a file has, where a row is a line or the file says it; None where it has to be read."""
    if kind == "parquet":
        with from_extra("bench", "reading Parquet"):
            import pyarrow.parquet
        return pyarrow.parquet.read_metadata(path).num_rows
    if kind in LINES and has_lines(path, kind):
        return count_lines(path) - (kind == "tsv")
    return None


def count_lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")
