"""What is done to every chunk of a corpus, and batches of a token budget that fit in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.error_location import reason_to_skip
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.data.examples import BadRow, Example
from tokenlight.explain.explainer import Explainer
from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.results.explanation import Explanation
from tokenlight.results.units import Passage
from tokenlight.runs.halving import by_halves
from tokenlight.text.batch import length_batches
from tokenlight.text.tokenized_text import TokenizedText

LARGEST = {"float32": torch.finfo(torch.float32).max, "float16": torch.finfo(torch.float16).max}
NumberedBadRow = tuple[int, BadRow]


@dataclass(frozen=True)
class ExplainingPlan:
    """What is done to every part."""

    explainer: Explainer
    method_configs: Mapping[str, MethodConfig]  # by label
    settings: CorpusSettings
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """That run together, padding included."""
        return self.settings.tokens_on(self.device)

    @property
    def equal_lengths(self) -> bool:
        return behavior_of(self.explainer.inner).equal_lengths

    def refusal(self, label: str, scores: Tensor) -> str | None:
        """Why scores cannot be written."""
        largest, dtype = float(scores.abs().max()), self.settings.dtype
        if largest <= LARGEST[dtype]:
            return None
        return f"a score of {label} is {largest:.3g}, which {dtype} cannot hold: choose another dtype"


@dataclass(frozen=True)
class ReadAnswer:
    """An answer as the model reads it behind its prompt."""

    text: str
    tokens: list[str]
    spans: list[tuple[int, int]]  # characters
    parts: list[tuple[int, int]]  # characters of what is explained on its own: all of it, its sentences or its tokens


@dataclass(frozen=True)
class AnswerScores:
    """What a method says about an answer beside the scores of its prompt."""

    log_probabilities: Tensor  # [token of the answer]
    numbers: Tensor  # [part] what is explained
    matrix: Tensor  # [part, token]: first the prompt's tokens, then the answer's
    by_document: Sequence[Sequence[Passage]] = ()  # for each part the documents and the rest, where there are any


@dataclass(frozen=True)
class ExplainedText:
    """A text with what each method says about it, and about its answer where it has one."""

    number: int
    example: Example
    found: Mapping[str, Explanation]  # by label
    truncated: int = 0  # tokens
    windows: int = 1
    answer: ReadAnswer | None = None
    by_part: Mapping[str, AnswerScores] = field(default_factory=dict)  # by label


@dataclass(frozen=True)
class ExplainedChunk:
    """Every row of a part is in one of the two, in order."""

    number: int
    texts: list[ExplainedText]
    bad: list[NumberedBadRow]


Found = TypeVar("Found")


@dataclass(frozen=True)
class Failure:
    """Why a text cannot be explained."""

    reason: str


def in_batches(
    tokenized_texts: Sequence[TokenizedText],
    tokens: int,
    exact: bool,
    run: Callable[[list[int]], Sequence[Found]],
    tell: Callable[[list[int]], None] = lambda done: None,
    strict: bool = False,
) -> list[Found | Failure]:
    """`run` on numbers of rows, similar lengths together, at most `tokens` at once with padding; in the rows' order.

    `tell` hears of every batch that is done. With `strict`, unforeseen errors are raised.
    """
    found: dict[int, Found | Failure] = {}
    for batch in length_batches([len(tokenized_text) for tokenized_text in tokenized_texts], tokens, exact):
        found |= zip(batch, attempt(batch, tokenized_texts, run, strict), strict=True)
        tell(batch)
    return [found[i] for i in range(len(tokenized_texts))]


def attempt(
    batch: list[int],
    tokenized_texts: Sequence[TokenizedText],
    run: Callable[[list[int]], Sequence[Found]],
    strict: bool = False,
) -> list[Found | Failure]:
    def failure(place: int, error: Exception, reason: str) -> Found | Failure:
        if is_out_of_memory(error):
            reason = f"its {len(tokenized_texts[place])} tokens do not fit in memory"
        return Failure(reason)

    return by_halves(batch, lambda places: run(list(places)), failure, strict)


def or_failure(make: Callable[[], Found | Failure], strict: bool) -> Found | Failure:
    """What is made of one row, or why it cannot be."""
    try:
        return make()
    except Exception as error:
        return Failure(reason_to_skip(error, strict))
