"""Cosine similarities between tokens in every layer: of attention-block outputs, transformed vectors and states."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

import tokenlight as tl
from tokenlight.methods import Attribution, find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.methods.contributions import Layer
from tokenlight.methods.decomposition import multiply_layers
from tokenlight.record.trace import Fold, Trace


def between_outputs(layer: Layer) -> Tensor:
    """cos(y_j, y_k) [token, token]"""
    directions = normalize(layer.output, dim=-1)
    return directions @ directions.T


def between_vectors(layer: Layer) -> Tensor:
    """Mean over positions i of cos(T_i(x_j), T_i(x_k)) [token, token]"""
    sent = torch.einsum("hij,hjd->ijd", layer.attention * layer.scale[:, None], layer.vectors)
    own = torch.arange(len(sent))
    sent[own, own] += layer.residual
    directions = normalize(sent, dim=-1)
    return torch.einsum("ijd,ikd->jk", directions, directions) / len(sent)


def cosines(trace: Trace, *, of: str = "outputs", position: int = 0) -> Fold[Attribution]:
    """The matrices of each layer as the map "contributions"."""
    return (yield from multiply_layers(trace, between_outputs if of == "outputs" else between_vectors, True, position))


def mean_of_pairs(matrices: Tensor) -> Tensor:
    """[layer] the mean over pairs of different tokens, from [layer, token, token]."""
    tokens = matrices.shape[-1]
    return (matrices.sum((1, 2)) - matrices.diagonal(dim1=1, dim2=2).sum(1)) / (tokens * (tokens - 1))


def states_between_layers(explainer: tl.Explainer, text: str) -> Tensor:
    """[layer + 1, token, token] cosines of the first block's input and of every block's output."""
    device = explainer.inner.device
    inputs: dict[str, Any] = dict(explainer.tokenizer(text, return_tensors="pt", truncation=True).to(device))
    if explainer.inner.config.model_type == "distilbert":
        inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        states = explainer.inner(**inputs, output_hidden_states=True).hidden_states
    directions = normalize(torch.cat(states).cpu(), dim=-1)
    return directions @ directions.mT


def mean_cosines(explainer: tl.Explainer, texts: Sequence[str], released: bool) -> dict[str, list[float]]:
    """The means of all layers of one model: of outputs (released: states between layers), and of vectors."""
    method_config = replace(find_method("alti"), name="cosines", function=cosines)  # reads the same signals
    method_configs = {name: MethodConfig(method_config, {"of": name}) for name in ("outputs", "vectors")}
    explained = explainer.explain_configs(list(texts), method_configs)
    lines = {
        name: [mean_of_pairs(e.maps["contributions"]) for e in explanations] for name, explanations in explained.items()
    }
    if released:
        lines["outputs"] = [mean_of_pairs(states_between_layers(explainer, text)) for text in texts]
    return {name: torch.stack(means).mean(0).tolist() for name, means in lines.items()}
