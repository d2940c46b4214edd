"""Examples of a data set, chunks of them, and which examples suit a tokenizer."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.vocabulary import token_index
from tokenlight.text.tokenized_text import Document, Text, TokenizedText

MASK_MARK = "***mask***"  # placeholder for a tokenizer's mask token, as in the file of Goldberg (2019)
Span = tuple[int, int]  # characters


@dataclass(frozen=True)
class Example:
    """A text with what is known about it."""

    id: str  # number of the line or record, or the identifier in the data
    text: Text  # a pair as a tuple; (question, passage) in question answering
    label: str | int | None = None  # gold class: name or index as found in the data
    answer: Span | None = None  # the gold answer in the passage
    reply: str | None = None  # the answer of a language model to the text
    documents: tuple[Document, ...] = ()  # the documents in the prompt
    # Target and foil, if the data has them. For language models: the right and the wrong word, with the space before
    # them if the text has one.
    target: str | int | None = None
    foil: str | int | None = None
    evidence: tuple[Span, ...] = ()  # the words of the text that are the reason for the label or target
    rests_on: tuple[Document, ...] = ()  # the evidence for the reply, in the prompt
    group: str | None = None  # a key to group results by, such as the number of attractors
    where: str = field(default="", compare=False, repr=False)  # its location in the data


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used. Equal problems have equal reasons, so that they can be counted."""

    where: str
    reason: str


@dataclass(frozen=True)
class TableRow:
    """The values of one row by column, before roles are assigned to columns."""

    id: str
    where: str
    values: Mapping[str, object]


NumberedRow = tuple[int, Example | BadRow]  # with its number in the data, from 0


def fill_mask(example: Example, mask_token: str) -> Example:
    """The example with the tokenizer's mask token instead of MASK_MARK; spans after the mask are shifted."""
    text = example.text
    if not isinstance(text, str) or text.count(MASK_MARK) != 1:
        raise RefusedValue(f"example {example.id}: expected one {MASK_MARK} in a single text, found {text!r}")
    position = text.index(MASK_MARK)
    shift = len(mask_token) - len(MASK_MARK)
    evidence = tuple((s + shift, e + shift) if s > position else (s, e) for s, e in example.evidence)
    return replace(example, text=text.replace(MASK_MARK, mask_token), evidence=evidence)


@dataclass(frozen=True)
class Chunk:
    """Rows with their numbers in the data."""

    number: int  # of the chunk, from 0
    rows: tuple[NumberedRow, ...]


def split_into_chunks(
    read: Callable[[], Iterator[Example | BadRow]],
    size: int,
    done: Collection[int] = (),
    row_numbers: Callable[[], Iterable[int]] = count,
) -> Iterator[Chunk]:
    """All rows in chunks of `size`, without those that are done; `row_numbers` gives the rows' numbers in the data.

    A chunk is identified by its number, so a continued run must read the same rows.
    """
    rows = zip(row_numbers(), read(), strict=False)
    for number in count():
        chunk_rows = tuple(islice(rows, size))
        if not chunk_rows:
            return
        if number not in done:
            yield Chunk(number, chunk_rows)


def reason_unsuitable(example: Example, tokenized_text: TokenizedText, tokenizer: Any) -> str | None:
    """Why an example does not suit a tokenizer; None if it does."""
    try:
        indices = {token_index(form, tokenizer, len(tokenizer)) for form in (example.target, example.foil)}
    except ValueError:
        return "a form of the word is not one token"
    if len(indices) < 2:
        return "both forms are the same token"
    ordinary = [span for span, special in zip(tokenized_text.spans, tokenized_text.special, strict=True) if not special]
    evidence = [s for s in ordinary if any(s[0] < end and start < s[1] for start, end in example.evidence)]
    if example.evidence and not evidence:
        return "the evidence has no token"
    if len(ordinary) < 2:
        return "input of a single token"
    return None if len(evidence) < len(ordinary) else "the evidence is the whole input"
