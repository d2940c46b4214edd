"""Checks of target functions: a text's value may not depend on padding or on other texts of the batch."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.text.batch import Batch

OutputFunction = Callable[[Any], Tensor]  # the model's output -> [batch]


def texts_in(output: Any) -> int:
    """The number of texts: the first axis of every tensor of an output."""
    return next(len(part) for part in output.values() if isinstance(part, Tensor))


def check_score(score: Any, batch: int) -> Tensor:
    if not isinstance(score, Tensor) or score.shape != (batch,):
        found = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
        raise RefusedValue(f"a target function must return one number per text, shape ({batch},); found {found}")
    if torch.is_grad_enabled() and not score.requires_grad:
        raise RefusedValue(
            "the target function's result has no gradient: compute it from the output, without detaching"
        )
    return score


def call_target_function(function: OutputFunction, output: Any) -> Tensor:
    """[batch] the function's numbers."""
    score = check_score(function(output), texts_in(output))
    refuse_mixed_texts(function, output, score.detach())
    return score


def refuse_mixed_texts(function: OutputFunction, output: Any, score: Tensor) -> None:
    """The first text without the others, and the others without it, must have the same numbers as all together.

    A function that reads tensors of the caller's for the whole batch (labels, positions) cannot be called on a part of
    it and is not checked.
    """
    texts = len(score)
    if texts < 2:
        return
    try:
        with torch.no_grad():
            parts = [
                function(map_tensors(output, lambda x, s=s: select_texts(x, s, texts))) for s in split_first(texts)
            ]
    except Exception:  # the function reads tensors of the whole batch, so it cannot be called on a part
        return
    if [getattr(part, "shape", None) for part in parts] != [(1,), (texts - 1,)]:
        return
    largest = max(float(x.abs().max()) for x in (score, *floats_in(output)) if x.numel())
    if not torch.allclose(
        torch.cat(parts), score, rtol=0, atol=torch.finfo(score.dtype).eps ** 0.5 * largest, equal_nan=True
    ):
        raise RefusedValue(
            "the target function mixes texts: for one text it gives another number than in a batch with other texts. "
            "Leave the first axis alone, for example output.logits.mean(-1) instead of output.logits.mean()"
        )


def split_first(texts: int) -> tuple[slice, slice]:
    return slice(0, 1), slice(1, texts)


def select_texts(tensor: Tensor, rows: slice, texts: int) -> Tensor:
    return tensor[rows] if tensor.ndim and len(tensor) == texts else tensor


def refuse_padding_read(function: OutputFunction, output: Any, batch: Batch) -> None:
    """A function whose gradient at the output of a padding token is not 0."""
    positions = torch.arange(batch.attention_mask.shape[1], device=batch.attention_mask.device)
    padding = (positions < batch.first[:, None]) | (positions > batch.last[:, None])  # [batch, token]
    if not padding.any():
        return
    leaves: list[Tensor] = []

    def as_leaf(tensor: Tensor) -> Tensor:
        # Logits [batch, label] have no token axis; start and end logits [batch, token] have one.
        by_token = tensor.shape[:2] == padding.shape and (tensor.ndim > 2 or tensor is not output.get("logits"))
        tensor = tensor.detach()
        if by_token and tensor.is_floating_point():
            leaves.append(tensor.requires_grad_())
        return tensor

    with torch.enable_grad():
        score = function(map_tensors(output, as_leaf))
        if not isinstance(score, Tensor) or not score.requires_grad:
            return  # it reads no token, or is refused where it is called
        gradients = torch.autograd.grad(score.sum(), leaves, allow_unused=True)
    for gradient in gradients:
        if gradient is not None and (read := read_tokens(gradient) & padding.to(gradient.device)).any():
            raise RefusedValue(
                f"the target function reads token {int(read.nonzero()[0, 1])} of a text, which is padding. Read the "
                "outputs of real tokens alone, or give rows of equal length, one call for each length"
            )


def read_tokens(gradient: Tensor) -> Tensor:
    """[batch, token, ...] -> [batch, token] bool: where it is not 0."""
    return gradient.ne(0).view(*gradient.shape[:2], -1).any(-1)


def map_tensors(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same output with changed tensors, also in tuples such as hidden_states."""
    return type(output)(**{name: map_part(part, change) for name, part in output.items()})


def map_part(part: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(part, Tensor):
        return change(part)
    return type(part)(map_part(element, change) for element in part) if type(part) in (tuple, list) else part


def floats_in(output: Any) -> Iterator[Tensor]:
    return (part.detach() for part in output.values() if isinstance(part, Tensor) and part.is_floating_point())
