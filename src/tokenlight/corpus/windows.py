"""Long texts in overlapping windows of tokens, and their scores joined again."""

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
    """A part of a text as the model reads it, with the special tokens of the whole."""

    tokenized_text: TokenizedText
    places: list[int]  # of its tokens in the whole row
    weights: list[float]  # what its scores count for where windows overlap


def cut(tokenized_text: TokenizedText, size: int, overlap: int) -> list[Window]:
    """Windows of at most `size` tokens, special tokens included; of a pair the second text is cut, the first repeated.

    Neighbors share `overlap` tokens; the last window is moved back to be full, so it may share more.
    """
    if len(tokenized_text) <= size:
        return [Window(tokenized_text, list(range(len(tokenized_text))), [1.0] * len(tokenized_text))]
    if isinstance(tokenized_text.text, Chat):
        raise RefusedValue("a chat is not read in windows: shorten it, or explain it whole")
    last = 1 if isinstance(tokenized_text.text, tuple) else 0
    moving = [i for i, segment in enumerate(tokenized_text.segments) if segment == last]
    room = size - (len(tokenized_text) - len(moving))
    if room <= overlap:
        what = "the first text of the pair and the special tokens leave" if last else "the special tokens leave"
        raise RefusedValue(f"{what} {max(room, 0)} of {size} tokens to a window, which must be more than the overlap")
    end = len(moving) - room
    return [window(tokenized_text, moving, start, room) for start in [*range(0, end, room - overlap), end]]


def window(tokenized_text: TokenizedText, moving: list[int], start: int, room: int) -> Window:
    """A token counts the more, the farther it is from where its window is cut: there it is read without its context."""
    inside = dict(zip(moving[start : start + room], range(room), strict=True))
    cut_left, cut_right = start > 0, start + room < len(moving)

    def weight(place: int) -> float:
        if place not in inside:
            return 1.0
        left = inside[place] + 1 if cut_left else room
        right = room - inside[place] if cut_right else room
        return float(min(left, right))

    others = set(moving) - set(inside)
    places = [i for i in range(len(tokenized_text)) if i not in others]
    return Window(tokenized_text.select(places), places, [weight(i) for i in places])


def merge(whole: TokenizedText, windows: Sequence[Window], found: Sequence[Explanation]) -> Explanation:
    """One explanation of the whole text: scores averaged by weight, the explained number averaged over windows.

    What the model says about the whole text is for the caller to fill in.
    """
    scores = torch.zeros(len(whole), dtype=torch.float64)
    weights = torch.zeros(len(whole), dtype=torch.float64)
    for one, explanation in zip(windows, found, strict=True):
        own = torch.tensor(one.weights, dtype=torch.float64)
        scores.index_add_(0, torch.tensor(one.places), own * explanation.scores.double())
        weights.index_add_(0, torch.tensor(one.places), own)
    notes = list(dict.fromkeys(note for explanation in found for note in explanation.notes))
    notes.append(Note("windows", f"read in {len(windows)} windows; scores are averaged where they overlap"))
    return replace(
        found[0],
        tokens=whole.tokens,
        scores=(scores / weights).to(found[0].scores.dtype),
        special=torch.tensor(whole.special),
        segments=whole.segments,
        spans=whole.spans,
        score=sum(explanation.score for explanation in found) / len(found),
        extras={},
        maps={},
        notes=tuple(notes),
    )


def mean_logits(logits: Sequence[Tensor]) -> Tensor:
    """[label] what the model says about the whole text: the mean over its windows."""
    return torch.stack([one.double() for one in logits]).mean(0)
