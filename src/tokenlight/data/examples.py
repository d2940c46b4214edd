"""One row of data, whatever it came from: a text with what is known about it, or the reason why it is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tokenlight.text.rows import Text
from tokenlight.text.sources import Document

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
        raise ValueError(f"example {example.id}: expected one {MASK_MARK} in a single text, found {text!r}")
    place = text.index(MASK_MARK)
    shift = len(mask_token) - len(MASK_MARK)
    moved = tuple((s + shift, e + shift) if s > place else (s, e) for s, e in example.evidence)
    return replace(example, text=text.replace(MASK_MARK, mask_token), evidence=moved)
