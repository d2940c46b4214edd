"""Readers that iterate over the rows of files in several formats, and of Hugging Face data sets.

`errors` is the handler for bytes that are not UTF-8, as for `open`; by default the whole file is refused.
"""

import csv
import inspect
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
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
    """The kind of a file, from its name and, if the name is ambiguous, from its first line."""
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
    """The first characters of a file, without leading white space."""
    with open_text(path, "replace") as file:
        return file.read(PREVIEW).lstrip()


def is_record(line: str) -> bool:
    """Whether a line is one record of a JSON-lines file, not the whole of a SQuAD file."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return line.startswith("[")
    return not (isinstance(value, dict) and isinstance(value.get("data"), list))


def files_in(folder: Path) -> tuple[Path, ...]:
    """The data files of a folder, sorted by name. Files of several or unknown kinds are refused rather than skipped."""
    visible = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    files = [path for path in visible if path.is_file()]
    if folders := [path for path in visible if path.is_dir() and path.suffix.lower() in ENDINGS]:
        raise RefusedValue(
            f"{folders[0]} is a folder, though it is named like a file of data: expected files. Name that folder as "
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


def is_line_based(path: Path, kind: str) -> bool:
    """Whether rows consist of complete lines; a JSON array does not."""
    is_array = kind == "jsonl" and first_characters(path).startswith("[")
    return kind in (*LINES, "conllu") and not is_array


def count_without_parsing(path: Path, kind: str) -> int | None:
    """The number of rows if it is known without parsing: of Parquet files and files of lines; otherwise None."""
    if kind == "parquet":
        with from_extra("bench", "reading Parquet"):
            import pyarrow.parquet
        with refusing_other_files(path):
            return pyarrow.parquet.read_metadata(path).num_rows
    if kind in LINES and is_line_based(path, kind):
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
MAX_FIELD_LINES = 1000  # lines of one quoted field of a TSV file
MAX_FIELD_CHARACTERS = 1 << 30  # of a CSV file; the default of the csv module, 131,072, is too small for long texts
CASE = "agreement"  # the only column of agreement data; its values are AgreementCase objects
AGREEMENT = ("conllu", "lgd")  # kinds of files with agreement data


def read_lines(path: Path, errors: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without line ends."""
    with open_text(path, errors) as file:
        try:
            yield from numbered_lines(file)
        except UnicodeDecodeError as error:
            raise RefusedValue(f"{path}: expected UTF-8 text: {error}") from error


def text_rows(path: Path, errors: str = "strict") -> Rows:
    """One text per line."""
    for number, line in read_lines(path, errors):
        yield TableRow(str(number), f"{path}, line {number}", {"text": line})


def tsv_rows(path: Path, errors: str = "strict") -> Rows:
    """Rows of a tab-separated file with a header. Quotation marks are ordinary characters, except in `unquote`.

    Some programs write a field with line breaks in quotation marks. All lines of such a field are bad rows, even those
    that have the right number of columns.
    """
    header: list[str] = []
    lines = ((number, line.split("\t")) for number, line in read_lines(path, errors))
    for number, raw_fields, in_quoted_field in find_multiline_fields(lines):
        fields = [unquote(field) for field in raw_fields]
        where = f"{path}, line {number}"
        if not header:
            header = check_header(fields, where)
        elif in_quoted_field:
            yield BadRow(where, "part of a field with line breaks between quotation marks, which CSV files may have")
        elif len(fields) != len(header):
            yield BadRow(where, f"expected {len(header)} columns, found {len(fields)}")
        else:
            yield TableRow(str(number), where, dict(zip(header, fields, strict=True)))


def find_multiline_fields(lines: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str], bool]]:
    """For each line its number, its fields, and whether it belongs to a quoted field with line breaks.

    Such a field opens with a quotation mark in the last field of a line and closes with one in the first field of a
    later line. To exclude marks that are there by chance, the lines in between must have one field, and the fields of
    all these lines together must make exactly one row.
    """
    width = 0  # columns of the header, the first line
    pending: list[tuple[int, list[str]]] = []  # lines since a mark that may open such a field
    for number, fields in lines:
        width = width or len(fields)
        if pending and (has_unpaired_quote(fields[0]) and fields[0].endswith('"')):
            pending.append((number, fields))
            is_one_row = width > 1 and sum(len(line_fields) - 1 for _, line_fields in pending) == width - 1
            yield from ((*line, is_one_row) for line in pending)
            pending = []
            continue
        if pending and (len(fields) > 1 or len(pending) == MAX_FIELD_LINES):
            yield from ((*line, False) for line in pending)
            pending = []
        if pending or (has_unpaired_quote(fields[-1]) and fields[-1].startswith('"')):
            pending.append((number, fields))
        else:
            yield number, fields, False
    yield from ((*line, False) for line in pending)


