"""A call leaves nothing behind that has to wait for the garbage collector, which may come late: tensors are large."""

import gc

import pytest
import torch

from tests import models
from tests.tokenizers_ import explainer_for
from tokenlight.explain.explainer import Explainer
from tokenlight.methods import METHODS
from tokenlight.model.config import layers_and_heads

RECORDED = [name for name, entry in METHODS.items() if entry.passes and models.runs_here(name)]
TEXT = "it is a good movie and they are not bad at all"


def new_tensors() -> int:
    """Tensors that were created after the last collection and are still alive, while automatic collection is off.

    Only a collection moves objects out of generation 0; the objects of all earlier tests need not be walked.
    """
    return sum(type(thing) in (torch.Tensor, torch.nn.Parameter) for thing in gc.get_objects(generation=0))


def left_behind(explainer: Explainer, method: str, **options: object) -> int:
    """Tensors that two calls add to those of the calls before."""
    gc.collect()
    gc.disable()
    try:
        counts = []
        for _ in range(4):
            explainer.explain(TEXT, method, progress=False, **options)  # type: ignore[arg-type]
            counts.append(new_tensors())
        return counts[-1] - counts[1]
    finally:
        gc.enable()


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("method", [*RECORDED, "integrated_gradients", "erasure", "atman"])
def test_no_tensor_waits_for_the_garbage_collector(method, low_memory):
    explainer = explainer_for("bert")
    options = {"heads": torch.ones(layers_and_heads(explainer.model))} if "heads" in METHODS[method].options else {}
    assert left_behind(explainer, method, low_memory=low_memory, **options) == 0


@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2"])
@pytest.mark.parametrize("method", ["attn_lrp", "zplus_lrp", "gradient_x_input"])
def test_of_other_families(family, method):
    assert left_behind(explainer_for(family), method) == 0


def test_of_a_method_for_relus():
    assert left_behind(explainer_for("opt", "text-generation"), "guided_backpropagation") == 0
