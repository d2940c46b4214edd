"""Guided backpropagation: against hooks on the ReLUs of the plain model, and refused where activations are no ReLUs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook
from transformers.activations import ACT2FN

import tokenlight as tl
from tests import models
from tests.methods.test_common import padded, uneven_rows
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.methods import METHODS
from tokenlight.rules.custom_ops import activation
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode
from tokenlight.rules.tables import GUIDED

NAME = "guided_backpropagation"
OTHER_IN_HEAD = [("electra", "text-classification"), ("electra", "fill-mask")]  # a GELU, whatever the blocks have
OTHER_IN_HEAD += [("roberta", "fill-mask"), ("xlm_roberta", "fill-mask")]
CASES = [case for case in models.COMBINATIONS if case not in OTHER_IN_HEAD]
USUAL = [case for case in CASES if case[1] == models.default_task(case[0])]
# Norms and rotary positions of the others round to single precision in the plain model.
EXACT = ("bert", "roberta", "distilbert", "gpt2", "opt")


def guided(family: str, task: str, ids: Tensor, mask: Tensor | None = None, **settings: Any) -> Tensor:
    dtype = settings.pop("dtype", torch.float64)
    resolved = {"target": models.target(task), **settings}
    return tl.attribute(models.relu_model(family, task, dtype), ids, mask, method=NAME, **resolved)


@contextmanager
def relus_by_hand() -> Iterator[None]:
    """Hooks on every ReLU that runs: DistilBERT's head makes one while it runs, which hooks on modules would miss."""
    found = []

    def guide(module: nn.Module, args: Any, output: Tensor) -> None:
        if isinstance(module, nn.ReLU):
            found.append(output)
            output.register_hook(lambda arriving: arriving.clamp_min(0))

    hook = register_module_forward_hook(guide)
    try:
        yield
    finally:
        hook.remove()
    assert found


def gradient_by_hand(model: Any, ids: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
    """[batch, token, dim]"""
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    with relus_by_hand():
        explained = read(model(inputs_embeds=embeddings).logits)
    return torch.autograd.grad(explained.sum(), embeddings)[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "opt", "llama", "gemma2", "mixtral"])
def test_as_hooks_on_every_relu_give(family):
    task, ids = models.default_task(family), models.ids()
    model = models.relu_model(family, task, torch.float64)
    index = cast(int, models.target(task))
    read = (lambda out: out[:, index]) if task == "text-classification" else lambda out: out[:, -1, index]
    gradient = gradient_by_hand(model, ids, read)
    precision = torch.float64 if family in EXACT else torch.float32
    for reduce, expected in {"l2": gradient.norm(dim=-1), "l1": gradient.abs().sum(-1)}.items():
        assert_near(guided(family, task, ids, reduce=reduce), expected, precision=precision)
    plain = tl.attribute(model, ids, method="gradient_l2", target=models.target(task))
    assert (gradient.norm(dim=-1) - plain).abs().max() > 0.05 * plain.abs().max()  # nothing else was tested above


def test_at_the_input_of_the_first_block():
    model, ids = models.relu_model("bert", dtype=torch.float64), models.ids()
    states: list[Tensor] = []
    block: Any = model.get_submodule("bert.encoder.layer.0")
    hook = block.register_forward_pre_hook(lambda module, args: states.append(args[0]))
    with relus_by_hand():
        explained = model(ids).logits[:, 1].sum()
    hook.remove()
    (gradient,) = torch.autograd.grad(explained, states)
    assert_near(guided("bert", "text-classification", ids, read="blocks"), gradient.norm(dim=-1))


@pytest.mark.parametrize(("family", "task"), USUAL)
def test_scores_are_sound_and_padding_changes_nothing(family, task):
    rows = uneven_rows()
    ids, mask = padded(rows)
    for dtype in (torch.float64, torch.float32):
        both = guided(family, task, ids, mask, dtype=dtype)
        assert both.shape == ids.shape
        assert both.isfinite().all()
        assert (both >= 0).all()
        assert both.max() > 0
        assert (both[mask == 0] == 0).all()
        for i, row in enumerate(rows):
            alone = guided(family, task, row[None], dtype=dtype)[0]
            assert_near(both[i, : len(row)], alone, precision=dtype, size=both)


