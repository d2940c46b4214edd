"""Records from files of many kinds and from Hugging Face datasets, one at a time.

`errors` says what becomes of bytes that are not UTF-8, as for `open`: by default the whole file is refused.
"""

import csv
import inspect
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import has_line_feeds, numbered_lines, open_text
from tokenlight.data.examples import MASK_MARK, BadRow, Example, TableRow
from tokenlight.data.subject_verb import AgreementCase, lgd_cases, treebank_cases
from tokenlight.heads.parses import array_items

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
        raise RefusedValue(
            f"{path}: expected a file that ends in {', '.join(ENDINGS)}; or say which kind it is (--kind)"
        )
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
        raise RefusedValue(
            f"{strange[0]} is a folder, though it is named like a file of data: expected files. Name that folder as "
            "the source, or move it somewhere else"
        )
    endings = sorted({path.suffix.lower() for path in files})
    if len(endings) != 1 or endings[0] not in ENDINGS:
        found = ", ".join(endings) or "nothing"
        raise RefusedValue(f"{folder}: expected files of one kind ({', '.join(ENDINGS)}), found {found}")
    return tuple(files)


def refuse_utf16(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) in UTF16:
            raise RefusedValue(f"{path}: expected UTF-8 text, found UTF-16: convert it first")


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


Rows = Iterator[TableRow | BadRow | Example]
PARQUET_BATCH = 1024  # rows in memory
MOST_HELD = 1000  # lines of one field of a TSV file
LONGEST_FIELD = 1 << 30  # characters in a CSV file; Python's own limit is shorter than a long text
CASE = "agreement"  # the one column of a verb with its subject
AGREEMENT = ("conllu", "lgd")  # kinds that hold nothing else


