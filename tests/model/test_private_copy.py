"""Packed weights: scores equal those of the weights that they stand for; what rounds more than weights is refused."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tokenlight as tl
from tests import models
from tests.together import together
from tests.tokenizers_ import explainer_for
from tokenlight.explain.memory import Shape
from tokenlight.model.fingerprint import fingerprint
from tokenlight.model.instrumentation_cache import CACHE
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions
from tokenlight.runs.model_hash import hash_model

METHODS = (
    "gradient_x_input",
    "attn_lrp",
    "lrp",
    "zplus_lrp",
    "transformer_attribution",
    "integrated_gradients",
    "alti",
)


class Packed(Tensor):
    """Eight bits and a scale a row, as torchao's classes do it: torch functions know it as one tensor."""

    codes: Tensor
    scales: Tensor
    act_quant_kwargs: object

    @staticmethod
    def __new__(cls, codes: Tensor, scales: Tensor) -> "Packed":
        made = Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scales.dtype, device=codes.device)
        made.codes, made.scales, made.act_quant_kwargs = codes, scales, None
        return made

    def dequantize(self) -> Tensor:  # type: ignore[override]
        return self.codes.to(self.scales.dtype) * self.scales

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scales)
        raise NotImplementedError(f"{func} of packed weights")


def pack(weight: Tensor) -> Packed:
    scales = weight.detach().abs().amax(1, keepdim=True) / 127
    return Packed((weight.detach() / scales).round().to(torch.int8), scales)


def linears(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if type(module) is nn.Linear]


def packed_and_plain(family: str) -> tuple[Any, Any]:
    packed, plain = (copy.deepcopy(models.model(family)) for _ in range(2))
    for one, other in zip(linears(packed), linears(plain), strict=True):
        weight = pack(one.weight)
        other.weight.data.copy_(weight.dequantize())
        one.weight = nn.Parameter(weight, requires_grad=False)
    return packed, plain


def test_the_memory_estimate_counts_unpacked_weights():
    packed, plain = packed_and_plain("llama")
    weights = sum(one.weight.numel() for one in linears(plain))
    assert [Shape.of(one).waiting for one in (plain, packed, InstrumentedModel(packed).model)] == [
        0,
        4 * weights,
        4 * weights,
    ]


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_scores_equal_those_of_the_unpacked_weights(family):
    packed, plain = packed_and_plain(family)
    before = [(id(one.weight), one.weight.codes.clone()) for one in linears(packed)]
    methods = [name for name in METHODS if (family, name) != ("llama", "alti")]  # which is for post-norm models
    exact = together(models.model(family), methods, models.ids(), target=1)
    for record_options in (DEFAULT_RECORD_OPTIONS, RecordOptions(by_block=True, last_logits=True)):
        found, expected = (
            together(one, methods, models.ids(), target=1, record_options=record_options) for one in (packed, plain)
        )
        for name in methods:
            assert torch.equal(found[name].scores, expected[name].scores), name
            assert not torch.equal(found[name].scores, exact[name].scores), name
    for one, (identity, codes) in zip(linears(packed), before, strict=True):
        assert id(one.weight) == identity
        assert torch.equal(one.weight.codes, codes)


def test_logits_equal_those_of_the_unpacked_weights_and_nothing_is_cached():
    packed, plain = packed_and_plain("bert")
    tl.attribute(packed, models.ids(), method="attcat", target=1)
    assert packed not in CACHE
    assert fingerprint(packed) == fingerprint(plain)
    assert [name for name, _ in InstrumentedModel(packed).model.named_modules()] == [
        name for name, _ in packed.named_modules()
    ]


def test_the_model_hash_depends_on_packed_weights():
    explainer = explainer_for("bert")
    model: Any = copy.deepcopy(explainer.model)
    model.classifier.weight = nn.Parameter(pack(model.classifier.weight), requires_grad=False)
    packed = tl.Explainer(model, explainer.tokenizer)
    before = hash_model(packed)
    assert before == hash_model(packed) != hash_model(explainer)
    other = pack(-model.classifier.weight.dequantize())
    model.classifier.weight = nn.Parameter(other, requires_grad=False)
    assert hash_model(packed) != before