@pytest.mark.parametrize(("family", "task"), [case for case in CASES if case not in USUAL])
def test_every_head(family, task):
    scores = guided(family, task, models.ids(2, 7), dtype=torch.float32)
    assert scores.shape == (2, 7)
    assert scores.isfinite().all()
    assert scores.max() > 0


@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("llama", "text-generation")])
def test_ways_to_run_it_give_the_same(family, task):
    ids, order = models.ids(), torch.tensor([2, 0, 1])
    scores = guided(family, task, ids)
    assert_near(guided(family, task, ids, low_memory=True), scores)
    assert_near(guided(family, task, ids, fused=False), scores)
    assert_near(guided(family, task, ids[order]), scores[order])
    assert not torch.allclose(guided(family, task, ids, target=2), scores)


def test_with_a_foil_the_difference_of_the_scores_is_what_is_explained():
    """As with gradient_l2: one backward pass from the difference, so scores stay lengths."""
    ids, model = models.ids(), models.relu_model("bert", dtype=torch.float64)
    gradient = gradient_by_hand(model, ids, lambda out: out[:, 1] - out[:, 2])
    assert_near(guided("bert", "text-classification", ids, foil=2), gradient.norm(dim=-1))


def test_a_wrong_reduction_is_refused():
    with pytest.raises(ValueError, match="reduce is 'l1' or 'l2', found 'sum'"):
        guided("bert", "text-classification", models.ids(), reduce="sum")


# --- What is no ReLU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*(one for one in models.FAMILIES if one != "opt"), *models.RECURRENT])
def test_families_with_other_activations_are_refused_and_left_out(family):
    model = models.model(family, models.default_task(family))
    assert not METHODS[NAME].fits(model)
    with pytest.raises(UnsupportedModelError, match=r"Guided backpropagation.*gradient_l2.*attn_lrp"):
        tl.attribute(model, models.ids(), method=NAME, target=1)


def test_the_activation_is_named():
    for family, name in {"bert": "GELUActivation", "gpt2": "NewGELUActivation", "llama": "SiLUActivation"}.items():
        task = models.default_task(family)
        with pytest.raises(UnsupportedModelError, match=rf"the model applies {name}, which is not a ReLU"):
            tl.attribute(models.model(family, task), models.ids(), method=NAME, target=1)


@pytest.mark.parametrize(("family", "task"), OTHER_IN_HEAD)
def test_one_other_activation_in_the_head_is_enough(family, task):
    with pytest.raises(UnsupportedModelError, match=r"(?i)the model applies .*gelu.*, which is not a ReLU"):
        tl.attribute(models.relu_model(family, task), models.ids(), method=NAME, target=models.target(task))


def test_every_method_at_once_has_it_where_it_is_defined():
    assert NAME not in explainer_for("bert").explain_all("not bad")
    found = explainer_for("opt", "text-generation").explain_all("not bad")
    assert found[NAME].fused
    assert METHODS[NAME].fits(models.relu_model("bert"))  # a pooler's tanh rectifies nothing


# --- One operation at a time ----------------------------------------------------------------------------------------

NUMBERS = torch.tensor([[-2.0, -0.5, 0.0, 0.3, 1.0, 7.0], [3.0, -1.0, 0.7, -0.2, 2.0, 0.1]], dtype=torch.float64)
ARRIVING = torch.tensor([[1.0, -1.0, 1.0, -2.0, 3.0, -1.0], [-1.0, 2.0, 0.5, -3.0, 1.0, -0.5]], dtype=torch.float64)


def written_into(x: Tensor) -> Tensor:
    result = x * 1
    result[result < 0] = 0
    return result


