"""The folder of an explained corpus: a Parquet file for each chunk, and the records that were skipped.

One row is one text explained by one method: tables have the same columns whatever the methods, several runs can be
read as one, and a method is chosen with WHERE. What the methods share (the tokens) is next to itself and compresses.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
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
ADDED = -1  # the segment of tokens that the tokenizer adds: they are in no text
PARTS, BAD_PARTS, HASHES = "parts", "bad", "hashes"  # folders: readers of Parquet take all that is in one for theirs
BAD_ROWS, DONE = "bad_rows.jsonl", "_SUCCESS"
ABOUT, PART = b"tokenlight", b"tokenlight.part"  # keys of a shard's metadata
DTYPES = {"float32": pyarrow.float32(), "float16": pyarrow.float16()}


@dataclass(frozen=True)
class ChunkCounts:
    """What became of the rows of a part, or of several."""

    rows: int = 0
    explained: int = 0
    bad: int = 0
    too_small: int = 0  # scores that are not 0 but below what their type stores in full precision, or stored as 0

    def __add__(self, other: "ChunkCounts") -> "ChunkCounts":
        mine, theirs = astuple(self), astuple(other)
        return ChunkCounts(*(one + two for one, two in zip(mine, theirs, strict=True)))


def columns(dtype: str) -> list[tuple[str, pyarrow.DataType]]:
    text, whole, number = pyarrow.string(), pyarrow.int32(), pyarrow.float64()
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
        ("starts", pyarrow.list_(whole)),
        ("ends", pyarrow.list_(whole)),
        ("segments", pyarrow.list_(pyarrow.int16())),
        ("special", pyarrow.list_(pyarrow.bool_())),
        ("scores", pyarrow.list_(DTYPES[dtype])),
        ("signed", pyarrow.bool_()),
        ("position", whole),
        ("truncated", whole),
        ("windows", whole),
        ("notes", pyarrow.list_(text)),
        *answer_columns(dtype),
    ]


def answer_columns(dtype: str) -> list[tuple[str, pyarrow.DataType]]:
    """Of prompts with answers; empty for other texts."""
    text, places, scores = pyarrow.string(), pyarrow.list_(pyarrow.int32()), pyarrow.list_(DTYPES[dtype])
    return [
        ("answer", text),
        ("answer_tokens", pyarrow.list_(text)),
        ("answer_starts", places),
        ("answer_ends", places),
        ("answer_scores", scores),
        ("log_probabilities", pyarrow.list_(pyarrow.float32())),
        ("part_starts", places),
        ("part_ends", places),
        ("part_numbers", pyarrow.list_(pyarrow.float64())),
        ("part_scores", pyarrow.list_(scores)),
        ("document_names", pyarrow.list_(text)),
        ("document_scores", pyarrow.list_(scores)),
    ]


def write_chunk(folder: Path, part: ExplainedChunk, settings: CorpusSettings, about: Mapping[str, Any]) -> ChunkCounts:
    """The skipped rows first, the shard last: a shard that is there says that its part is done."""
    part, table = writable(part, settings)
    too_small = sum(count_too_small(text, settings) for text in part.texts)
    counts = ChunkCounts(len(part.texts) + len(part.bad), len(part.texts), len(part.bad), too_small)
    aside = bad_path(folder, part.number)
    if part.bad:
        lines = "".join(
            json.dumps({"row": number, "where": row.where, "reason": row.reason}) + "\n" for number, row in part.bad
        )
        write_new(aside, lambda path: path.write_text(lines))
    else:
        aside.unlink(missing_ok=True)  # of an attempt that was killed: with more memory, rows may be good
    metadata = {ABOUT: json.dumps(about), PART: json.dumps({"part": part.number, **asdict(counts)})}
    table = table.replace_schema_metadata(metadata)

    def write(path: Path) -> None:
        pyarrow.parquet.write_table(table, path, compression="zstd")
        store_hashes(folder, part.number, path)

    write_new(shard_path(folder, part.number), write)
    return counts


def table_of(texts: Sequence[ExplainedText], settings: CorpusSettings) -> pyarrow.Table:
    names, records = columns(settings.dtype), list(records_of(texts, settings))
    values = {name: [record[name] for record in records] for name, _ in names}
    return pyarrow.table(values, schema=pyarrow.schema(names))


def writable(part: ExplainedChunk, settings: CorpusSettings) -> tuple[ExplainedChunk, pyarrow.Table]:
    """The part and its table. A text that Parquet cannot hold, such as one whose id has half a character, is bad."""
    try:
        return part, table_of(part.texts, settings)
    except Exception as error:
        reason_to_skip(error)  # raises what is no row's fault
    texts, bad = list[ExplainedText](), list(part.bad)
    for text in part.texts:
        try:
            table_of([text], settings)
            texts.append(text)
        except Exception as error:
            bad.append((text.number, BadRow(text.example.where, f"it cannot be written: {reason_to_skip(error)}")))
    part = replace(part, texts=texts, bad=sorted(bad, key=lambda one: one[0]))
    return part, table_of(texts, settings)


def count_too_small(text: ExplainedText, settings: CorpusSettings) -> int:
    """Scores of one text that are not 0 and lose digits, or all of them, because they are below the normal numbers."""
    smallest = float(numpy.finfo(settings.dtype).smallest_normal)
    values = [found.scores.numpy() for found in text.found.values()]
    for label in text.by_part if text.answer is not None else ():
        values += [value for value in answer_scores(text, label, settings).values() if value is not None]
    return sum(int(((value != 0) & (abs(value) < smallest)).sum()) for value in values)


def records_of(texts: Sequence[ExplainedText], settings: CorpusSettings) -> Iterator[dict[str, Any]]:
    for text in texts:
        for label, found in text.found.items():
            starts, ends = zip(*found.spans, strict=True)
            yield {
                "row": text.number,
                "id": text.example.id,
                **text_record(text.example.text, settings),
                "method": label,
                "target": found.target,
                "foil": found.foil,
                "score": found.score,
                "prediction": found.prediction,
                "probability": found.probability,
                "tokens": found.tokens,
                "starts": starts,
                "ends": ends,
                "segments": [ADDED if segment is None else segment for segment in found.segments],
                "special": found.special.tolist(),
                "scores": found.scores.numpy().astype(settings.dtype),
                "signed": found.signed,
                "position": found.position,
                "truncated": text.truncated,
                "windows": text.windows,
                "notes": found.notes,
                **answer_record(text, label, settings),
            }


def text_record(text: Text, settings: CorpusSettings) -> dict[str, Any]:
    """The columns that hold the text as it was read: one, two for a pair, or messages."""
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
    found = {
        name: None if values is None else values.astype(settings.dtype)
        for name, values in answer_scores(text, label, settings).items()
    }
    return {
        "answer": answer.text if settings.keep_text else None,
        "answer_tokens": answer.tokens,
        "answer_starts": starts,
        "answer_ends": ends,
        "answer_scores": found["answer_scores"],
        "log_probabilities": scores.log_probabilities.numpy(),
        "part_starts": part_starts,
        "part_ends": part_ends,
        "part_numbers": scores.numbers.numpy(),
        "part_scores": as_list(found["part_scores"]),
        "document_names": [one.name for one in scores.by_document[0]] if scores.by_document else None,
        "document_scores": as_list(found["document_scores"]),
    }


def answer_scores(text: ExplainedText, label: str, settings: CorpusSettings) -> dict[str, numpy.ndarray | None]:
    """The columns of an answer that hold scores, before they are rounded to the type that they are stored in."""
    assert text.answer is not None
    scores = text.by_part[label]
    by_document = numpy.array([[one.score for one in some] for some in scores.by_document])  # [part, source]
    return {
        "answer_scores": scores.matrix.sum(0)[-len(text.answer.tokens) :].numpy(),
        "part_scores": None if settings.each == "answer" else scores.matrix.numpy(),  # then it is in the others
        "document_scores": by_document if scores.by_document else None,
    }


def as_list(matrix: numpy.ndarray | None) -> list[numpy.ndarray] | None:
    return None if matrix is None else list(matrix)


def write_new(path: Path, write: Callable[[Path], object]) -> None:
    """Under a name of its own first, so that the file is whole whenever it has its name; half of it never stays."""
    path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as part:
        write(part)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed had begun to write."""
    for place in (folder, folder / PARTS, folder / BAD_PARTS, folder / HASHES):
        for path in place.glob(".*.part"):
            path.unlink(missing_ok=True)