def has_unpaired_quote(field: str) -> bool:
    return field.count('"') % 2 == 1


def unquote(field: str) -> str:
    """Undo CSV quoting, which some programs also use in TSV files: a quoted field with doubled quotation marks."""
    inner = field[1:-1]
    quoted = field[:1] == field[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else field


def csv_rows(path: Path, errors: str = "strict") -> Rows:
    """Rows of a comma-separated file with a header and the usual quoting.

    If a quotation mark is not closed, the csv module reads on to a mark in a later row or to the end of the file. Then
    only the first line is a bad row, and reading continues at the second line. If blanks follow the commas of the
    header, blanks behind commas are not part of the values, and quotation marks may follow them.
    """
    line_end = (
        "\n" if has_line_feeds(path) else ""
    )  # "": lines end with carriage returns alone, as in files of the classic Mac OS
    with LARGE_FIELDS, path.open(encoding="utf-8-sig", errors=errors, newline=line_end) as file:
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
                is_lone_return = "new-line character" in str(
                    error
                )  # the message of the csv module for a carriage return
                reason = "a carriage return outside quotation marks" if is_lone_return else str(error)
                yield BadRow(f"{path}, line {lines.number}", f"expected comma-separated values: {reason}")
                continue
            if not header and all_begin_with_blanks(fields[1:]):
                lines.return_from(0)
                reader = csv.reader(lines, strict=True, skipinitialspace=True)
                fields = next(reader)
            # An unclosed mark suspends the commas up to the mark of a later row, so the number of fields is wrong.
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
    """Iterates over the lines of a file; all but the first line of a record can be returned and read again."""

    def __init__(self, file: Iterator[str]) -> None:
        self.file: Iterator[str] = file
        self.number: int = 0  # of the last line read
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
        self.return_from(1)

    def return_from(self, first: int) -> None:
        """Return the lines of the record from this one on, counted from 0."""
        self.record, later = self.record[:first], self.record[first:]
        self.returned.extendleft(reversed(later))
        self.number -= len(later)


class FieldLimit:
    """The field size limit of the csv module, which all threads share: raised while any of them reads a file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._readers:
                self._before = csv.field_size_limit(MAX_FIELD_CHARACTERS)
            self._readers += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                csv.field_size_limit(self._before)


LARGE_FIELDS = FieldLimit()


def all_begin_with_blanks(fields: Sequence[str]) -> bool:
    return bool(fields) and all(field.startswith(" ") for field in fields)


def check_header(names: Sequence[str], where: str) -> list[str]:
    """The names of the columns without blanks around them."""
    fields = [name.strip() for name in names]
    if len(set(fields)) < len(fields):
        raise RefusedValue(f"{where}: expected a header with the names of the columns, found {fields}")
    return fields


def json_rows(path: Path, errors: str = "strict") -> Rows:
    """Rows of a file with one JSON object per line, or with one array of objects."""
    with open_text(path, errors) as file:
        start = file.read(PREVIEW)
        if start.lstrip().startswith("["):
            file.seek(0)
            while file.read(1) != "[":
                pass
            for number, (where, record) in enumerate(array_items(file, str(path), with_repeated_names), 1):
                yield json_row(str(number), where, record)
            return
    for number, line in read_lines(path, errors):
        where = f"{path}, line {number}"
        try:
            record = json.loads(line, object_pairs_hook=with_repeated_names)
        except (
            ValueError,
            RecursionError,
        ):  # RecursionError: too deeply nested; ValueError includes integers with too many digits
            yield BadRow(where, "not a JSON object")
            continue
        yield json_row(str(number), where, record)


class RepeatedNames(dict[str, Any]):
    """A JSON object in which a name stands twice, as no Python dict can have it."""

    name: str


def with_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of a JSON object's names and values; `RepeatedNames` if it, or an object inside, repeats a name."""
    record = dict(pairs)
    repeated = next((inside for _, value in pairs if (inside := repeated_name_in(value)) is not None), None)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
    if repeated is None:
        return record
    marked = RepeatedNames(record)
    marked.name = repeated
    return marked


def repeated_name_in(value: object) -> str | None:
    """The repeated name in an object, or in a list of objects such as messages."""
    items = value if isinstance(value, list) else [value]
    return next((item.name for item in items if isinstance(item, RepeatedNames)), None)


def json_row(number: str, where: str, record: object) -> TableRow | BadRow:
    if isinstance(record, RepeatedNames):
        return BadRow(where, f"the name {record.name!r} stands twice in an object: json would read the last value only")
    return TableRow(number, where, record) if isinstance(record, dict) else BadRow(where, "not a JSON object")


def parquet_rows(path: Path, errors: str = "strict") -> Rows:
    """Rows of a Parquet file. A value that Python cannot represent, such as a date after 9999, makes its row bad."""
    with from_extra("bench", "reading Parquet"):
        import pyarrow.parquet
    number = 0
    with refusing_other_files(path), pyarrow.parquet.ParquetFile(path) as file:
        check_header(file.schema_arrow.names, str(path))  # a record holds one of two columns with the same name
        for batch in file.iter_batches(PARQUET_BATCH):
            try:
                records = batch.to_pylist()
            except (ValueError, OverflowError, pyarrow.ArrowException):
                records = read_cell_by_cell(batch, errors)
            for record in records:
                number += 1
                where = f"{path}, row {number}"
                yield BadRow(where, record) if isinstance(record, str) else TableRow(str(number), where, record)


@contextmanager
def refusing_other_files(path: Path) -> Iterator[None]:
    """Refuse a file that is not a Parquet file or is damaged, with its name."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the file cannot be read at all
            raise
        raise RefusedValue(f"{path}: expected a Parquet file, found another or a damaged one: {error}") from error


def read_cell_by_cell(batch: Any, errors: str) -> Iterator[dict[str, object] | str]:
    """The rows of a Parquet batch, converted cell by cell; a row with an unreadable cell is replaced by the reason."""
    for i in range(batch.num_rows):
        record: dict[str, object] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                record[name] = read_cell(column[i], errors)
            except Exception as error:  # any error of the conversion means that the cell is unreadable
                yield f"the column {name!r} cannot be read: {error}"
                break
        else:
            yield record


def read_cell(cell: Any, errors: str) -> object:
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        if not hasattr(cell, "as_buffer"):  # a list or struct that contains strings
            raise
        return cell.as_buffer().to_pybytes().decode("utf-8", errors)


def squad_rows(path: Path, errors: str = "strict") -> Rows:
    """Questions of a SQuAD file (v1 and v2), each with its passage."""
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
    """Rows of a Hugging Face data set, "hf:NAME" or "hf:NAME:config", read as a stream."""
    for number, record in enumerate(open_stream(source, split), 1):
        yield TableRow(str(number), f"{source}, {split}, row {number}", record)


def count_hub_rows(source: str, split: str | None) -> int:
    """The number of rows in a split: from the metadata on the Hub if it is there, otherwise by reading all rows."""
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
        splits = ", ".join(datasets.get_dataset_split_names(name, config or None, **no_scripts(datasets)))
        raise RefusedValue(f"{source}: name one of its splits: {splits}")
    return datasets.load_dataset(name, config or None, split=split, streaming=True, **no_scripts(datasets))


def no_scripts(datasets: Any) -> dict[str, bool]:
    """Arguments that forbid running a data set's Python code; versions before 4 would ask on standard input."""
    may_run_code = "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters
    return {"trust_remote_code": False} if may_run_code else {}


def memory_rows(data: Sequence[Any]) -> Rows:
    """Rows of objects in memory: texts, pairs, mappings from columns to values, or examples."""
    for number, item in enumerate(data, 1):
        where = f"text {number}"
        if isinstance(item, Example):
            yield replace(item, where=where)
        elif isinstance(item, Mapping):
            invalid = [name for name in item if not isinstance(name, str)]
            reason = f"expected texts as names of columns, found {invalid[0]!r}" if invalid else ""
            yield BadRow(where, reason) if invalid else TableRow(str(number), where, item)
        elif isinstance(item, tuple) and len(item) == 2:
            yield TableRow(str(number), where, {"text_a": item[0], "text_b": item[1]})
        else:
            yield TableRow(str(number), where, {"text": item})


def agreement_rows(cases: Iterable[AgreementCase | BadRow]) -> Rows:
    """Rows whose only column holds an agreement case."""
    for case in cases:
        yield case if isinstance(case, BadRow) else TableRow(case.id, case.where, {CASE: case})


READERS: dict[str, Callable[[Path, str], Rows]] = {
    "text": text_rows,
    "tsv": tsv_rows,
    "csv": csv_rows,
    "jsonl": json_rows,
    "parquet": parquet_rows,
    "squad": squad_rows,
    "conllu": lambda path, errors: agreement_rows(treebank_cases(path)),
    "lgd": lambda path, errors: agreement_rows(lgd_cases(path)),
}