RELUS = {
    "F.relu": F.relu,
    "in place": lambda x: F.relu(x * 1, inplace=True),
    "torch.relu": torch.relu,
    "Tensor.relu": Tensor.relu,
    "nn.ReLU": nn.ReLU(),
    "nn.ReLU6": nn.ReLU6(),
    "F.relu6": F.relu6,
    "clamp": lambda x: x.clamp(min=0),
    "clamp_min": lambda x: torch.clamp_min(x, 0.0),
    "clip": lambda x: x.clip(0, 5),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x.detach())),
    "max": lambda x: torch.max(x, torch.tensor(0.0, dtype=x.dtype)),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "relu2": lambda x: activation(x, ACT2FN["relu2"].forward),
    "maximum, bound first": lambda x: torch.maximum(torch.zeros_like(x.detach()), x),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "where, the other way": lambda x: torch.where(x <= 0, torch.zeros_like(x), x),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.0),
    "times a mask": lambda x: x * (x > 0),
    "a mask times": lambda x: (x > 0).to(x.dtype) * x,
    "times not a mask": lambda x: x * (~(x <= 0)).double(),
    "written into": written_into,
}
PLAIN = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: F.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "a norm that is written out": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "a square": lambda x: x.pow(2),
    "a bound below 0": lambda x: x.clamp(min=-1.0),
    "hardtanh": F.hardtanh,
    "an upper bound": lambda x: x.clamp(max=1.0),
    "linear": lambda x: activation(x, ACT2FN["linear"].forward),
    "the largest": lambda x: x.amax(-1, keepdim=True).expand(2, 6),
    "a sum": lambda x: x + x.flip(0),
    "a mask of other numbers": lambda x: x * (x.flip(0) > 0),
    "a matrix product": lambda x: x @ x.mT @ x,
}
REFUSED = {
    **{name: getattr(F, name) for name in ("gelu", "silu", "leaky_relu", "elu", "selu", "celu", "mish", "softplus")},
    **{name: getattr(F, name) for name in ("hardswish", "softshrink", "tanhshrink", "logsigmoid")},
    "prelu": lambda x: F.prelu(x, torch.full((6,), 0.1, dtype=x.dtype)),
    "threshold": lambda x: F.threshold(x, 0.5, 0.0),
    "quick_gelu": lambda x: activation(x, ACT2FN["quick_gelu"].forward),
    "SiLU that is written out": lambda x: x * torch.sigmoid(x),
    "leaky ReLU that is written out": lambda x: torch.where(x > 0, x, 0.1 * x),
    "GELU that is written out": lambda x: 0.5 * x * (1.0 + torch.erf(x / 2**0.5)),
}


def gradient_under_rules(function: Any) -> Tensor:
    leaf = NUMBERS.clone().requires_grad_()
    with RuleMode(GUIDED, Ledger(2)):
        result = function(leaf)
    return torch.autograd.grad(result, leaf, ARRIVING)[0]


def own_gradient(function: Any, arriving: Tensor) -> Tensor:
    leaf = NUMBERS.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, arriving)[0]


@pytest.mark.parametrize("name", RELUS)
def test_negative_gradients_stop_at_a_relu_however_it_is_written(name):
    expected = own_gradient(RELUS[name], ARRIVING.clamp_min(0))
    torch.testing.assert_close(gradient_under_rules(RELUS[name]), expected, rtol=0, atol=0)
    assert not torch.equal(expected, own_gradient(RELUS[name], ARRIVING))


@pytest.mark.parametrize("name", PLAIN)
def test_what_does_not_rectify_keeps_its_gradient(name):
    torch.testing.assert_close(gradient_under_rules(PLAIN[name]), own_gradient(PLAIN[name], ARRIVING))


@pytest.mark.parametrize("name", REFUSED)
def test_other_activations_are_refused(name):
    with pytest.raises(UnsupportedModelError, match=r"the model applies .*, which is not a ReLU"):
        gradient_under_rules(REFUSED[name])


def test_constants_may_go_through_any_function():
    with RuleMode(GUIDED, Ledger(2)):
        assert torch.equal(F.gelu(NUMBERS), F.gelu(NUMBERS.clone()))
