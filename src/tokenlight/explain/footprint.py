"""How much memory passes need: derived from the shape of the model and from what rules keep for the backward pass.

Sizes are counted in three kinds of tensors of a block: states [batch, token, dim], inner states of the MLP
[batch, token, inner] and maps [batch, head, query, key]. docs/large-models.md has the derivation and what was measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from tokenlight.explain.block_graph import Counts, is_foreign, kept_by_block
from tokenlight.explain.jobs import Job
from tokenlight.explain.passes import PassPlan
from tokenlight.foundation.transformers_internals import knows_fused_attention
from tokenlight.model import anatomy
from tokenlight.record.planned_pass import PlannedPass
from tokenlight.record.recording import Saving
from tokenlight.tasks import task_of_class
from tokenlight.tasks.task import Task

SIZES: dict[str, tuple[int, int]] = {  # of a block's signals, in states and in maps
    "embeddings": (0, 0),
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
    waiting: int  # bytes of those that device_map keeps elsewhere until their module runs
    largest: int  # bytes of the largest matrix of a block or of a head that answers with words
    fusable: bool  # attention can be one operation

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Shape":
        config = model.config.get_text_config()
        width, heads = config.hidden_size, config.num_attention_heads
        names = ("intermediate_size", "n_inner", "ffn_dim", "hidden_dim")
        found = [getattr(config, name, None) for name in names]
        blocks = anatomy.blocks(model)
        task = task_of_class(type(model).__name__)
        words = task.with_words
        behind = [*blocks[0].parameters(), *(model.get_input_embeddings().parameters() if words else ())]
        return cls(
            blocks=len(blocks),
            width=max(width, heads * (getattr(config, "head_dim", None) or 0)),
            inner=next((size for size in found if size), 4 * width),
            heads=heads,
            vocabulary=config.vocab_size if words else config.num_labels or 1,
            task=task,
            gated=any("gate" in name for name, _ in blocks[0].named_modules()),
            precision=model.dtype.itemsize,
            weights=sum(p.nbytes for p in model.parameters()),
            waiting=sum(p.nbytes for p in model.parameters() if p.is_meta),
            largest=max(parameter.nbytes for parameter in behind),
            fusable=knows_fused_attention(model) and getattr(config, "attn_logit_softcapping", None) is None,
        )

    def bytes(self, counts: Counts, rows: int, tokens: int, precision: int) -> float:
        """Half precision keeps norms and the softmax in float32 as well."""
        state, one_map = (precision, precision) if precision >= 4 else (2.5, 4)
        numbers = counts.states * self.width * state + counts.inner * self.inner * precision
        return rows * tokens * (numbers + counts.maps * self.heads * tokens * one_map)


PASSING = Counts(states=6, inner=3, maps=4)  # what a block holds for a moment, forward or backward


@dataclass(frozen=True)
class Need:
    """Bytes beside the weights."""

    graph: float = 0  # kept for the backward pass
    passing: float = 0  # held for a moment by one block, the head or a cast of weights
    trace: float = 0  # what methods read afterwards

    @property
    def total(self) -> int:
        return int(self.graph + self.passing + self.trace)


def need_of_pass(shape: Shape, one: PlannedPass, rows: int, tokens: int, saving: Saving) -> Need:
    """One recorded pass on a batch of `rows` texts of `tokens` tokens."""
    precision = 8 if one.double else shape.precision
    graded, wanted = one.graded, one.signals

    def size(counts: Counts, width: int = precision) -> float:
        return shape.bytes(counts, rows, tokens, width)

    def signals(names: Iterable[str]) -> float:
        return sum(size(Counts(states=SIZES[name][0], maps=SIZES[name][1])) for name in names)

    fused = shape.fusable and one.can_fuse and saving.may_fuse
    kept = kept_by_block(one.rules, shape.gated, fused)
    exact = one.double and (one.split or is_foreign(one.rules))  # nothing that would be in single precision
    block = size(kept.values) + size(kept.single, 8 if exact else 4)
    held = 1 if saving.by_block else shape.blocks
    graph = 0.0
    if graded:
        graph = held * block + shape.waiting * held / shape.blocks
        if saving.by_block and "hidden" not in wanted:
            graph += shape.blocks * size(Counts(states=1))
        if kept.single.states and shape.precision < 4:
            graph += shape.weights / shape.precision * 4 * held / shape.blocks  # weights in float32
    in_graph = graded and not saving.by_block and kept.values.maps
    values = wanted - {"attention"} if in_graph else wanted
    parts = (2 if one.split else 1) * shape.task.parts
    trace = shape.blocks * (signals(values) + parts * signals(graded)) + 2 * size(Counts(states=1))
    passing = size(replace(PASSING, maps=0) if fused else PASSING) + logits_of(shape, rows, tokens, precision, saving)
    if one.double:
        passing += 4 * shape.largest * 4 / shape.precision
    return Need(graph, passing, trace)


def logits_of(shape: Shape, rows: int, tokens: int, precision: int, saving: Saving) -> float:
    """Bytes of the answers; texts of a batch are taken to be of equal length."""
    alone = shape.task.logits_for == "text" or (shape.task.logits_for == "last token" and saving.last_logits)
    at = 1 if alone else tokens
    return LOGIT_COPIES * rows * at * shape.vocabulary * max(4, precision)


def need_of_plan(shape: Shape, plan: PassPlan, rows: int, tokens: int, saving: Saving) -> int:
    """Bytes beside the weights at the worst moment: all traces so far, and one pass under way."""
    if plan.target.function is not None:
        saving = replace(saving, last_logits=False)
    worst, held = 0.0, 0.0
    for one in plan.passes.values():
        need = need_of_pass(shape, one, rows, tokens, saving)
        worst = max(worst, held + need.total)
        held += need.trace
    for job in plan.jobs:
        if job.method.asks_model:
            worst = max(worst, held + need_of_probe(shape, job, rows, tokens, saving))
    read = 2 * any("attention" in one.signals for one in plan.passes.values())  # what methods make of maps
    return int(max(worst, held + shape.bytes(Counts(maps=read), rows, tokens, shape.precision)))


def need_of_probe(shape: Shape, job: Job, rows: int, tokens: int, saving: Saving) -> int:
    """A method that asks the model again, many changed texts at once."""
    asks = job.method.asks
    together = rows if saving.by_block else asks.together(job.full_options, rows, tokens)
    one = PlannedPass({"embeddings.grad"} if asks.gradient else frozenset())
    return need_of_pass(shape, one, together, tokens, saving).total
