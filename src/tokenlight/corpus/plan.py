"""The plan for every chunk of a corpus, its results, and batches with a budget of tokens."""

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
from tokenlight.runs.isolate_failures import isolate_failures
from tokenlight.text.batch import length_batches
from tokenlight.text.tokenized_text import TokenizedText

MAXIMA = {"float32": torch.finfo(torch.float32).max, "float16": torch.finfo(torch.float16).max}
NumberedBadRow = tuple[int, BadRow]


@dataclass(frozen=True)
class ExplainingPlan:
    """How each chunk is explained."""

    explainer: Explainer
    method_configs: Mapping[str, MethodConfig]  # by label
    settings: CorpusSettings
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """Tokens in a batch, padding included."""
        return self.settings.tokens_on(self.device)

    @property
    def equal_lengths(self) -> bool:
        return behavior_of(self.explainer.inner).equal_lengths

    def refusal(self, label: str, scores: Tensor) -> str | None:
        """Why scores cannot be stored; None if they can."""
        largest, dtype = float(scores.abs().max()), self.settings.dtype
        if largest <= MAXIMA[dtype]:
            return None
        return f"a score of {label} is {largest:.3g}, which {dtype} cannot hold: choose another dtype"


@dataclass(frozen=True)
class ReadAnswer:
    """An answer as the model reads it after its prompt."""

    text: str
    tokens: list[str]
    spans: list[tuple[int, int]]  # characters
    parts: list[tuple[int, int]]  # characters of what is explained separately: the answer, its sentences or its tokens


@dataclass(frozen=True)
class AnswerScores:
    """A method's scores of an answer, in addition to those of its prompt."""

    log_probabilities: Tensor  # [token of the answer]
    explained: Tensor  # [part] the explained numbers
    matrix: Tensor  # [part, token]: first the prompt's tokens, then the answer's
    by_document: Sequence[Sequence[Passage]] = ()  # for each part, the documents and the rest; empty without documents


@dataclass(frozen=True)
class ExplainedText:
    """A text with the explanations of all methods, and the scores of its answer if it has one."""

    number: int
    example: Example
    explanations: Mapping[str, Explanation]  # by label
    truncated: int = 0  # tokens
    windows: int = 1
    answer: ReadAnswer | None = None
    by_part: Mapping[str, AnswerScores] = field(default_factory=dict)  # by label


@dataclass(frozen=True)
class ExplainedChunk:
    """The results of a chunk: each row is in one of the two lists, in order."""

    number: int
    texts: list[ExplainedText]
    bad: list[NumberedBadRow]


Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """Why a text cannot be explained."""

    reason: str


def run_in_batches(
    tokenized_texts: Sequence[TokenizedText],
    tokens: int,
    equal_lengths: bool,
    run: Callable[[list[int]], Sequence[Result]],
    on_batch_done: Callable[[list[int]], None] = lambda batch: None,
    strict: bool = False,
) -> list[Result | Failure]:
    """The results of `run`, which gets the indices of a batch of texts; in the order of the texts.

    A batch has texts of similar (with `equal_lengths`, equal) length and at most `tokens` tokens, padding included.
    `on_batch_done` is called with the indices after each batch. With `strict`, unforeseen errors are raised.
    """
    results: dict[int, Result | Failure] = {}
    for batch in length_batches([len(tokenized_text) for tokenized_text in tokenized_texts], tokens, equal_lengths):
        results |= zip(batch, run_batch(batch, tokenized_texts, run, strict), strict=True)
        on_batch_done(batch)
    return [results[i] for i in range(len(tokenized_texts))]


def run_batch(
    batch: list[int],
    tokenized_texts: Sequence[TokenizedText],
    run: Callable[[list[int]], Sequence[Result]],
    strict: bool = False,
) -> list[Result | Failure]:
    """The results of `run` for a batch; texts that fail, also for lack of memory, are replaced by the failure."""

    def failure(index: int, error: Exception, reason: str) -> Result | Failure:
        if is_out_of_memory(error):
            reason = f"its {len(tokenized_texts[index])} tokens do not fit in memory"
        return Failure(reason)

    return isolate_failures(batch, lambda indices: run(list(indices)), failure, strict)


def or_failure(make: Callable[[], Result | Failure], strict: bool) -> Result | Failure:
    """The result of `make`, or the failure if it raises an error that concerns one row."""
    try:
        return make()
    except Exception as error:
        return Failure(reason_to_skip(error, strict))