def read_lines(path: Path, errors: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends."""
    with open_text(path, errors) as file:
        try:
            yield from numbered_lines(file)
        except UnicodeDecodeError as error:
            raise RefusedValue(f"{path}: expected UTF-8 text: {error}") from error


def text_rows(path: Path, errors: str = "strict") -> Rows:
    """One text a line."""
    for number, line in read_lines(path, errors):
        yield TableRow(str(number), f"{path}, line {number}", {"text": line})


def tsv_rows(path: Path, errors: str = "strict") -> Rows:
    """Columns between tabs under a header; a quotation mark is a character like any other, except in `unquote`.

    Some writers of tables put a field with line breaks between quotation marks. Its lines are bad rows, also those with
    all columns.
    """
    header: list[str] = []
    lines = ((number, line.split("\t")) for number, line in read_lines(path, errors))
    for number, written, broken in find_broken_fields(lines):
        fields = [unquote(field) for field in written]
        where = f"{path}, line {number}"
        if not header:
            header = check_header(fields, where)
        elif broken:
            yield BadRow(where, "part of a field with line breaks between quotation marks, which CSV files may have")
        elif len(fields) != len(header):
            yield BadRow(where, f"expected {len(header)} columns, found {len(fields)}")
        else:
            yield TableRow(str(number), where, dict(zip(header, fields, strict=True)))


def find_broken_fields(lines: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str], bool]]:
    """The lines of a table under its header, and whether one holds a part of a field with line breaks.

    Such a field begins with a quotation mark at the end of a line and ends with one in a later line's first field.
    Marks may stand there by chance: the lines in between have one field, and all of them together make one row.
    """
    width = 0  # of the header
    held: list[tuple[int, list[str]]] = []  # from a mark that may begin such a field
    for number, fields in lines:
        width = width or len(fields)
        if held and (is_half_quoted(fields[0]) and fields[0].endswith('"')):
            held.append((number, fields))
            broken = width > 1 and sum(len(one) - 1 for _, one in held) == width - 1
            yield from ((*one, broken) for one in held)
            held = []
            continue
        if held and (len(fields) > 1 or len(held) == MOST_HELD):
            yield from ((*one, False) for one in held)
            held = []
        if held or (is_half_quoted(fields[-1]) and fields[-1].startswith('"')):
            held.append((number, fields))
        else:
            yield number, fields, False
    yield from ((*one, False) for one in held)


def is_half_quoted(field: str) -> bool:
    return field.count('"') % 2 == 1


def unquote(field: str) -> str:
    """Some writers of tables quote a field that holds quotation marks, and double those; that is seen and undone."""
    inner = field[1:-1]
    quoted = field[:1] == field[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else field


def csv_rows(path: Path, errors: str = "strict") -> Rows:
    """Comma-separated values under a header, quoted where needed.

    Where a quotation mark is not closed, the record ends at a later row's mark or nowhere: only its first line is bad,
    and the next record begins on its second line.
    """
    ends = "\n" if has_line_feeds(path) else ""  # "": carriage returns alone end lines, as on old Macs
    with large_fields(), path.open(encoding="utf-8-sig", errors=errors, newline=ends) as file:
        lines = RecordLines(file)
        reader = csv.reader(lines, strict=True)
        header: list[str] = []
        while True:
            lines.begin_record()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except (csv.Error, UnicodeDecodeError) as error:
                if isinstance(error, UnicodeDecodeError) or not header:
                    raise RefusedValue(
                        f"{path}, line {lines.number}: expected comma-separated UTF-8 text: {error}"
                    ) from error
                lines.return_all_but_first()
                lone = "new-line character" in str(error)  # what it says of carriage returns
                reason = "a carriage return outside quotation marks" if lone else str(error)
                yield BadRow(f"{path}, line {lines.number}", f"expected comma-separated values: {reason}")
                continue
            # A mark that is not closed hides the commas after it, up to a later row's mark, which may bring others.
            if header and len(fields) != len(header):
                lines.return_all_but_first()
            where = f"{path}, line {lines.number}"
            if not header:
                header = check_header(fields, where)
            elif len(fields) != len(header):
                yield BadRow(where, f"expected {len(header)} columns, found {len(fields)}")
            else:
                yield TableRow(str(lines.number), where, dict(zip(header, fields, strict=True)))


class RecordLines:
    """The lines of a file, of which those after the first line of a record can be read again."""

    def __init__(self, file: Iterator[str]) -> None:
        self.file: Iterator[str] = file
        self.number: int = 0  # of the line that was read last
        self.record: list[str] = []
        self.returned: deque[str] = deque()

    def __iter__(self) -> "RecordLines":
        return self

    def __next__(self) -> str:
        line = self.returned.popleft() if self.returned else next(self.file)
        self.record.append(line)
        self.number += 1
        return line

    def begin_record(self) -> None:
        self.record = []

    def return_all_but_first(self) -> None:
        later = self.record[1:]
        self.returned.extendleft(reversed(later))
        self.number -= len(later)


@contextmanager
def large_fields() -> Iterator[None]:
    """Inside, fields of CSV files may be as long as texts are."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def check_header(fields: list[str], where: str) -> list[str]:
    if len(set(fields)) < len(fields):
        raise RefusedValue(f"{where}: expected a header with the names of the columns, found {fields}")
    return fields


def json_rows(path: Path, errors: str = "strict") -> Rows:
    """One JSON object a line, or one array of them."""
    with open_text(path, errors) as file:
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
    """A value that Python cannot hold, such as a date far in the future, makes its own row bad."""
    with from_extra("bench", "reading Parquet"):
        import pyarrow.parquet
    number = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(PARQUET_BATCH):
            try:
                records = batch.to_pylist()
            except (ValueError, OverflowError, pyarrow.ArrowException):
                records = records_of_cells(batch, errors)
            for record in records:
                number += 1
                where = f"{path}, row {number}"
                yield BadRow(where, record) if isinstance(record, str) else TableRow(str(number), where, record)


def records_of_cells(batch: Any, errors: str) -> Iterator[dict[str, object] | str]:
    """The rows of a Parquet batch, read cell by cell; the reason in place of a row that has a cell without a value."""
    for i in range(batch.num_rows):
        record: dict[str, object] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                record[name] = read_cell(column[i], errors)
            except Exception as error:  # whatever the conversion raises, the cell is at fault
                yield f"the column {name!r} cannot be read: {error}"
                break
        else:
            yield record


def read_cell(cell: Any, errors: str) -> object:
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        if not hasattr(cell, "as_buffer"):  # strings inside a list or a structure
            raise
        return cell.as_buffer().to_pybytes().decode("utf-8", errors)


def squad_rows(path: Path, errors: str = "strict") -> Rows:
    """Questions of a SQuAD file (v1 and v2), each with its context."""
    with open_text(path, errors) as file:
        try:
            articles = json.load(file)["data"]
            for article in articles:
                for paragraph in article["paragraphs"]:
                    for number, question in enumerate(paragraph["qas"], 1):
                        if not isinstance(question, dict) or "id" not in question:
                            yield BadRow(f"{path}, question {number} of a paragraph", "expected a question with an id")
                            continue
                        values = {"context": paragraph["context"], **question}
                        yield TableRow(str(question["id"]), f"{path}, question {question['id']}", values)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RefusedValue(f"{path}: expected SQuAD's data > paragraphs > context, qas > id: {error!r}") from error


def hub_rows(source: str, split: str | None) -> Rows:
    """A Hugging Face dataset, "hf:NAME" or "hf:NAME:config", read as a stream."""
    for number, record in enumerate(open_stream(source, split), 1):
        yield TableRow(str(number), f"{source}, {split}, row {number}", record)


def count_hub_rows(source: str, split: str | None) -> int:
    """How many rows a split of a Hugging Face dataset has: as the Hub says, or else by reading it."""
    stream = open_stream(source, split)
    splits = getattr(getattr(stream, "info", None), "splits", None) or {}
    known = getattr(splits.get(split), "num_examples", None)
    return known if known else sum(1 for _ in stream)


def open_stream(source: str, split: str | None) -> Any:
    """A split of a Hugging Face dataset, "hf:NAME" or "hf:NAME:config", as an iterable of records."""
    with from_extra("bench", "reading from the Hugging Face Hub"):
        import datasets  # pyright: ignore[reportMissingImports]
    name, _, config = source.removeprefix("hf:").partition(":")
    if split is None:
        found = ", ".join(datasets.get_dataset_split_names(name, config or None, **no_scripts(datasets)))
        raise RefusedValue(f"{source}: name one of its splits: {found}")
    return datasets.load_dataset(name, config or None, split=split, streaming=True, **no_scripts(datasets))


def no_scripts(datasets: Any) -> dict[str, bool]:
    """Settings under which a dataset's own Python code does not run: versions before 4 ask on standard input."""
    asks = "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters
    return {"trust_remote_code": False} if asks else {}


def memory_rows(data: Sequence[Any]) -> Rows:
    """Texts, pairs, rows with columns, or examples."""
    for number, one in enumerate(data, 1):
        where = f"text {number}"
        if isinstance(one, Example):
            yield replace(one, where=where)
        elif isinstance(one, Mapping):
            strange = [name for name in one if not isinstance(name, str)]
            reason = f"expected texts as names of columns, found {strange[0]!r}" if strange else ""
            yield BadRow(where, reason) if strange else TableRow(str(number), where, one)
        elif isinstance(one, tuple) and len(one) == 2:
            yield TableRow(str(number), where, {"text_a": one[0], "text_b": one[1]})
        else:
            yield TableRow(str(number), where, {"text": one})


def case_rows(cases: Iterable[AgreementCase | BadRow]) -> Rows:
    """Verbs with their subjects, each as it is."""
    for case in cases:
        yield case if isinstance(case, BadRow) else TableRow(case.id, case.where, {CASE: case})


READERS: dict[str, Callable[[Path, str], Rows]] = {
    "text": text_rows,
    "tsv": tsv_rows,
    "csv": csv_rows,
    "jsonl": json_rows,
    "parquet": parquet_rows,
    "squad": squad_rows,
    "conllu": lambda path, errors: case_rows(treebank_cases(path)),
    "lgd": lambda path, errors: case_rows(lgd_cases(path)),
}
