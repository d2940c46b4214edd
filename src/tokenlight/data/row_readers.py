"""Rows of values from files of many kinds and from Hugging Face datasets, one at a time.

`errors` says what becomes of bytes that are not UTF-8, as for `open`: by default the whole file is refused.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenlight.data.examples import MASK_MARK, BadRow, TableRow
from tokenlight.foundation.extras import from_extra
from tokenlight.syntax.parses import array_items

Rows = Iterator[TableRow | BadRow]
KINDS = {  # file name ending -> kind
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".conllu": "conllu",
}
PARQUET_BATCH = 1024  # rows in memory
PREVIEW = 1 << 16  # characters


def guess_kind(path: Path) -> str:
    """The kind of a file by its name, and by its first lines where the name leaves it open."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        start = file.read(PREVIEW).lstrip()
    if path.suffix == ".json":
        first_line = start.partition("\n")[0]
        return "squad" if '"data"' in start[:PREVIEW] and not is_record(first_line) else "jsonl"
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        endings = ", ".join([*KINDS, ".json"])
        raise ValueError(f"{path}: expected a file that ends in {endings}; name its kind otherwise")
    columns = start.partition("\n")[0].split("\t")
    return "lgd" if kind == "tsv" and len(columns) == 5 and MASK_MARK in columns[2] else kind


def is_record(line: str) -> bool:
    """Whether a line is a JSON-lines record of its own, and not a whole SQuAD file."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return line.startswith("[")
    return not (isinstance(value, dict) and isinstance(value.get("data"), list))


def read_lines(path: Path, errors: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends."""
    with path.open(encoding="utf-8-sig", errors=errors) as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text: {error}") from error


def text_rows(path: Path, errors: str = "strict") -> Rows:
    """One text a line."""
    for number, line in read_lines(path, errors):
        yield TableRow(str(number), f"{path}, line {number}", {"text": line})


def tsv_rows(path: Path, errors: str = "strict") -> Rows:
    """Columns between tabs under a header; a quotation mark is a character like any other, except in `unquote`."""
    header: list[str] = []
    for number, line in read_lines(path, errors):
        fields = [unquote(field) for field in line.split("\t")]
        where = f"{path}, line {number}"
        if not header:
            header = check_header(fields, where)
        elif len(fields) != len(header):
            yield BadRow(where, f"expected {len(header)} columns, found {len(fields)}")
        else:
            yield TableRow(str(number), where, dict(zip(header, fields, strict=True)))


def unquote(field: str) -> str:
    """Some writers of tables quote a field that holds quotation marks, and double those; that is seen and undone."""
    inner = field[1:-1]
    quoted = field[:1] == field[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else field


def csv_rows(path: Path, errors: str = "strict") -> Rows:
    """Comma-separated values under a header, quoted where needed."""
    with path.open(encoding="utf-8-sig", errors=errors, newline="") as file:
        reader = csv.reader(file, strict=True)
        header: list[str] = []
        try:
            for fields in reader:
                where = f"{path}, line {reader.line_num}"
                if not header:
                    header = check_header(fields, where)
                elif len(fields) != len(header):
                    yield BadRow(where, f"expected {len(header)} columns, found {len(fields)}")
                else:
                    yield TableRow(str(reader.line_num), where, dict(zip(header, fields, strict=True)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, line {reader.line_num}: expected comma-separated UTF-8 text: {error}") from error


def check_header(fields: list[str], where: str) -> list[str]:
    if len(set(fields)) < len(fields):
        raise ValueError(f"{where}: expected a header with the names of the columns, found {fields}")
    return fields


def json_rows(path: Path, errors: str = "strict") -> Rows:
    """One JSON object a line, or one array of them."""
    with path.open(encoding="utf-8-sig", errors=errors) as file:
        start = file.read(PREVIEW)
        if start.lstrip().startswith("["):
            file.seek(0)
            while file.read(1) != "[":
                pass
            for number, (where, record) in enumerate(array_items(file, str(path)), 1):
                yield json_row(str(number), where, record)
            return
    for number, line in read_lines(path, errors):
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # also numbers and nesting that are too large to read
            yield BadRow(where, "not a JSON object")
            continue
        yield json_row(str(number), where, record)


def json_row(number: str, where: str, record: object) -> TableRow | BadRow:
    return TableRow(number, where, record) if isinstance(record, dict) else BadRow(where, "not a JSON object")


def parquet_rows(path: Path, errors: str = "strict") -> Rows:
    with from_extra("bench", "reading Parquet"):
        import pyarrow.parquet
    number = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(PARQUET_BATCH):
            for record in batch.to_pylist():
                number += 1
                yield TableRow(str(number), f"{path}, row {number}", record)


def squad_rows(path: Path, errors: str = "strict") -> Rows:
    """Questions of a SQuAD file (v1 and v2), each with its context."""
    with path.open(encoding="utf-8-sig", errors=errors) as file:
        try:
            articles = json.load(file)["data"]
            for article in articles:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        values = {"context": paragraph["context"], **question}
                        yield TableRow(str(question["id"]), f"{path}, question {question['id']}", values)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected SQuAD's data > paragraphs > context, qas > id: {error!r}") from error


def hub_rows(source: str, split: str | None) -> Rows:
    """A Hugging Face dataset, "hf:NAME" or "hf:NAME:config", read as a stream."""
    with from_extra("bench", "reading from the Hugging Face Hub"):
        import datasets  # pyright: ignore[reportMissingImports]
    name, _, config = source.removeprefix("hf:").partition(":")
    if split is None:
        found = ", ".join(datasets.get_dataset_split_names(name, config or None))
        raise ValueError(f"{source}: name one of its splits: {found}")
    stream: Any = datasets.load_dataset(name, config or None, split=split, streaming=True)
    for number, record in enumerate(stream, 1):
        yield TableRow(str(number), f"{source}, {split}, row {number}", record)


READERS = {
    "text": text_rows,
    "tsv": tsv_rows,
    "csv": csv_rows,
    "jsonl": json_rows,
    "parquet": parquet_rows,
    "squad": squad_rows,
}
