"""Examples of a data set, chunks of them, and which examples a tokenizer can take."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks.mixins import token_index
from tokenlight.text.tokenized_text import Document, Text, TokenizedText

MASK_MARK = "***mask***"  # stands for any tokenizer's mask token, as in Goldberg's file
Span = tuple[int, int]  # characters


@dataclass(frozen=True)
class Example:
    """A text with what is known about it."""

    id: str  # number of the line or record, or the data's own name for it
    text: Text  # a pair as a tuple; (question, context) in question answering
    label: str | int | None = None  # gold class: name or index as found in the data
    answer: Span | None = None  # the gold answer in the context
    reply: str | None = None  # what a language model answered to the text
    documents: tuple[Document, ...] = ()  # the documents in the prompt
    # What is explained, where the data says it. Language models: the right token, with the blank before it where the
    # text has one, and the wrong one.
    target: str | int | None = None
    foil: str | int | None = None
    evidence: tuple[Span, ...] = ()  # in the text: the words that decide
    rests_on: tuple[Document, ...] = ()  # in the prompt: what makes the reply the right one
    group: str | None = None  # what results may be split by, such as the number of attractors
    where: str = field(default="", compare=False, repr=False)  # its place in the data


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used. Reasons are the same words for the same thing, so they can be counted."""

    where: str
    reason: str


@dataclass(frozen=True)
class TableRow:
    """The values of one row by column, before anyone knows what they mean."""

    id: str
    where: str
    values: Mapping[str, object]


NumberedRow = tuple[int, Example | BadRow]  # with its number in the data, from 0


def fill_mask(example: Example, mask_token: str) -> Example:
    """The example with a tokenizer's own mask token in place of the mark; what stands behind it moves along."""
    text = example.text
    if not isinstance(text, str) or text.count(MASK_MARK) != 1:
        raise RefusedValue(f"example {example.id}: expected one {MASK_MARK} in a single text, found {text!r}")
    place = text.index(MASK_MARK)
    shift = len(mask_token) - len(MASK_MARK)
    moved = tuple((s + shift, e + shift) if s > place else (s, e) for s, e in example.evidence)
    return replace(example, text=text.replace(MASK_MARK, mask_token), evidence=moved)


@dataclass(frozen=True)
class Chunk:
    """Rows with their numbers in the data."""

    number: int  # of the part
    rows: tuple[NumberedRow, ...]


def in_chunks(
    read: Callable[[], Iterator[Example | BadRow]],
    size: int,
    done: Collection[int] = (),
    row_numbers: Callable[[], Iterable[int]] = count,
) -> Iterator[Chunk]:
    """All rows, `size` at a time, without the parts that are done; `row_numbers` says which rows of the data they are.

    A part is known by its place among the parts, so a run that goes on must read the same rows.
    """
    rows = zip(row_numbers(), read(), strict=False)
    for number in count():
        some = tuple(islice(rows, size))
        if not some:
            return
        if number not in done:
            yield Chunk(number, some)


def misfit(example: Example, tokenized_text: TokenizedText, tokenizer: Any) -> str | None:
    """Why a tokenizer cannot take an example."""
    try:
        forms = {token_index(form, tokenizer, len(tokenizer)) for form in (example.target, example.foil)}
    except ValueError:
        return "a form of the word is not one token"
    if len(forms) < 2:
        return "both forms are the same token"
    ordinary = [span for span, special in zip(tokenized_text.spans, tokenized_text.special, strict=True) if not special]
    evidence = [s for s in ordinary if any(s[0] < end and start < s[1] for start, end in example.evidence)]
    if example.evidence and not evidence:
        return "the evidence has no token"
    if len(ordinary) < 2:
        return "input of a single token"
    return None if len(evidence) < len(ordinary) else "the evidence is the whole input"
