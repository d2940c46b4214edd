"""The folder of an explained corpus: a Parquet file (shard) for each chunk, and the bad rows.

A row of a table is one text explained by one method. So tables have the same columns whatever the methods, several runs
can be read as one table, and queries select a method with WHERE. Columns that methods share (the tokens) have equal
values in consecutive rows, which compress well.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy

from tokenlight.common.error_location import UNEXPECTED, in_own_code, reason_to_skip
from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import atomic_write, hash_file
from tokenlight.corpus.plan import ExplainedChunk, ExplainedText
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.data.examples import BadRow
from tokenlight.text.tokenize import messages_of
from tokenlight.text.tokenized_text import Chat, Text

with from_extra("scale", "Parquet"):
    import pyarrow
    import pyarrow.parquet

SHARD = re.compile(r"part-(\d{6,})\.parquet")
ADDED = -1  # the stored segment of tokens that the tokenizer adds, which are in no text
PARTS, BAD_PARTS, HASHES = "parts", "bad", "hashes"  # separate folders: Parquet readers read every file of a folder
BAD_ROWS, DONE = "bad_rows.jsonl", "_SUCCESS"
ABOUT, PART = b"tokenlight", b"tokenlight.part"  # keys of a shard's metadata
DTYPES = {"float32": pyarrow.float32(), "float16": pyarrow.float16()}


@dataclass(frozen=True)
class ChunkCounts:
    """Counts of the rows of one or several chunks."""

    rows: int = 0
    explained: int = 0
    bad: int = 0
    too_small: int = 0  # scores other than 0 below the smallest normal number of the stored type

    def __add__(self, other: "ChunkCounts") -> "ChunkCounts":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return ChunkCounts(*(first + second for first, second in pairs))


def columns(dtype: str) -> list[tuple[str, pyarrow.DataType]]:
    """Names and types of all columns; `dtype` is the type of scores."""
    text, integer, number = pyarrow.string(), pyarrow.int32(), pyarrow.float64()
    return [
        ("row", pyarrow.int64()),
        ("id", text),
        ("text", text),
        ("text_pair", text),
        ("messages", pyarrow.list_(pyarrow.struct({"role": text, "content": text}))),
        ("method", text),
        ("target", text),
        ("foil", text),
        ("score", number),
        ("prediction", text),
        ("probability", number),
        ("tokens", pyarrow.list_(text)),
        ("starts", pyarrow.list_(integer)),
        ("ends", pyarrow.list_(integer)),
        ("segments", pyarrow.list_(pyarrow.int16())),
        ("special", pyarrow.list_(pyarrow.bool_())),
        ("scores", pyarrow.list_(DTYPES[dtype])),
        ("signed", pyarrow.bool_()),
        ("position", integer),
        ("truncated", integer),
        ("windows", integer),
        ("notes", pyarrow.list_(text)),
        *answer_columns(dtype),
    ]


def answer_columns(dtype: str) -> list[tuple[str, pyarrow.DataType]]:
    """The columns of prompts with answers; null for other texts."""
    text, integers, scores = pyarrow.string(), pyarrow.list_(pyarrow.int32()), pyarrow.list_(DTYPES[dtype])
    return [
        ("answer", text),
        ("answer_tokens", pyarrow.list_(text)),
        ("answer_starts", integers),
        ("answer_ends", integers),
        ("answer_scores", scores),
        ("log_probabilities", pyarrow.list_(pyarrow.float32())),
        ("part_starts", integers),
        ("part_ends", integers),
        ("part_numbers", pyarrow.list_(pyarrow.float64())),
        ("part_scores", pyarrow.list_(scores)),
        ("document_names", pyarrow.list_(text)),
        ("document_scores", pyarrow.list_(scores)),
    ]


def write_chunk(folder: Path, chunk: ExplainedChunk, settings: CorpusSettings, about: Mapping[str, Any]) -> ChunkCounts:
    """Write the bad rows, then the shard, whose existence means that the chunk is done."""
    chunk, table = build_table(chunk, settings)
    too_small = sum(count_too_small(text, settings) for text in chunk.texts)
    counts = ChunkCounts(len(chunk.texts) + len(chunk.bad), len(chunk.texts), len(chunk.bad), too_small)
    bad_file = bad_path(folder, chunk.number)
    if chunk.bad:
        lines = "".join(
            json.dumps({"row": number, "where": row.where, "reason": row.reason}) + "\n" for number, row in chunk.bad
        )
        write_new(bad_file, lambda path: path.write_text(lines))
    else:
        bad_file.unlink(missing_ok=True)  # of an interrupted attempt: rows that did not fit in memory may be good now
    metadata = {ABOUT: json.dumps(about), PART: json.dumps({"part": chunk.number, **asdict(counts)})}
    table = table.replace_schema_metadata(metadata)

    def write(path: Path) -> None:
        pyarrow.parquet.write_table(table, path, compression="zstd")
        store_hashes(folder, chunk.number, path)

    write_new(shard_path(folder, chunk.number), write)
    return counts


def table_of(texts: Sequence[ExplainedText], settings: CorpusSettings) -> pyarrow.Table:
    names, records = columns(settings.dtype), list(records_of(texts, settings))
    values = {name: [record[name] for record in records] for name, _ in names}
    return pyarrow.table(values, schema=pyarrow.schema(names))


def build_table(chunk: ExplainedChunk, settings: CorpusSettings) -> tuple[ExplainedChunk, pyarrow.Table]:
    """The chunk and its table. A text that Parquet cannot store, such as one with a lone surrogate, is a bad row."""
    try:
        return chunk, table_of(chunk.texts, settings)
    except Exception as error:
        reason_to_skip(error)  # raises errors that are not caused by a row
    texts, bad = list[ExplainedText](), list(chunk.bad)
    for text in chunk.texts:
        try:
            table_of([text], settings)
            texts.append(text)
        except Exception as error:
            bad.append((text.number, BadRow(text.example.where, f"it cannot be written: {reason_to_skip(error)}")))
    chunk = replace(chunk, texts=texts, bad=sorted(bad, key=itemgetter(0)))
    return chunk, table_of(texts, settings)


def count_too_small(text: ExplainedText, settings: CorpusSettings) -> int:
    """The number of scores other than 0 that lose precision because they are below the smallest normal number."""
    smallest = float(numpy.finfo(settings.dtype).smallest_normal)
    values = [explanation.scores.numpy() for explanation in text.explanations.values()]
    for label in text.by_part if text.answer is not None else ():
        values += [value for value in answer_scores(text, label, settings).values() if value is not None]
    return sum(int(((value != 0) & (abs(value) < smallest)).sum()) for value in values)


def records_of(texts: Sequence[ExplainedText], settings: CorpusSettings) -> Iterator[dict[str, Any]]:
    """A row for each text and method."""
    for text in texts:
        for label, explanation in text.explanations.items():
            starts, ends = zip(*explanation.spans, strict=True)
            yield {
                "row": text.number,
                "id": text.example.id,
                **text_record(text.example.text, settings),
                "method": label,
                "target": explanation.target,
                "foil": explanation.foil,
                "score": explanation.score,
                "prediction": explanation.prediction,
                "probability": explanation.probability,
                "tokens": explanation.tokens,
                "starts": starts,
                "ends": ends,
                "segments": [ADDED if segment is None else segment for segment in explanation.segments],
                "special": explanation.special.tolist(),
                "scores": explanation.scores.numpy().astype(settings.dtype),
                "signed": explanation.signed,
                "position": explanation.position,
                "truncated": text.truncated,
                "windows": text.windows,
                "notes": explanation.notes,
                **answer_record(text, label, settings),
            }


def text_record(text: Text, settings: CorpusSettings) -> dict[str, Any]:
    """The columns of the original text: one, two for a pair, or messages."""
    columns: dict[str, Any] = {"text": None, "text_pair": None, "messages": None}
    if not settings.keep_text:
        return columns
    if isinstance(text, Chat):
        return {**columns, "messages": messages_of(text)}
    first, second = text if isinstance(text, tuple) else (text, None)
    return {**columns, "text": first, "text_pair": second}


def answer_record(text: ExplainedText, label: str, settings: CorpusSettings) -> dict[str, Any]:
    """The columns of an answer."""
    if text.answer is None:
        return dict.fromkeys(name for name, _ in answer_columns(settings.dtype))
    answer, scores = text.answer, text.by_part[label]
    starts, ends = zip(*answer.spans, strict=True)
    part_starts, part_ends = zip(*answer.parts, strict=True)
    rounded = {
        name: None if values is None else values.astype(settings.dtype)
        for name, values in answer_scores(text, label, settings).items()
    }
    return {
        "answer": answer.text if settings.keep_text else None,
        "answer_tokens": answer.tokens,
        "answer_starts": starts,
        "answer_ends": ends,
        "answer_scores": rounded["answer_scores"],
        "log_probabilities": scores.log_probabilities.numpy(),
        "part_starts": part_starts,
        "part_ends": part_ends,
        "part_numbers": scores.explained.numpy(),
        "part_scores": as_list(rounded["part_scores"]),
        "document_names": [document.name for document in scores.by_document[0]] if scores.by_document else None,
        "document_scores": as_list(rounded["document_scores"]),
    }


def answer_scores(text: ExplainedText, label: str, settings: CorpusSettings) -> dict[str, numpy.ndarray | None]:
    """The columns of an answer with scores, before they are rounded to the stored type."""
    assert text.answer is not None
    scores = text.by_part[label]
    document_scores = [[document.score for document in documents] for documents in scores.by_document]
    return {
        "answer_scores": scores.matrix.sum(0)[-len(text.answer.tokens) :].numpy(),
        # If the whole answer is one part, `scores` and `answer_scores` have its scores.
        "part_scores": None if settings.each == "answer" else scores.matrix.numpy(),
        "document_scores": numpy.array(document_scores) if scores.by_document else None,  # [part, document]
    }


def as_list(matrix: numpy.ndarray | None) -> list[numpy.ndarray] | None:
    return None if matrix is None else list(matrix)


def write_new(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically, under a temporary name first; its folder is created if needed."""
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as temporary:
        write(temporary)