def test_changed_packed_values_change_the_fingerprint():
    packed, _ = packed_and_plain("bert")
    before = tl.attribute(packed, models.ids(), method="attcat", target=1)
    packed.classifier.weight.codes.neg_()
    assert not torch.equal(tl.attribute(packed, models.ids(), method="attcat", target=1), before)


def test_quantization_beyond_packed_weights_is_refused():
    packed, _ = packed_and_plain("bert")
    packed.classifier.weight.act_quant_kwargs = "dynamic"
    with pytest.raises(tl.UnsupportedModelError, match="Linear is quantized and rounds its input, too"):
        tl.attribute(packed, models.ids(), method="attcat", target=1)
    packed, _ = packed_and_plain("bert")
    packed.classifier.register_forward_hook(lambda *_: None)
    with pytest.raises(tl.UnsupportedModelError, match="there are hooks on Linear, which is quantized"):
        tl.attribute(packed, models.ids(), method="attcat", target=1)
    model: Any = copy.deepcopy(models.model("bert"))
    model.classifier.weight = nn.Parameter(torch.zeros(3, 16, dtype=torch.int8), requires_grad=False)
    with pytest.raises(tl.UnsupportedModelError, match="more than packed weights"):
        tl.attribute(model, models.ids(), method="attcat", target=1)


def real_layers(kind: str) -> tuple[Any, Any]:
    """A Llama quantized by a package that people use, and the same with the weights that it stands for."""
    quantized: Any = copy.deepcopy(models.model("llama"))
    plain: Any = copy.deepcopy(models.model("llama"))
    if kind == "torchao":
        ao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
        ao.quantize_(quantized.model, ao.Int8WeightOnlyConfig())
        weights = [module.weight.dequantize() for module in linears(quantized.model)]
    else:
        bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
        weights = []
        for name, module in list(quantized.model.named_modules()):
            if type(module) is nn.Linear:
                layer = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, quant_type="nf4")
                layer.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4").to("cpu")
                quantized.model.set_submodule(name, layer)
                weights.append(bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state))
    for module, weight in zip(linears(plain.model), weights, strict=True):
        module.weight.data.copy_(weight)
    return quantized, plain


@pytest.mark.parametrize("kind", ["torchao", "bitsandbytes"])
def test_common_quantization_packages_are_supported(kind):
    quantized, plain = real_layers(kind)
    before = {name: tensor.clone() for name, tensor in quantized.state_dict().items() if type(tensor) is Tensor}
    for method in ("gradient_x_input", "attn_lrp", "zplus_lrp", "alti_logit"):
        found, expected = (tl.attribute(one, models.ids(), method=method, target=1) for one in (quantized, plain))
        assert torch.equal(found, expected)
        assert not torch.equal(expected, tl.attribute(models.model("llama"), models.ids(), method=method, target=1))
    after = quantized.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_layers_with_quantized_inputs_are_refused():
    ao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    model: Any = copy.deepcopy(models.model("llama"))
    ao.quantize_(model.model, ao.Int8DynamicActivationInt8WeightConfig())
    with pytest.raises(tl.UnsupportedModelError, match="rounds its input"):
        tl.attribute(model, models.ids(), method="attn_lrp", target=1)


def test_eight_bit_layers_of_bitsandbytes_are_refused():
    bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    model: Any = copy.deepcopy(models.model("llama"))
    model.model.layers[0].self_attn.o_proj = bnb.nn.Linear8bitLt(16, 16, bias=False, has_fp16_weights=False).to("cpu")
    with pytest.raises(tl.UnsupportedModelError, match="Linear8bitLt is quantized in a way that is more than packed"):
        tl.attribute(model, models.ids(), method="attn_lrp", target=1)
