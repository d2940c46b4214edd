"""What is taken out of a text as a whole: tokens, words, sentences or sources, each as the tokens it is made of."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from tokenlight.text import passages
from tokenlight.text.rows import Document, Text, parts
from tokenlight.text.words import group_tokens

Units = Literal["tokens", "words", "sentences", "documents"]
UNITS = get_args(Units)


class TokenizedLike(Protocol):
    """A text that was cut into tokens: a row, or an explanation of it."""

    @property
    def text(self) -> Text: ...
    @property
    def special(self) -> Any: ...  # [token] bool
    @property
    def segments(self) -> Sequence[int | None]: ...
    @property
    def spans(self) -> Sequence[tuple[int, int]]: ...
    @property
    def documents(self) -> Sequence[Document]: ...


def units_of(row: TokenizedLike, kind: Units) -> list[list[int]]:
    """The tokens of each unit, in the order of the text. Tokens that were added to the text are in none."""
    check_units(kind)
    own = [i for i, special in enumerate(row.special) if not special]
    if kind == "tokens":
        return [[i] for i in own]
    texts = parts(row.text)
    if kind == "documents":
        return document_units(row, own)
    if kind == "words":
        groups = group_tokens(texts, row.segments, row.spans, row.special)
        return [group for group in groups if not row.special[group[0]]]
    starts = [[start for start, _ in passages.sentences(part)] for part in texts]
    found: dict[tuple[int, int], list[int]] = {}  # by text and number of the sentence
    for i in own:
        segment = row.segments[i] or 0
        found.setdefault((segment, bisect_right(starts[segment], row.spans[i][0]) - 1), []).append(i)
    return list(found.values())


def document_units(row: TokenizedLike, own: Sequence[int]) -> list[list[int]]:
    """The tokens that begin in each source; a source that was cut off has none and is no unit."""
    if not row.documents:
        raise ValueError("units='documents', but the text has none: name them with documents=")
    places = [(row.segments[i], row.spans[i][0]) for i in own]
    found = [
        [i for i, (segment, first) in zip(own, places, strict=True) if segment == source.segment and first in span]
        for source, span in ((source, range(*source.span)) for source in row.documents)
    ]
    return [unit for unit in found if unit]


def random_sets(units: int, count: int, seed: int) -> Tensor:
    """[set, unit] bool: which units stay, each with probability 1/2; the same for every text of so many units."""
    return torch.rand(count, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) < 0.5


def check_units(kind: object) -> None:
    if kind not in UNITS:
        raise ValueError(f"units is one of {', '.join(UNITS)}; found {kind!r}")
