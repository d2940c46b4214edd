"""The attributions of methods: scores at padding set to 0, and those of a target's parts added up or stacked."""

from dataclasses import replace

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig


def join_parts(
    method_config: MethodConfig, parts: list[Attribution], signs: list[int], fused: bool, in_parts: bool
) -> Attribution:
    """The scores of the target's parts, added up with their signs, or stacked if they are explained one by one.

    Maps of a method that does not depend on the target are the same for every part, and are not added.
    """
    join = stack_parts if in_parts else add_parts
    scores = join([part.scores for part in parts], signs)
    if not torch.isfinite(scores).all():
        raise RefusedValue(f"method '{method_config.method.name}' gave scores that are not finite on this input")
    extras = {name: join([part.extras[name] for part in parts], signs) for name in parts[0].extras}
    if method_config.method.class_specific or in_parts:
        maps = {name: join([part.maps[name] for part in parts], signs) for name in parts[0].maps}
    else:
        maps = parts[0].maps
    return Attribution(scores, extras, maps, fused)


def zero_padding_scores(mask: Tensor, part: Attribution) -> Attribution:
    """Scores of padding, and of tokens after the explained token of a continuation, are exactly 0."""
    return replace(part, scores=torch.where(mask, part.scores.to(mask.device), 0.0))


def add_parts(tensors: list[Tensor], signs: list[int]) -> Tensor:
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)]).sum(0)


def stack_parts(tensors: list[Tensor], signs: list[int]) -> Tensor:
    """[batch, part, ...]"""
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)], 1)


def as_attribution(result: Tensor | Attribution) -> Attribution:
    return result if isinstance(result, Attribution) else Attribution(result)
