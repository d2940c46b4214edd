"""The attention functions refuse what they could not record as it is."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tokenlight as tl
from tokenlight.model.attention import attention
from tokenlight.model.capture import Capture, CaptureSpec


def attend(capture: Capture, keys: int) -> torch.Tensor:
    module = nn.Identity()
    module.__dict__["tokenlight"] = SimpleNamespace(capture=capture)
    return attention(module, torch.ones(1, 2, 3, 4), torch.ones(1, 2, keys, 4), torch.ones(1, 2, keys, 4), None)[0]


def test_keys_that_are_not_tokens_are_refused_when_maps_are_captured():
    assert attend(Capture(), keys=5).shape == (1, 3, 2, 4)
    assert attend(Capture(CaptureSpec(frozenset({"attention"}))), keys=3).shape == (1, 3, 2, 4)
    with pytest.raises(tl.UnsupportedModelError, match="5 keys in a text of 3 tokens"):
        attend(Capture(CaptureSpec(frozenset({"attention"}))), keys=5)