def remove_temporary_files(folder: Path) -> None:
    """Remove unfinished files of processes that were killed."""
    for subfolder in (folder, folder / PARTS, folder / BAD_PARTS, folder / HASHES):
        for path in subfolder.glob(".*.part"):
            path.unlink(missing_ok=True)


def shard_path(folder: Path, number: int) -> Path:
    return folder / PARTS / f"part-{number:06d}.parquet"


def bad_path(folder: Path, number: int) -> Path:
    return folder / BAD_PARTS / f"part-{number:06d}.jsonl"


def hash_path(folder: Path, number: int) -> Path:
    return folder / HASHES / f"part-{number:06d}.json"


def is_unchanged(folder: Path, number: int) -> bool:
    """Whether the files of a chunk have the hashes that were stored when they were written."""
    try:
        hashes = json.loads(hash_path(folder, number).read_text())
        bad_file = bad_path(folder, number)
        shard_hash, bad_hash = hash_file(shard_path(folder, number)), hash_file(bad_file) if bad_file.exists() else None
    except (OSError, ValueError):
        return False
    return hashes == {"shard": shard_hash, "bad": bad_hash}


def remove_damaged(folder: Path) -> list[int]:
    """Remove shards whose files have changed since they were written; return the numbers of their chunks.

    Shards without hashes, of early versions or copied without them, are accepted if they can be read, and hashed now.
    """
    damaged = []
    for number, path in shards(folder).items():
        if not hash_path(folder, number).exists() and is_readable(folder, number):
            store_hashes(folder, number, path)
        elif not is_unchanged(folder, number):
            damaged.append(number)
            path.unlink()
    return damaged