def shard_path(folder: Path, part: int) -> Path:
    return folder / PARTS / f"part-{part:06d}.parquet"


def bad_path(folder: Path, part: int) -> Path:
    return folder / BAD_PARTS / f"part-{part:06d}.jsonl"


def hash_path(folder: Path, part: int) -> Path:
    return folder / HASHES / f"part-{part:06d}.json"


def is_whole(folder: Path, part: int) -> bool:
    """Whether the files of a part are byte for byte what was written."""
    try:
        hashes = json.loads(hash_path(folder, part).read_text())
        aside = bad_path(folder, part)
        found = {"shard": hash_file(shard_path(folder, part)), "bad": hash_file(aside) if aside.exists() else None}
    except (OSError, ValueError):
        return False
    return hashes == found


def remove_damaged(folder: Path) -> list[int]:
    """Parts whose files are not what was written: they are removed, to be done again.

    Shards that were written before there were hashes, or copied without them, count as whole if they can be read; they
    get a hash now.
    """
    damaged = []
    for number, path in shards(folder).items():
        if not hash_path(folder, number).exists() and is_readable(folder, number):
            store_hashes(folder, number, path)
        elif not is_whole(folder, number):
            damaged.append(number)
            path.unlink()
    return damaged


def is_readable(folder: Path, part: int) -> bool:
    """Whether a shard can be read to its end, has as many rows as it says, and its list of bad rows as many lines."""
    path, aside = shard_path(folder, part), bad_path(folder, part)
    try:
        counts, table = read_counts(path), pyarrow.parquet.read_table(path)
        bad = len(aside.read_text().splitlines()) if aside.exists() else 0
    except (OSError, ValueError, pyarrow.ArrowException):
        return False
    return (len(table), bad) == (counts.explained, counts.bad)


