"""Runs methods on one batch: one recording for each rule table, shared by all methods that read it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.explain.memory import need_of_pass, shape_of
from tokenlight.explain.plan import PassPlan
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of, sees_later_tokens
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassMemory
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.record.query_positions import NoQueryPosition, QueryWeights
from tokenlight.record.recorder import (
    DEFAULT_RECORD_OPTIONS,
    Answer,
    OpenPass,
    Part,
    Recording,
    RecordOptions,
    check_finite,
    check_fused,
    record,
)
from tokenlight.record.scorer import Probe
from tokenlight.record.trace import Folding
from tokenlight.tasks.selectors import FixedTarget, OutputSelector, SelectableTarget
from tokenlight.text.batch import Batch


def run_once(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    *,
    memory: PassMemory | None = None,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
    each: bool = False,
    chosen: tuple[OutputSelector, ...] | None = None,
) -> tuple[Answer, list[Attribution]]:
    """Every distinct pass once, read by all methods that need it; those that ask the model again come last.

    With `graph`, scores can be differentiated for the strengths of a head mask whose tensors ask for it. With `each`,
    the parts of the target are not added up: everything that is found has an axis more, [batch, part, ...]. `chosen`
    is the target where it is settled already, whatever the model says now. For `run_configs`, which sees to it that the
    caller's modes and tensors change nothing.
    """
    if record_options.fused:
        refuse_to_write_out(plan.method_configs)
    behavior = behavior_of(instrumented)
    if plan.follows_embeddings:
        behavior.refuse_past_embeddings(instrumented.model)
    if any(resolved.answer for resolved in getattr(plan.target, "resolved", ())):
        refuse_later_tokens(instrumented)
    if memory is not None:
        memory.open(instrumented.model, batch, plan.target)
    passes = Passes(instrumented, batch, plan, memory, graph, record_options, each, chosen=chosen)
    beside: Any = None
    if (baseline := shared_baseline(instrumented, batch, plan, record_options)) is not None:
        beside = passes.ask_beside(baseline)
    elif not plan.passes or (plan.in_double and instrumented.dtype.itemsize < 4):
        passes.ask()  # what the model says in its own precision decides
    found: dict[int, Attribution] = {}
    for keys in plan.groups:
        found |= passes.read(keys)
    answer = passes.answer
    assert answer is not None
    asking = {
        number: method_config
        for number, method_config in enumerate(plan.method_configs)
        if method_config.method.runs_model
    }
    if asking:
        at_once = len(batch.input_ids) if record_options.by_block else None
        probe = Probe(instrumented, batch, answer.selectors, record_options, at_once, output=answer.output, each=each)
        found |= ask_again(asking, with_known_scores(probe, answer, beside), graph)
    return answer, [found[number] for number in range(len(plan.method_configs))]


def refuse_later_tokens(instrumented: InstrumentedModel) -> None:
    """An answer is read in one pass: what is predicted at a token must not depend on the tokens after it."""
    if sees_later_tokens(instrumented):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} reads texts in both directions, so what it predicts "
            "for a token of an answer "
            "depends on the tokens that follow. Explain a single next token, or load the model as a decoder "
            "(is_decoder=True, causal attention)"
        )


def with_known_scores(probe: Probe, answer: Answer, beside: Any) -> Probe:
    """What the model has said of the texts, and of a method's baseline beside them, need not be asked again."""
    own = any(selector.function is not None for selector in answer.selectors)  # reads an output, not a dict
    known = answer.score[None] if own else probe.scores_in(answer.output)
    return replace(probe, known=known, known_at_baseline=None if beside is None else probe.scores_in(beside))


def shared_baseline(
    instrumented: InstrumentedModel, batch: Batch, plan: PassPlan, record_options: RecordOptions
) -> Tensor | None:
    """[batch, token, dim] of the one method with a baseline, where no pass is recorded and twice as many texts may run
    at once. A function of the output gets the whole of it, so it is asked as the model answers."""
    if plan.passes or record_options.by_block or plan.target.function is not None:
        return None
    texts, tokens = batch.input_ids.shape
    found = [
        (method_config, method_config.method.model_runs.baseline(instrumented, batch, method_config.full_options))
        for method_config in plan.method_configs
    ]
    known = [(method_config, baseline) for method_config, baseline in found if baseline is not None]
    if len(known) != 1:
        return None
    ((method_config, baseline),) = known
    return (
        baseline
        if method_config.method.model_runs.at_once(method_config.full_options, texts, tokens) >= 2 * texts
        else None
    )


def ask_again(method_configs: Mapping[int, MethodConfig], probe: Probe, graph: bool) -> dict[int, Attribution]:
    """What methods find that ask the model themselves, by their numbers."""
    found: dict[int, Attribution] = {}
    for number, method_config in method_configs.items():
        record_options = (
            replace(probe.record_options, fused=False)
            if method_config.method.model_runs.written_out
            else probe.record_options
        )
        asked = replace(probe, record_options=record_options)
        with torch.set_grad_enabled(graph):
            parts = parts_of(method_config, asked)
        found[number] = join_parts(method_config, parts, [1] * len(parts), asked.fused, probe.each)
    return found


