"""The user's model is never changed, not for a moment: not on success, not after an error, not from another thread."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tokenlight as tl
from tests import models
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.methods import METHODS
from tokenlight.model.behavior_probes import behavior_of


def fresh(family: str = "bert", task: str | None = None) -> Any:
    return copy.deepcopy(models.model(family, task or models.default_task(family)))


def attribute(model: Any, method: str, task: str = "text-classification", **resolved: Any) -> Tensor:
    resolved = resolved or {"target": models.target(task)}
    return tl.attribute(model, models.ids(), method=method, **resolved, **models.quick_options(method))


def state(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that could be changed, in values that can be compared."""
    modules = dict(model.named_modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    inner: Any = model
    return {
        "parameters": {n: (id(p), p.data_ptr(), p._version, p.clone()) for n, p in model.named_parameters()},
        "requires_grad": {n: p.requires_grad for n, p in model.named_parameters()},
        "grad": {n: p.grad for n, p in model.named_parameters()},
        "buffers": {n: (id(b), b._version, b.clone()) for n, b in model.named_buffers()},
        "training": {n: m.training for n, m in modules.items()},
        "modules": {n: (id(m), type(m)) for n, m in modules.items()},
        "attributes": {n: set(vars(m)) for n, m in modules.items()},
        "hooks": {n: [dict(getattr(m, kind)) for kind in hooks] for n, m in modules.items()},
        "implementation": inner.config._attn_implementation,
        "config": (id(inner.config), copy.deepcopy(inner.config.to_dict())),
        "grad mode": torch.is_grad_enabled(),
    }


def assert_same(before: Any, after: Any) -> None:
    if isinstance(before, Tensor):
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for name in before:
            assert_same(before[name], after[name])
    elif isinstance(before, list | tuple):
        assert len(before) == len(after)
        for one, two in zip(before, after, strict=True):
            assert_same(one, two)
    else:
        assert before == after


@pytest.mark.parametrize(
    ("method", "training"),
    [
        *((name, True) for name in METHODS if models.runs_here(name)),
        ("attcat", False),
        ("erasure", False),
    ],
)
def test_a_successful_call_leaves_the_model_unchanged(method, training):
    model = fresh().train(training)
    before = state(model)
    attribute(model, method)
    assert_same(before, state(model))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("family", models.FAMILIES)
def test_models_of_every_family_stay_unchanged(family):
    task = models.default_task(family)
    model = fresh(family)
    before = state(model)
    attribute(model, "attcat", task)
    assert_same(before, state(model))


def test_mixed_training_and_gradient_flags_stay_unchanged():
    model = fresh().train()
    model.bert.encoder.layer[0].eval()
    model.bert.embeddings.requires_grad_(False)
    weight = model.classifier.weight
    weight.grad = torch.ones_like(weight)
    before = state(model)
    attribute(model, "attcat")
    assert_same(before, state(model))
    assert torch.equal(weight.grad, torch.ones_like(weight))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_implementation_stays_unchanged(implementation):
    model = fresh("llama")
    model.set_attn_implementation(implementation)
    attribute(model, "attcat", "text-generation")
    assert model.config._attn_implementation == implementation


def failing_target(output: Any) -> Tensor:
    raise ZeroDivisionError("on purpose")


def test_an_exception_in_the_target_leaves_the_model_unchanged():
    model = fresh().train()
    before = state(model)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        attribute(model, "attcat", target=failing_target)
    assert_same(before, state(model))


def test_an_exception_during_the_forward_pass_leaves_the_model_unchanged():
    model = fresh().train()

    def fail(*args: Any) -> None:
        raise ZeroDivisionError("in a block")

    handle = model.bert.encoder.layer[1].register_forward_hook(fail)
    before = state(model)
    with pytest.raises(ZeroDivisionError, match="in a block"):
        attribute(model, "attcat")
    assert_same(before, state(model))
    handle.remove()
    assert torch.equal(attribute(model, "attcat"), attribute(models.model("bert"), "attcat"))


def test_a_target_without_a_gradient_raises_and_leaves_the_model_unchanged():
    model = fresh()

    def no_gradient(output: Any) -> Tensor:
        return output.logits[:, 0].detach()

    before = state(model)
    with pytest.raises(ValueError, match="result has no gradient"):
        attribute(model, "attcat", target=no_gradient)
    assert_same(before, state(model))


class Counter:
    """A hook whose owner holds state, as loggers and profilers do."""

    __hash__ = None  # type: ignore[assignment]  # as in a dataclass

    def __init__(self) -> None:
        self.calls = 0
        self.lock = threading.Lock()  # cannot be copied
        self.seen: list[tuple[int, ...]] = []

    def hook(self, module: nn.Module, args: Any, output: Any) -> None:
        with self.lock:
            self.calls += 1
        self.seen.append(tuple(output[0].shape))

    def pre_hook(self, module: nn.Module, args: Any) -> None:
        self.calls += 1


def test_bound_method_hooks_stay_on_the_model_and_keep_their_owner():
    model, counter = fresh(), Counter()
    block = model.bert.encoder.layer[0]
    block.register_forward_hook(counter.hook)
    block.register_forward_pre_hook(counter.pre_hook)
    before = state(model)
    scores = attribute(model, "attcat")
    assert_same(before, state(model))
    assert torch.equal(scores, attribute(models.model("bert"), "attcat"))
    assert next(iter(block._forward_hooks.values())).__self__ is counter
    counter.calls = 0
    model(models.ids())
    assert counter.calls == 2


def test_a_hook_that_changes_the_model_is_part_of_the_model():
    model = fresh()
    model.bert.embeddings.register_forward_hook(lambda module, args, output: output * 2)
    expected = model(models.ids()).logits[:, 1]
    seen = []

    def pick(output: Any) -> Tensor:
        seen.append(output.logits[:, 1])
        return seen[-1]

    attribute(model, "attcat", target=pick)
    torch.testing.assert_close(seen[0], expected)
    assert not torch.allclose(seen[0], models.model("bert")(models.ids()).logits[:, 1])


class CallableCounter(Counter):
    """A hook that is an object of its own."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.hook(module, args, output)


def test_callable_objects_used_as_hooks_are_not_copied():
    model, counter = fresh(), CallableCounter()
    model.bert.encoder.layer[0].register_forward_hook(counter)
    before = state(model)
    assert torch.equal(attribute(model, "attcat"), attribute(models.model("bert"), "attcat"))
    assert_same(before, state(model))


def test_a_hook_bound_to_an_enclosing_module_is_not_copied():
    class Around(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.counter = inner, Counter()
            inner.register_forward_hook(self.hook)

        def hook(self, module: nn.Module, args: Any, output: Any) -> None:
            self.counter.calls += 1

    model = fresh()
    around = Around(model)
    behavior_of(model)  # a new model is looked at first
    before = around.counter.calls
    attribute(model, "attcat")
    assert around.counter.calls == before + 1


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_of_the_user_neither_fire_nor_change_the_result(register):
    model, counter = fresh(), Counter()

    def double(*args: Any) -> Any:
        counter.calls += 1
        return tuple(2 * grad for grad in args[1])

    getattr(model.bert.encoder.layer[1].output.dense, register)(double)
    before = state(model)
    assert torch.equal(attribute(model, "attcat"), attribute(models.model("bert"), "attcat"))
    assert counter.calls == 0
    assert_same(before, state(model))
    model(models.ids()).logits.sum().backward()
    assert counter.calls == 1


def test_user_tensors_and_buffers_on_modules_are_not_written_to():
    model = fresh()
    model.register_buffer("mine", torch.arange(3.0))
    model.notes = torch.ones(2, requires_grad=True) * 2  # a non-leaf cannot be deep-copied
    before = state(model)
    attribute(model, "attcat")
    assert_same(before, state(model))


def test_another_model_with_the_same_config_object_stays_unchanged():
    one = fresh()
    two = type(one)(one.config).eval()
    assert one.config is two.config
    implementation, before = two.config._attn_implementation, state(two)
    with torch.no_grad():
        expected = two(models.ids()).logits
    attribute(one, "attcat")
    assert_same(before, state(two))
    assert two.config._attn_implementation == implementation
    with torch.no_grad():
        assert torch.equal(two(models.ids()).logits, expected)


def test_tied_weights_stay_tied():
    model = fresh("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    attribute(model, "attcat", "text-generation")
    assert model.lm_head.weight is model.transformer.wte.weight


def test_the_model_can_still_be_trained_afterwards():
    model = fresh().train()
    attribute(model, "integrated_gradients")
    model.eval()(models.ids(), labels=torch.tensor([0, 1, 2])).loss.backward()
    expected = fresh()
    expected(models.ids(), labels=torch.tensor([0, 1, 2])).loss.backward()
    for one, two in zip(model.parameters(), expected.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        assert one.grad is None or two.grad is None or torch.equal(one.grad, two.grad)


def test_changed_weights_are_used_by_the_next_call():
    model = fresh()
    first = attribute(model, "attcat")
    with torch.no_grad():
        model.classifier.weight.mul_(2)
    torch.testing.assert_close(attribute(model, "attcat"), 2 * first)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_threads_with_different_methods_on_one_model_do_not_affect_each_other(family):
    model, task = fresh(family), models.default_task(family)
    names = ["attcat", "integrated_gradients", "generic_attention", "rollout", "erasure", "gradient_l2"]
    alone = {name: attribute(model, name, task) for name in names}
    with ThreadPoolExecutor(6) as pool:
        method_configs = [(name, pool.submit(attribute, model, name, task)) for _ in range(6) for name in names]
    for name, method_config in method_configs:
        assert torch.equal(method_config.result(), alone[name])


def test_threads_with_the_same_explainer_and_method_agree():
    model = fresh("gpt2", "text-classification")
    alone = attribute(model, "attcat")
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(attribute, model, "attcat") for _ in range(20)]
    assert all(torch.equal(method_config.result(), alone) for method_config in results)


def test_a_plain_forward_pass_in_another_thread_is_not_affected():
    model, stop, wrong = fresh(), threading.Event(), []
    with torch.no_grad():
        expected = model(models.ids()).logits
    count = [0]

    def watch() -> None:
        while not stop.is_set():
            with torch.no_grad():
                if not torch.equal(model(models.ids()).logits, expected):
                    wrong.append(count[0])
            count[0] += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for method in ("attcat", "rollout", "erasure", "integrated_gradients") * 3:
            attribute(model, method)
    finally:
        stop.set()
        watcher.join()
    assert count[0] > 5
    assert not wrong


def test_the_model_is_unchanged_at_every_moment_of_an_explanation():
    model = fresh().train()
    before, differences = state(model), []

    def look(output: Any) -> Tensor:
        try:
            assert_same(
                {k: v for k, v in before.items() if k != "grad mode"},
                {k: v for k, v in state(model).items() if k != "grad mode"},
            )
        except AssertionError as error:
            differences.append(error)
        return output.logits[:, 0]

    attribute(model, "attcat", target=look)
    assert not differences


class CountingNorm(torch.nn.Module):
    """Counts how often it runs in a buffer, by one of several operations."""

    count: Any

    def __init__(self, inner: torch.nn.Module, write: str):
        super().__init__()
        self.inner, self.write = inner, write
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.write == "add_":
            self.count.add_(1)
        elif self.write == "+=":
            self.count += 1
        elif self.write == "[]":
            self.count[0] = 5
        elif self.write == "data":
            self.count.data[1:].mul_(0).add_(3)
        elif self.write == "out":
            torch.add(self.count, 1, out=self.count)
        else:
            self.count = self.count + 1  # a new tensor, in the copy alone
        return self.inner(x)


@pytest.mark.parametrize("write", ["add_", "+=", "[]", "data", "out", "assign"])
def test_writes_into_buffers_are_refused(write):
    model = fresh()
    model.bert.embeddings.LayerNorm = counting = CountingNorm(model.bert.embeddings.LayerNorm, write)
    if write == "assign":
        tl.attribute(model, models.ids(), method="gradient_x_input", target=1)
    else:
        with pytest.raises(UnsupportedModelError, match=r"writes into its buffer bert\.embeddings\.LayerNorm\.count"):
            tl.attribute(model, models.ids(), method="gradient_x_input", target=1)
    assert not counting.count.any()
