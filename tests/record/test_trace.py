"""Methods that read block by block: what they are handed, when, and what is left of it."""

import pytest
import torch

from tests import models
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Pass, method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions
from tokenlight.record.trace import Block, Folding, Signal
from tokenlight.rules.tables import ZPLUS
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch

LOW = RecordOptions(by_block=True)


def blocks(count):
    return [Block(number, {"hidden": Signal(torch.tensor(float(number)))}) for number in reversed(range(count))]


def numbers_read():
    seen = []
    while block := (yield):
        seen.append(block.number)
    return seen


def only_the_last():
    block = yield
    return block.number


def never_returns():
    while True:
        yield


def test_blocks_come_from_the_last_to_the_first_and_then_nothing():
    folding = Folding(numbers_read())
    for block in blocks(3):
        folding.feed([block])
    assert not folding.done
    assert folding.finish() == [2, 1, 0]


def test_a_method_may_be_done_before_the_first_block():
    folding = Folding(only_the_last())
    for block in blocks(3):
        folding.feed([block])
        assert folding.done
    assert folding.finish() == 2


def test_a_method_that_never_ends_is_refused():
    folding = Folding(never_returns())
    with pytest.raises(RuntimeError, match="reads on after it received None"):
        folding.finish()


def test_signals_that_were_not_recorded_or_are_released_are_refused():
    (block,) = blocks(1)
    with pytest.raises(ValueError, match='the signal "attention" was not recorded: add it to the needs of the method'):
        _ = block.attention
    block.release()
    with pytest.raises(ValueError, match="read it before the next"):
        _ = block.hidden


@pytest.fixture
def entry():
    """Registers a method for one test."""
    known = set(METHODS)

    def register(function, **facts):
        method(title=function.__name__, paper="this test", signed=True, **facts)(function)
        return METHODS[function.__name__]

    yield register
    for name in set(METHODS) - known:
        del METHODS[name]


def run(entries, record_options, instrumented=None):
    ids = models.ids(2, 6)
    target = BatchTarget(
        models.task("text-classification"), (models.task("text-classification").resolve_target_ids(1, None),) * 2
    )
    instrumented = instrumented or InstrumentedModel(models.model("bert", dtype=torch.float64))
    method_configs = [MethodConfig(one, {"heads": None} if "heads" in one.options else {}) for one in entries]
    return execute_plan(
        instrumented,
        Batch(ids, torch.ones_like(ids)),
        plan_passes(target, method_configs),
        record_options=record_options,
    )[1]


@pytest.mark.parametrize("record_options", [DEFAULT_RECORD_OPTIONS, LOW])
def test_a_released_block_has_no_signals(entry, record_options):
    """Not even if a method keeps a reference to it, or shares the pass with one that reads at once."""

    def keeps_block(trace):
        first = yield
        yield
        return first.hidden.value.sum(-1)

    with pytest.raises(ValueError, match="read it before the next"):
        run([entry(keeps_block, needs=("hidden",)), METHODS["cat"]], record_options)


@pytest.mark.parametrize("record_options", [DEFAULT_RECORD_OPTIONS, LOW])
def test_methods_that_read_by_block_and_at_once_share_a_pass(entry, record_options):
    def whole(trace):
        return torch.stack([signal.relevance.sum(-1) for signal in trace.hidden[:-1]]).sum(0)

    def by_block(trace):
        total = torch.zeros_like(trace.mask, dtype=trace.score.dtype)
        while block := (yield):
            total = total + block.hidden.relevance.sum(-1)
        return total

    first, second = run([entry(whole, needs=("hidden.grad",)), entry(by_block, needs=("hidden.grad",))], record_options)
    torch.testing.assert_close(first.scores, second.scores)
    assert (first.scores != 0).all()


def test_blocks_of_several_passes_come_together(entry):
    def both(ruled, plain):
        while blocks := (yield):
            above, below = blocks
            assert above.number == below.number
            assert not torch.equal(above.attention.relevance, below.attention.relevance)
            torch.testing.assert_close(above.attention.value, below.attention.value)
        return torch.ones_like(plain.mask, dtype=plain.score.dtype)

    passes = (Pass(("attention.grad",), ZPLUS, unit=True, double=True), Pass(("attention.grad",)))
    for record_options in (DEFAULT_RECORD_OPTIONS, LOW):
        run([entry(both, passes=passes)], record_options)


class Counting(InstrumentedModel):
    """How many blocks ran again."""

    count = 0

    def run_block(self, *args, **settings):
        self.count += 1
        return super().run_block(*args, **settings)


def test_blocks_that_no_method_reads_do_not_run_again():
    for names, expected in ((["partial_lrp"], 1), (["partial_lrp", "zplus_lrp"], 2), (["rollout"], 2)):
        instrumented = Counting(models.model("bert"))
        run([METHODS[name] for name in names], LOW, instrumented)
        assert instrumented.count == expected, names


@pytest.mark.parametrize("record_options", [DEFAULT_RECORD_OPTIONS, LOW])
@pytest.mark.parametrize("name", ["raw_attention", "attention_gradient", "attention_grad_cam", "partial_lrp"])
def test_a_pass_of_which_only_the_last_block_is_read_gives_the_same(name, record_options):
    assert METHODS[name].passes[0].last_block
    (alone,) = run([METHODS[name]], record_options)
    together = run([METHODS[name], METHODS["transformer_attribution"], METHODS["rollout"]], record_options)[0]
    torch.testing.assert_close(alone.scores, together.scores)
    assert alone.scores.abs().max() > 0


def test_blocks_below_the_last_leave_no_graph(entry):
    def last_only(trace):
        block = yield
        assert block.number == 1
        assert len(trace.attention) == 1
        return block.attention.value.sum((1, 2)) * block.attention.relevance.sum()

    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(1) or tensor, lambda tensor: tensor):
        run([entry(last_only, needs=("attention.grad",), last_block=True)], DEFAULT_RECORD_OPTIONS)
        few = len(seen)
        run([METHODS["attention_x_gradient"]], DEFAULT_RECORD_OPTIONS)
    assert 1.6 * few < len(seen) - few  # two blocks instead of one, beside the head