def parts_of(method_config: MethodConfig, probe: Probe) -> list[Attribution]:
    """For each part of the target, the attribution by a method that runs the model itself."""
    seen = [part[0].seen(probe.batch) for part in probe.parts]
    if method_config.method.model_runs.parts:
        together = as_attribution(method_config.method.function(probe, **method_config.own_options))
        found = [
            Attribution(scores, {name: values[number] for name, values in together.extras.items()})
            for number, scores in enumerate(together.scores)
        ]
    else:
        alone = [replace(one, batch=batch) for one, batch in zip(probe.of_each(), seen, strict=True)]
        found = [as_attribution(method_config.method.function(one, **method_config.own_options)) for one in alone]
    return [clip_to_mask(batch.attention_mask.bool(), one) for batch, one in zip(seen, found, strict=True)]


@dataclass
class Passes:
    """The passes over one batch."""

    instrumented: InstrumentedModel
    batch: Batch
    plan: PassPlan
    memory: PassMemory | None
    graph: bool
    record_options: RecordOptions
    each: bool = False
    answer: Answer | None = None  # of the first pass
    rows: QueryWeights = field(default_factory=QueryWeights)
    chosen: tuple[OutputSelector, ...] | None = (
        None  # or by the first pass: the same in every other, where rounding ties
    )

    def ask(self) -> None:
        """A pass of which nothing but the answer is read."""
        row = {"row"} if any(one.reads_query_position for one in self.plan.passes.values()) else set[str]()
        self.answer = self._record(PassSpec(row)).answer
        self.chosen = self.answer.selectors

    def ask_beside(self, baseline: Tensor) -> Any:
        """The same in one pass with embeddings [batch, token, dim] beside the texts; the output for these."""
        measured_target = self._target
        embeddings = torch.cat([self.instrumented.embed(self.batch.input_ids), baseline])
        capture = Capture(CaptureSpec(embeddings=embeddings, fused=self.record_options.may_fuse))
        read_at = self.record_options.places(measured_target.reads_at(self.batch))
        twice = self.batch.map(lambda tensor: torch.cat([tensor, tensor]))
        output = self.instrumented.run(
            twice, capture, read_at=None if read_at is None else torch.cat([read_at, read_at])
        )
        check_fused(self.instrumented, capture, self.record_options)
        tensors = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
        parts = {name: part for name, part in tensors.items() if part.ndim and len(part) == 2 * len(baseline)}
        said = {name: part[: len(baseline)] for name, part in parts.items()}
        self.chosen = measured_target.select(said, self.batch, self.instrumented.model)
        score = torch.stack([selector.score(said) for selector in self.chosen]).sum(0)
        check_finite(score)
        self.answer = Answer(self.chosen, said, score)
        return {name: part[len(baseline) :] for name, part in parts.items()}

    def read(self, keys: Sequence[Key]) -> dict[int, Attribution]:
        """Run these passes side by side; what the jobs that read them find, by their numbers."""
        opened: dict[Key, OpenPass | Recording] = {}
        for key in sorted(keys, key=lambda key: self.plan.passes[key].rules is not None):  # plain ones show the rows
            opened[key] = self._open(self.plan.passes[key])
            self.chosen = opened[key].selectors
        opened = {key: opened[key] for key in keys}
        readers = {
            n: (method_config, reads)
            for n, (method_config, reads) in enumerate(self.plan.readers)
            if set(reads) & set(keys)
        }
        found: dict[int, list[Attribution]] = {number: [] for number in readers}
        signs: list[int] = []
        scores: list[Tensor] = []
        with torch.set_grad_enabled(self.graph):
            for parts in zip(*(one.parts() for one in opened.values()), strict=True):
                for number, result in read_parts(dict(zip(keys, parts, strict=True)), readers).items():
                    found[number].append(clip_to_mask(parts[0].trace.mask, result))
                signs.append(parts[0].trace.sign)
                scores.append(parts[0].trace.sign * parts[0].trace.score)
        if self.answer is None:
            first = opened[keys[0]]
            self.answer = Answer(first.selectors, first.output, torch.stack(scores).sum(0))
        return {
            number: join_parts(method_config, found[number], signs, all(opened[key].fused for key in reads), self.each)
            for number, (method_config, reads) in readers.items()
        }

    @property
    def _target(self) -> SelectableTarget:
        return self.plan.target if self.chosen is None else FixedTarget(self.chosen)

    def _open(self, one: PassSpec) -> OpenPass | Recording:
        """Read block by block with `low_memory`, part by part for an answer; otherwise its graph is already gone."""
        remembered = self.memory if one.rules is None and one.gates is None else None  # what no mask or rule touches
        if known := remembered and remembered.recall(one, self.instrumented.model):
            return known
        try:
            if (
                self.record_options.by_block or self.each
            ) and remembered is None:  # the signals of all parts would take more
                return OpenPass(self.instrumented, self.batch, self._target, one, **self._ways)
            if self.memory is not None and one.gates is not None and self._graph_bytes(one) <= self.memory.graph_limit:
                return self._with_graph(self.memory, one)
            one = one if remembered is None else one.keeping_all()
            recording = self._record(one)
        except NoQueryPosition as error:
            raise RefusedValue(f"{error}. {describe_readers(self.plan.method_configs)}") from error
        if remembered is not None:
            remembered.keep(one, recording)
        return recording

    @property
    def _ways(self) -> dict[str, Any]:
        return {"graph": self.graph, "record_options": self.record_options, "rows": self.rows}

    def _record(self, one: PassSpec) -> Recording:
        return record(self.instrumented, self.batch, self._target, one, **self._ways)

    def _graph_bytes(self, one: PassSpec) -> float:
        rows, tokens = self.batch.input_ids.shape
        return need_of_pass(shape_of(self.instrumented), one, rows, tokens, self.record_options).graph

    def _with_graph(self, memory: PassMemory, one: PassSpec) -> OpenPass:
        """With its graph, so that for another head mask only the backward pass runs again."""
        known = memory.recall_graph(one)
        if known is not None:
            return known.again(self.instrumented, one)
        opened = OpenPass(self.instrumented, self.batch, self._target, one, **self._ways, repeatable=True)
        memory.keep_graph(one, opened)
        return opened


