"""Tensors of the caller's own that require a gradient, in hooks or adapters, are constants under rules."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tokenlight as tl
from tests import models


def with_hook(trainable: bool, kind: str) -> Any:
    model: Any = copy.deepcopy(models.model("bert", dtype=torch.float64))
    vector = nn.Parameter(torch.linspace(0.5, 1.5, model.config.hidden_size, dtype=torch.float64), trainable)
    layer = model.bert.encoder.layer[1].attention.output.dense
    hooks = {
        "scale": lambda module, args, output: output * vector,
        "shift": lambda module, args, output: output + vector,
        "product": lambda module, args, output: output + (args[0] @ torch.outer(vector, vector).T) * 0.01,
    }
    layer.register_forward_hook(hooks[kind])
    return model


@pytest.mark.parametrize("kind", ["scale", "shift", "product"])
@pytest.mark.parametrize("method", ["lrp", "attn_lrp", "zplus_lrp", "transformer_attribution", "alti_logit"])
def test_a_trainable_tensor_in_a_hook_counts_as_a_constant(method, kind):
    found = [
        tl.attribute(with_hook(trainable, kind), models.ids(), method=method, target=1) for trainable in (False, True)
    ]
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)