def is_readable(folder: Path, number: int) -> bool:
    """Whether a shard can be read, and has the numbers of rows and bad rows that its metadata states."""
    path, bad_file = shard_path(folder, number), bad_path(folder, number)
    try:
        counts, table = read_counts(path), pyarrow.parquet.read_table(path)
        bad = len(bad_file.read_text().splitlines()) if bad_file.exists() else 0
    except (OSError, ValueError, pyarrow.ArrowException):
        return False
    return (len(table), bad) == (counts.explained, counts.bad)


def store_hashes(folder: Path, number: int, shard: Path) -> None:
    """Store the hashes of the files of a chunk; `shard` is the path of the shard, perhaps a temporary one."""
    bad_file = bad_path(folder, number)
    hashes = {"shard": hash_file(shard), "bad": hash_file(bad_file) if bad_file.exists() else None}
    write_new(hash_path(folder, number), lambda temporary: temporary.write_text(json.dumps(hashes) + "\n"))


def shards(folder: Path) -> dict[int, Path]:
    """The paths of existing shards by the number of the chunk."""
    matches = ((SHARD.fullmatch(path.name), path) for path in (folder / PARTS).glob("*"))
    numbered = dict(sorted((int(match[1]), path) for match, path in matches if match))
    for path in numbered.values():
        if path.is_dir():
            raise RefusedValue(f"{path} is a folder, expected a file that was written here: move it somewhere else")
    return numbered


