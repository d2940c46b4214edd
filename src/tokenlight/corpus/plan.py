"""What is done to every part of a corpus, and what comes out of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokenlight.corpus.settings import CorpusSettings
from tokenlight.data.examples import BadRow, Example
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.jobs import MethodConfig
from tokenlight.model.habits import behavior_of
from tokenlight.results.explanation import Explanation
from tokenlight.results.passage import Passage

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