def store_hashes(folder: Path, part: int, shard: Path) -> None:
    """Of the files of a part, where its shard is at `shard`."""
    aside = bad_path(folder, part)
    hashes = {"shard": hash_file(shard), "bad": hash_file(aside) if aside.exists() else None}
    write_new(hash_path(folder, part), lambda where: where.write_text(json.dumps(hashes) + "\n"))


def shards(folder: Path) -> dict[int, Path]:
    """Those that are there, by the number of their part."""
    found = ((SHARD.fullmatch(path.name), path) for path in (folder / PARTS).glob("*"))
    numbered = dict(sorted((int(match[1]), path) for match, path in found if match))
    for path in numbered.values():
        if path.is_dir():
            raise RefusedValue(f"{path} is a folder, expected a file that was written here: move it somewhere else")
    return numbered


def read_counts(path: Path) -> ChunkCounts:
    """From the file's footer alone."""
    try:
        metadata = pyarrow.parquet.read_metadata(path).metadata or {}
        counts = json.loads(metadata[PART])
    except (pyarrow.ArrowInvalid, KeyError, ValueError) as error:
        raise RefusedValue(
            f"{path} is damaged or not ours ({error}): delete it, then the same call writes it"
        ) from error
    return ChunkCounts(counts["rows"], counts["explained"], counts["bad"], counts.get("too_small", 0))


def finish(folder: Path) -> ChunkCounts:
    """All skipped rows in one file, and the mark that nothing is missing, with counts."""
    found = shards(folder)
    counts = sum(map(read_counts, found.values()), ChunkCounts())
    if missing := set(range(len(found))) - set(found):
        raise RefusedValue(f"{folder / PARTS} holds parts beyond the end of the data, or lacks part {min(missing)}")

    write_bad_rows(folder)
    report = json.dumps({"parts": len(found), **asdict(counts)}) + "\n"
    write_new(folder / DONE, lambda path: path.write_text(report))
    return counts


def write_bad_rows(folder: Path) -> None:
    """All skipped rows in one file, unless it is there and holds just these."""
    path, expected = folder / BAD_ROWS, hashlib.sha256()
    for lines in bad_rows_of_chunks(folder):
        expected.update(lines)
    if path.exists() and hash_file(path) == expected.hexdigest():
        return

    def gather(part: Path) -> None:
        with part.open("wb") as file:
            file.writelines(bad_rows_of_chunks(folder))

    write_new(path, gather)


def bad_rows_of_chunks(folder: Path) -> Iterator[bytes]:
    """The skipped rows of each part, in order; their files are hashed, as the shards are."""
    for number in shards(folder):
        if (path := bad_path(folder, number)).exists():
            yield path.read_bytes()


def reasons_of_bugs(folder: Path) -> tuple[list[str], list[str]]:
    """Of the rows that were set aside because of a bug: of ours, and in the caller's own code."""
    reasons = [json.loads(line)["reason"] for lines in bad_rows_of_chunks(folder) for line in lines.splitlines()]
    return [reason for reason in reasons if UNEXPECTED in reason], in_own_code(reasons)


def is_finished(folder: Path) -> bool:
    """The mark is there, and so are all shards that it speaks of. A mark that cannot be read is none."""
    try:
        return json.loads((folder / DONE).read_text())["parts"] == len(shards(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False
