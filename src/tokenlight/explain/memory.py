"""How much memory passes need, derived from model and rules, how much is free, and which batches fit.

Sizes are counted in three kinds of tensors of a block: states [batch, token, dim], inner states of the MLP
[batch, token, inner] and maps [batch, head, query, key]. docs/large-models.md has the derivation and what was measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import supports_fused_attention
from tokenlight.common.formatting import describe_bytes
from tokenlight.explain.plan import PassPlan
from tokenlight.methods.config import MethodConfig
from tokenlight.model import block_structure
from tokenlight.model.config import largest
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.private_copy import unpacked_weights
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import RecordOptions
from tokenlight.rules.custom_ops import attend, mix_values, query_key
from tokenlight.rules.keeps import PLAIN, Keeps, kept_by
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.ops import functions_of
from tokenlight.rules.tables import TABLES
from tokenlight.tasks import task_of_class
from tokenlight.tasks.task import Task


@dataclass(frozen=True)
class Counts:
    """Tensors of a block, by kind."""

    states: float = 0  # [batch, token, dim]
    inner: float = 0  # of the MLP: [batch, token, inner]
    maps: float = 0  # [batch, head, query, key]

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.states + other.states, self.inner + other.inner, self.maps + other.maps)

    def __mul__(self, factor: float) -> "Counts":
        return Counts(factor * self.states, factor * self.inner, factor * self.maps)

    @property
    def number(self) -> float:
        return self.states + self.inner + self.maps


@dataclass(frozen=True)
class Place:
    """An operation of a block, all its calls together: the tensors that a rule may keep there."""

    functions: tuple[Any, ...]  # a family calls one or more of them
    own: Counts = Counts()  # what its own gradient keeps
    inputs: Counts = Counts()
    results: Counts = Counts()

    def kept(self, rule: Keeps) -> Counts:
        return self.own * rule.own + self.inputs * rule.inputs + self.results * rule.results


SOFTMAX = Place((F.softmax,), results=Counts(maps=1))  # its own gradient keeps the weights, as what follows does


@dataclass(frozen=True)
class Kept:
    """What the graph of one block holds."""

    values: Counts  # in the precision of the values
    single: Counts  # in single precision, whatever theirs


def kept_by_block(table: RuleTable | None, gated: bool, fused: bool = False) -> Kept:
    """Under a table of rules, or by the plain gradient; `gated`: the MLP multiplies two branches."""
    if not table:
        return kept_by_published(None, gated, fused)
    number = next((number for number, known in enumerate(TABLES) if known is table), None)
    return kept_under(table, gated, fused) if number is None else kept_by_published(number, gated, fused)


@cache
def kept_by_published(number: int | None, gated: bool, fused: bool) -> Kept:
    """The same for a published table by its number, or the plain gradient: looked up at every call of the library."""
    return kept_under({} if number is None else TABLES[number], gated, fused)


def kept_under(table: RuleTable, gated: bool, fused: bool) -> Kept:
    values, single = Counts(), Counts()
    weights_vary = any(rule.passes for rule in rules_at(SOFTMAX, table))
    for place in (*(FUSED if fused else written_out(weights_vary)), *places(gated)):
        rule = max(rules_at(place, table), key=lambda rule: place.kept(rule).number)
        if rule.single:
            single += place.kept(rule)
        else:
            values += place.kept(rule)
    return Kept(values, single)


def rules_at(place: Place, table: RuleTable) -> list[Keeps]:
    """What the rules of a table keep at an operation; a rule without this fact counts as any of the published ones."""
    found: list[Keeps] = []
    for function in place.functions:
        facts = kept_by(table[function]) if function in table else PLAIN
        found += published_at(place) if facts is None else [facts]
    return found


def published_at(place: Place) -> list[Keeps]:
    rules = [table[function] for table in TABLES for function in place.functions if function in table]
    return [facts for rule in rules if (facts := kept_by(rule)) is not None]


def is_foreign(table: RuleTable | None) -> bool:
    """Whether it is not known for a rule of the table what it keeps."""
    return any(kept_by(rule) is None for rule in (table or {}).values())


def written_out(weights_vary: bool) -> Iterator[Place]:
    """Attention in three operations; `weights_vary`: its weights are a signal, so that values are kept, too."""
    yield Place((query_key,), own=Counts(states=2), results=Counts(maps=1))
    yield SOFTMAX
    yield Place((mix_values,), own=Counts(states=weights_vary, maps=1), results=Counts(states=1))


FUSED = (Place((attend,), own=Counts(states=4), results=Counts(states=1)),)  # queries, keys, values and what comes out


def places(gated: bool) -> Iterator[Place]:
    """What lies around attention."""
    yield Place((F.layer_norm,), own=Counts(states=2), results=Counts(states=2))
    six = Counts(states=5, inner=1)  # queries, keys, values, output; the MLP's two
    yield Place(functions_of("linear_layer"), inputs=six, results=six + Counts(inner=gated))
    yield Place(functions_of("sum"), results=Counts(states=2))
    yield Place(functions_of("activation"), own=Counts(inner=1), results=Counts(inner=1))
    if gated:
        yield Place(functions_of("product"), own=Counts(inner=2), results=Counts(inner=1))


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
    waiting: int  # bytes of those loaded while their module runs: offloaded by device_map, or dequantized
    largest: int  # bytes of the largest matrix of a block or of a language model's head
    fusable: bool  # attention can be one operation
    steps: int = 1  # tokens of an answer, each with logits of its own

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Shape":
        config = model.config.get_text_config()
        embedding: Any = model.get_input_embeddings()
        width = largest(config, "hidden_size") or embedding.weight.shape[-1]
        heads = largest(config, "num_attention_heads")  # 0: a model without attention
        blocks = block_structure.blocks(model)
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
            fusable=supports_fused_attention(model) and getattr(config, "attn_logit_softcapping", None) is None,
        )

    def bytes(self, counts: Counts, rows: int, tokens: int, precision: int) -> float:
        """Half precision keeps norms and the softmax in float32 as well."""
        state, one_map = (precision, precision) if precision >= 4 else (2.5, 4)
        numbers = counts.states * self.width * state + counts.inner * self.inner * precision
        return rows * tokens * (numbers + counts.maps * self.heads * tokens * one_map)


def shape_of(instrumented: InstrumentedModel) -> Shape:
    """Computed once per precision; nothing else changes as long as the model is instrumented."""
    known: Shape | None = instrumented.facts.get("shape")
    if known is None or known.precision != instrumented.dtype.itemsize:
        known = instrumented.facts["shape"] = Shape.of(instrumented.model)
    return known


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
    shape = replace(shape, steps=max(1, *(len(target.continuation) for target in plan.target.targets)))
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
        if method_config.method.runs_model
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
    """A method that runs the model on many changed texts at once."""
    model_runs = method_config.method.model_runs
    together = rows if record_options.by_block else model_runs.at_once(method_config.full_options, rows, tokens)
    one = PassSpec({"embeddings.grad"} if model_runs.gradient else frozenset())
    return need_of_pass(
        shape, one, together, tokens, replace(record_options, fused=False) if model_runs.written_out else record_options
    ).total


ALWAYS_FITS = 128 * 2**20  # bytes; the free memory is not queried below this
MARGIN = 2  # in all measurements, the estimate is less than this factor above the true need


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device, caches included; None if it is not known."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu":
        return None
    return min((found for found in (free_in_system(), free_in_group()) if found is not None), default=None)


def free_in_system(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        import psutil
    except ImportError:
        return None
    return psutil.virtual_memory().available


def free_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take, where it has a limit (version 2 of Linux's control groups)."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    return None if limit == "max" else int(limit) - used + int(statistics.get("inactive_file", 0))


def refuse_too_large(
    shape: Shape, plan: PassPlan, size: Sequence[int], record_options: RecordOptions, device: torch.device
) -> None:
    """Say so before a batch of `size` (texts, tokens) takes more memory than there is."""
    rows, tokens = size
    need = need_of_plan(shape, plan, rows, tokens, record_options)
    if need <= ALWAYS_FITS:
        return
    free = free_memory(device)
    if free is None or need <= MARGIN * free:
        return
    ways = ["shorter texts", "weights in half precision"]
    if not record_options.by_block:
        saved = need_of_plan(shape, plan, rows, tokens, RecordOptions(True, record_options.last_logits))
        if saved < need:
            ways.insert(0, f"low_memory=True (about {describe_bytes(saved)})")
    fitting = largest_batch(shape, plan, tokens, record_options, free)
    if 0 < fitting < rows:
        ways.insert(0, f"batch_size={fitting}")
    raise MemoryError(
        f"{' + '.join(method_config.method.name for method_config in plan.method_configs)} on {rows} "
        f"texts of {tokens} tokens needs about "
        f"{describe_bytes(need)} in addition to the weights; {describe_bytes(free)} are free on {device}. "
        f"Ways out: {', '.join(ways)}"
    )


def largest_batch(shape: Shape, plan: PassPlan, tokens: int, record_options: RecordOptions, free: int) -> int:
    """How many texts of `tokens` tokens fit at once; 0 if not even one."""
    low, high = 0, 1
    while need_of_plan(shape, plan, high, tokens, record_options) <= free and high < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = need_of_plan(shape, plan, middle, tokens, record_options) <= free
        low, high = (middle, high) if fits else (low, middle)
    return low
