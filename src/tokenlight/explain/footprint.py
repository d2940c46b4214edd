"""How much memory passes need: derived from the shape of the model and from what rules keep for the backward pass.

Sizes are counted in three kinds of tensors of a block: states [batch, token, dim], inner states of the MLP
[batch, token, inner] and maps [batch, head, query, key]. docs/large-models.md has the derivation and what was measured.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from transformers import PreTrainedModel

from tokenlight.explain.block_graph import Counts, is_foreign, kept_by_block
from tokenlight.explain.jobs import MethodConfig
from tokenlight.explain.passes import PassPlan
from tokenlight.foundation.transformers_internals import knows_fused_attention
from tokenlight.model import anatomy
from tokenlight.model.quantised import unpacked_weights
from tokenlight.model.settings import largest
from tokenlight.model.twin import InstrumentedModel
from tokenlight.record.planned_pass import PassSpec
from tokenlight.record.recording import RecordOptions
from tokenlight.tasks import task_of_class
from tokenlight.tasks.task import Task

SIZES: dict[str, tuple[int, int]] = {  # of a block's signals, in states and in maps
    "embeddings": (0, 0),
    "projected": (0, 0),  # noted where a gate lies on the heads' outputs, in a few families
    **dict.fromkeys(("hidden", "values", "context", "gated", "second_norm"), (1, 0)),
    "attention": (0, 1),
}
LOGIT_COPIES = 2.5  # logits, their gradient, and what naming the answer makes of them


@dataclass(frozen=True)
class Shape:
    """What the size of a pass depends on."""

    blocks: int
    width: int
    inner: int
    heads: int
    vocabulary: int  # outputs per token or text
    task: type[Task]
    gated: bool  # the MLP multiplies two branches
    precision: int  # bytes of a weight
    weights: int  # bytes of all
    waiting: int  # bytes of those that come while their module runs: from where device_map keeps them, or unpacked
    largest: int  # bytes of the largest matrix of a block or of a head that answers with words
    fusable: bool  # attention can be one operation
    steps: int = 1  # tokens of an answer, each with logits of its own

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Shape":
        config = model.config.get_text_config()
        embedding: Any = model.get_input_embeddings()
        width = largest(config, "hidden_size") or embedding.weight.shape[-1]
        heads = largest(config, "num_attention_heads")  # 0: a model without attention
        blocks = anatomy.blocks(model)
        task = task_of_class(type(model).__name__)
        words = task.with_words
        behind = [*blocks[0].parameters(), *(model.get_input_embeddings().parameters() if words else ())]
        return cls(
            blocks=len(blocks),
            width=max(width, heads * largest(config, "head_dim")),
            inner=largest(config, "intermediate_size", "n_inner", "ffn_dim", "hidden_dim") or 4 * width,
            heads=heads,
            vocabulary=config.vocab_size if words else config.num_labels or 1,
            task=task,
            gated=any("gate" in name for name, _ in blocks[0].named_modules()),
            precision=model.dtype.itemsize,
            weights=sum(p.nbytes for p in model.parameters()),
            waiting=sum(p.nbytes for p in model.parameters() if p.is_meta) + 4 * unpacked_weights(model),
            largest=max((parameter.nbytes for parameter in behind), default=0),
            fusable=knows_fused_attention(model) and getattr(config, "attn_logit_softcapping", None) is None,
        )

    def bytes(self, counts: Counts, rows: int, tokens: int, precision: int) -> float:
        """Half precision keeps norms and the softmax in float32 as well."""
        state, one_map = (precision, precision) if precision >= 4 else (2.5, 4)
        numbers = counts.states * self.width * state + counts.inner * self.inner * precision
        return rows * tokens * (numbers + counts.maps * self.heads * tokens * one_map)


def shape_of(instrumented: InstrumentedModel) -> Shape:
    """Found out once; all but its precision stays what it is as long as there is the instrumented model."""
    known = SHAPES.get(instrumented)
    if known is None or known.precision != instrumented.dtype.itemsize:
        known = SHAPES[instrumented] = Shape.of(instrumented.model)
    return known


SHAPES: WeakKeyDictionary[InstrumentedModel, Shape] = WeakKeyDictionary()
PASSING = Counts(states=6, inner=3, maps=4)  # what a block holds for a moment, forward or backward
MAPS_ALONE = 2.5  # instead, of a block that runs on its own


@dataclass(frozen=True)
class Need:
    """Bytes beside the weights."""

    graph: float = 0  # kept for the backward pass
    passing: float = 0  # held for a moment by one block, the head or a cast of weights
    inputs: float = 0  # of blocks that run again, until the pass has ended
    block: float = 0  # the signals of one of them, on their way to the methods
    trace: float = 0  # what methods read afterwards

    @property
    def total(self) -> int:
        return int(self.graph + self.passing + self.inputs + self.block + self.trace)


def need_of_pass(shape: Shape, one: PassSpec, rows: int, tokens: int, record_options: RecordOptions) -> Need:
    """One recorded pass on a batch of `rows` texts of `tokens` tokens."""
    precision = 8 if one.double else shape.precision
    graded = one.graded

    def size(counts: Counts, width: int = precision) -> float:
        return shape.bytes(counts, rows, tokens, width)

    def signals(names: Iterable[str]) -> float:
        return sum(size(Counts(states=SIZES[name][0], maps=SIZES[name][1])) for name in names)

    fused, cut = shape.fusable and record_options.fuses(one), record_options.cuts(one)
    kept = kept_by_block(one.rules, shape.gated, fused)
    exact = one.double and (one.split or is_foreign(one.rules))  # nothing that would be in single precision
    held = 1 if cut or one.last_block else shape.blocks
    graph, inputs = 0.0, 0.0
    if graded:
        graph = held * (size(kept.values) + size(kept.single, 8 if exact else 4)) + shape.waiting * held / shape.blocks
        if kept.single.states and shape.precision < 4:
            graph += shape.weights / shape.precision * 4 * held / shape.blocks  # weights in float32
    if cut and "hidden" not in one.kept:
        inputs = shape.blocks * size(Counts(states=1))
    read = one.kept if cut else one.signals
    values = read - {"attention"} if graded and not cut and kept.values.maps else read  # the others are in the graph
    parts = (2 if one.split else 1) * shape.task.parts
    blocks = 1 if one.last_block else shape.blocks
    trace = blocks * (signals(values) + parts * signals(read & graded)) + 2 * size(Counts(states=1))
    block = signals(one.signals - read - {"attention"}) + signals(graded - read) if cut else 0.0
    maps = 0 if fused else MAPS_ALONE if cut else PASSING.maps
    passing = size(replace(PASSING, maps=maps)) + logits_of(shape, rows, tokens, precision, record_options)
    if one.double:
        passing += 4 * shape.largest * 4 / shape.precision
    return Need(graph, passing, inputs, block, trace)


def logits_of(shape: Shape, rows: int, tokens: int, precision: int, record_options: RecordOptions) -> float:
    """Bytes of the answers; texts of a batch are taken to be of equal length."""
    alone = shape.task.logits_for == "text" or (shape.task.logits_for == "last token" and record_options.last_logits)
    at = shape.steps if alone else tokens
    return LOGIT_COPIES * rows * at * shape.vocabulary * max(4, precision)


def need_of_plan(shape: Shape, plan: PassPlan, rows: int, tokens: int, record_options: RecordOptions) -> int:
    """Bytes beside the weights at the worst moment."""
    if plan.target.function is not None:
        record_options = replace(record_options, last_logits=False)
    shape = replace(shape, steps=max(1, *(len(resolved.answer) for resolved in plan.target.resolved)))
    if not record_options.by_block:
        rows = max(
            rows,
            *(
                method_config.contexts.together(rows, tokens)
                for method_config in plan.method_configs
                if method_config.contexts
            ),
            0,
        )
    groups = [[plan.passes[key] for key in keys] for keys in plan.groups]
    worst = [need_of_group(shape, passes, rows, tokens, record_options) for passes in groups]
    worst += [
        need_of_probe(shape, method_config, rows, tokens, record_options)
        for method_config in plan.method_configs
        if method_config.method.asks_model
    ]
    return int(max(worst))


def need_of_group(
    shape: Shape, passes: Sequence[PassSpec], rows: int, tokens: int, record_options: RecordOptions
) -> float:
    """Passes that are read together: all traces so far, and one pass under way; in the end, what methods make of it."""
    needs = [need_of_pass(shape, one, rows, tokens, record_options) for one in passes]
    held = sum(need.inputs + need.block for need in needs)
    worst = 0.0
    for need in needs:
        worst = max(worst, held + need.graph + need.passing + need.trace)
        held += need.trace
    maps = 2 * any("attention" in one.signals for one in passes)
    return max(worst, held + shape.bytes(Counts(maps=maps), rows, tokens, shape.precision))


def need_of_probe(
    shape: Shape, method_config: MethodConfig, rows: int, tokens: int, record_options: RecordOptions
) -> int:
    """A method that asks the model again, many changed texts at once."""
    asks = method_config.method.asks
    together = rows if record_options.by_block else asks.together(method_config.full_options, rows, tokens)
    one = PassSpec({"embeddings.grad"} if asks.gradient else frozenset())
    return need_of_pass(
        shape, one, together, tokens, replace(record_options, fused=False) if asks.written_out else record_options
    ).total