def read_counts(path: Path) -> ChunkCounts:
    """The counts in the metadata of a shard."""
    try:
        metadata = pyarrow.parquet.read_metadata(path).metadata or {}
        counts = json.loads(metadata[PART])
    except (pyarrow.ArrowInvalid, KeyError, ValueError) as error:
        raise RefusedValue(
            f"{path} is damaged or was not written by tokenlight ({error}): delete it, then the same call writes it"
        ) from error
    return ChunkCounts(counts["rows"], counts["explained"], counts["bad"], counts.get("too_small", 0))


def finish(folder: Path) -> ChunkCounts:
    """Write all bad rows into one file, and the counts into the file that marks the run as finished."""
    paths = shards(folder)
    counts = sum(map(read_counts, paths.values()), ChunkCounts())
    if missing := set(range(len(paths))) - set(paths):
        raise RefusedValue(f"{folder / PARTS} holds parts beyond the end of the data, or lacks part {min(missing)}")

    write_bad_rows(folder)
    report = json.dumps({"parts": len(paths), **asdict(counts)}) + "\n"
    write_new(folder / DONE, lambda path: path.write_text(report))
    return counts


def write_bad_rows(folder: Path) -> None:
    """Write the bad rows of all chunks into one file, unless it has them already."""
    path, expected = folder / BAD_ROWS, hashlib.sha256()
    for lines in bad_rows_of_chunks(folder):
        expected.update(lines)
    if path.exists() and hash_file(path) == expected.hexdigest():
        return

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.writelines(bad_rows_of_chunks(folder))

    write_new(path, write)


def bad_rows_of_chunks(folder: Path) -> Iterator[bytes]:
    """The bad rows of each chunk as lines of JSON, in order."""
    for number in shards(folder):
        if (path := bad_path(folder, number)).exists():
            yield path.read_bytes()


def reasons_of_bugs(folder: Path) -> tuple[list[str], list[str]]:
    """Reasons of rows that were set aside because of a bug: in tokenlight, and in the caller's own code."""
    reasons = [json.loads(line)["reason"] for lines in bad_rows_of_chunks(folder) for line in lines.splitlines()]
    return [reason for reason in reasons if UNEXPECTED in reason], in_own_code(reasons)


def is_finished(folder: Path) -> bool:
    """Whether the run is marked as finished, and as many shards exist as the mark states."""
    try:
        return json.loads((folder / DONE).read_text())["parts"] == len(shards(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False