def read_parts(
    parts: Mapping[Key, Part], readers: Mapping[int, tuple[MethodConfig, Sequence[Key]]]
) -> dict[int, Attribution]:
    """One part of the target in several passes: first for methods that read block by block, then for the others."""
    foldings = {
        number: Folding(method_config.method.function(*(parts[key].trace for key in keys), **method_config.own_options))
        for number, (method_config, keys) in readers.items()
        if method_config.method.folds
    }
    read = list(dict.fromkeys(key for number in foldings for key in readers[number][1]))
    for blocks in zip(*(parts[key].blocks for key in read), strict=True):
        at = dict(zip(read, blocks, strict=True))
        for number, folding in foldings.items():
            folding.feed([at[key] for key in readers[number][1]])
        for block in blocks:
            block.forget()
        if all(folding.done for folding in foldings.values()):
            break
    found: dict[int, Attribution] = {}
    traces = {key: part.close() for key, part in parts.items()}
    for number, (method_config, keys) in readers.items():
        result = (
            foldings[number].finish()
            if method_config.method.folds
            else method_config.method.function(*(traces[key] for key in keys), **method_config.own_options)
        )
        found[number] = as_attribution(result)
    return found


def refuse_to_write_out(method_configs: Iterable[MethodConfig]) -> None:
    """Attention was to be one operation."""
    readers = [
        method_config.method.name
        for method_config in method_configs
        if method_config.method.model_runs.written_out
        or not all(one.can_fuse for one in method_config.passes(split=False))
    ]
    if readers:
        raise RefusedValue(f"fused=True: {', '.join(readers)} need the attention weights written out: leave fused out")


def describe_readers(method_configs: Sequence[MethodConfig]) -> str:
    """What to do where there is no row to read."""
    readers = [
        method_config.method.name
        for method_config in method_configs
        if any(one.reads_query_position for one in method_config.passes(split=False))
    ]
    others = [name for name, entry in METHODS.items() if not entry.reads_query_position]
    return (
        f"{', '.join(readers)} need the tokens whose output is explained: choose a target that reads real tokens, or a "
        f"method that needs none: {', '.join(others)}"
    )


def join_parts(
    method_config: MethodConfig, parts: list[Attribution], signs: list[int], fused: bool, each: bool
) -> Attribution:
    """Scores are added over the parts of the target, minus those of a foil, or stand side by side.

    Maps of a method that does not depend on the target are the same for every part, and are not added.
    """
    join = side_by_side if each else add_up
    scores = join([part.scores for part in parts], signs)
    if not torch.isfinite(scores).all():
        raise RefusedValue(f"method '{method_config.method.name}' gave scores that are not finite on this input")
    extras = {name: join([part.extras[name] for part in parts], signs) for name in parts[0].extras}
    if method_config.method.class_specific or each:
        maps = {name: join([part.maps[name] for part in parts], signs) for name in parts[0].maps}
    else:
        maps = parts[0].maps
    return Attribution(scores, extras, maps, fused)


def clip_to_mask(mask: Tensor, part: Attribution) -> Attribution:
    """Padding, and what an answer has behind the token that is explained, is exactly 0."""
    return replace(part, scores=torch.where(mask, part.scores.to(mask.device), 0.0))


def add_up(tensors: list[Tensor], signs: list[int]) -> Tensor:
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)]).sum(0)


def side_by_side(tensors: list[Tensor], signs: list[int]) -> Tensor:
    """[batch, part, ...]"""
    return torch.stack([sign * tensor for sign, tensor in zip(signs, tensors, strict=True)], 1)


def as_attribution(result: Tensor | Attribution) -> Attribution:
    return result if isinstance(result, Attribution) else Attribution(result)
