"""Splits long texts into overlapping windows of tokens, and merges the explanations of the windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.common.notes import Note
from tokenlight.results.explanation import Explanation
from tokenlight.text.tokenized_text import Chat, TokenizedText


@dataclass(frozen=True)
class Window:
    """A section of a text that fits the model, with all special tokens of the text."""

    tokenized_text: TokenizedText
    positions: list[int]  # of its tokens in the whole text
    weights: list[float]  # of its tokens' scores in the mean over overlapping windows


def split_into_windows(tokenized_text: TokenizedText, size: int, overlap: int) -> list[Window]:
    """Windows of at most `size` tokens, special tokens included. Of a pair, each window has the whole first text.

    Neighboring windows share `overlap` tokens. The last window is shifted left to be full, so it may share more.
    """
    if len(tokenized_text) <= size:
        return [Window(tokenized_text, list(range(len(tokenized_text))), [1.0] * len(tokenized_text))]
    if isinstance(tokenized_text.text, Chat):
        raise RefusedValue("a chat is not read in windows: shorten it, or explain it whole")
    last = 1 if isinstance(tokenized_text.text, tuple) else 0
    divided = [i for i, segment in enumerate(tokenized_text.segments) if segment == last]
    free = size - (len(tokenized_text) - len(divided))
    if free <= overlap:
        reserved = "the first text of the pair and the special tokens leave" if last else "the special tokens leave"
        raise RefusedValue(
            f"{reserved} {max(free, 0)} of {size} tokens to a window, which must be more than the overlap"
        )
    last_start = len(divided) - free
    starts = [*range(0, last_start, free - overlap), last_start]
    return [make_window(tokenized_text, divided, start, free) for start in starts]


def make_window(tokenized_text: TokenizedText, divided: list[int], start: int, size: int) -> Window:
    """The window from `start` on. Weights grow with the distance from a cut, as tokens at a cut lack context."""
    offsets = dict(zip(divided[start : start + size], range(size), strict=True))
    cut_left, cut_right = start > 0, start + size < len(divided)

    def weight(position: int) -> float:
        if position not in offsets:
            return 1.0
        left = offsets[position] + 1 if cut_left else size
        right = size - offsets[position] if cut_right else size
        return float(min(left, right))

    left_out = set(divided) - set(offsets)
    positions = [i for i in range(len(tokenized_text)) if i not in left_out]
    return Window(tokenized_text.select(positions), positions, [weight(i) for i in positions])


def merge_explanations(
    whole: TokenizedText, windows: Sequence[Window], explanations: Sequence[Explanation]
) -> Explanation:
    """One explanation of the whole text: the weighted mean of the scores, and the mean of the explained numbers.

    The caller sets the prediction for the whole text.
    """
    scores = torch.zeros(len(whole), dtype=torch.float64)
    weights = torch.zeros(len(whole), dtype=torch.float64)
    for window, explanation in zip(windows, explanations, strict=True):
        token_weights = torch.tensor(window.weights, dtype=torch.float64)
        scores.index_add_(0, torch.tensor(window.positions), token_weights * explanation.scores.double())
        weights.index_add_(0, torch.tensor(window.positions), token_weights)
    notes = list(dict.fromkeys(note for explanation in explanations for note in explanation.notes))
    notes.append(Note("windows", f"read in {len(windows)} windows; scores are averaged where they overlap"))
    return replace(
        explanations[0],
        tokens=whole.tokens,
        scores=(scores / weights).to(explanations[0].scores.dtype),
        special=torch.tensor(whole.special),
        segments=whole.segments,
        spans=whole.spans,
        score=sum(explanation.score for explanation in explanations) / len(explanations),
        extras={},
        maps={},
        notes=tuple(notes),
    )


def mean_logits(logits: Sequence[Tensor]) -> Tensor:
    """[label] the logits of the whole text: the mean over its windows."""
    return torch.stack([window_logits.double() for window_logits in logits]).mean(0)
