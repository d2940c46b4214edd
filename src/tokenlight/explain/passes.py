"""Run the passes of a plan on one batch, and the methods that read them or run the model themselves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.explain.attributions import as_attribution, join_parts, zero_padding_scores
from tokenlight.explain.memory import need_of_pass, shape_of
from tokenlight.explain.plan import PassPlan
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.behavior_probes import behavior_of, sees_later_tokens
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.pass_cache import PassCache
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.record.probe import Probe
from tokenlight.record.query_positions import NoQueryPosition, QueryWeights
from tokenlight.record.recorder import (
    DEFAULT_RECORD_OPTIONS,
    OpenPass,
    Part,
    PassOutput,
    Recording,
    RecordOptions,
    check_finite,
    check_fused,
    record,
)
from tokenlight.record.trace import Folding
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch


def run_passes(
    instrumented: InstrumentedModel,
    batch: Batch,
    plan: PassPlan,
    *,
    pass_cache: PassCache | None = None,
    graph: bool = False,
    record_options: RecordOptions = DEFAULT_RECORD_OPTIONS,
) -> tuple[PassOutput, list[Attribution]]:
    """Run each distinct pass once for all methods that need it, then the methods that run the model themselves.

    With `graph`, scores can be differentiated for the strengths of a head mask. `execute_plan` calls this with
    the caller's inference mode and autocast turned off.
    """
    if record_options.fused:
        refuse_methods_that_need_attention_weights(plan.method_configs)
    behavior = behavior_of(instrumented)
    if plan.follows_embeddings:
        behavior.refuse_past_embeddings(instrumented.model)
    if plan.target.continues:
        refuse_later_tokens(instrumented)
    if pass_cache is not None:
        pass_cache.open(instrumented.model, batch, plan.target)
    passes = Passes(instrumented, batch, plan, pass_cache, graph, record_options)
    output_at_baseline: Any = None
    if (baseline := shared_baseline(instrumented, batch, plan, record_options)) is not None:
        output_at_baseline = passes.run_with_baseline(baseline)
    elif not plan.passes or (plan.in_double and instrumented.dtype.itemsize < 4):
        passes.run_plain()  # the target is selected in the model's own precision
    attributions: dict[int, Attribution] = {}
    for keys in plan.groups:
        attributions |= passes.run_group(keys)
    pass_output = passes.output
    assert pass_output is not None
    running = {
        number: method_config
        for number, method_config in enumerate(plan.method_configs)
        if method_config.method.runs_model
    }
    if running:
        at_once = len(batch.input_ids) if record_options.by_block else None
        probe = Probe(
            instrumented,
            batch,
            pass_output.selectors,
            record_options,
            at_once,
            output=pass_output.output,
            each=plan.target.in_parts,
        )
        attributions |= run_model_methods(running, with_known_scores(probe, pass_output, output_at_baseline), graph)
    return pass_output, [attributions[number] for number in range(len(plan.method_configs))]


def refuse_later_tokens(instrumented: InstrumentedModel) -> None:
    """A continuation is read in one pass, so the output at a token must not depend on the tokens after it."""
    if sees_later_tokens(instrumented):
        raise UnsupportedModelError(
            f"{type(instrumented.model).__name__} reads texts in both directions, so its prediction for a token of an "
            "answer depends on the tokens that follow. Explain a single next token, or load the model as a decoder "
            "(is_decoder=True, causal attention)"
        )


def with_known_scores(probe: Probe, pass_output: PassOutput, output_at_baseline: Any) -> Probe:
    """The probe with the scores of the texts, and of a method's baseline, that earlier passes have computed."""
    has_function = any(
        selector.function is not None for selector in pass_output.selectors
    )  # a caller's function may need the model's output object
    known = pass_output.score[None] if has_function else probe.scores_in(pass_output.output)
    known_at_baseline = None if output_at_baseline is None else probe.scores_in(output_at_baseline)
    return replace(probe, known=known, known_at_baseline=known_at_baseline)


def shared_baseline(
    instrumented: InstrumentedModel, batch: Batch, plan: PassPlan, record_options: RecordOptions
) -> Tensor | None:
    """[batch, token, dim] the baseline of the only method with one, to run it in one pass with the texts.

    None if passes are recorded, if twice as many texts may not run together, or if the target is a function of the
    output, which must get the output of only the texts.
    """
    if plan.passes or record_options.by_block or plan.target.function is not None:
        return None
    texts, tokens = batch.input_ids.shape
    baselines: list[tuple[MethodConfig, Tensor]] = []
    for method_config in plan.method_configs:
        baseline = method_config.method.model_runs.baseline(instrumented, batch, method_config.full_options)
        if baseline is not None:
            baselines.append((method_config, baseline))
    if len(baselines) != 1:
        return None
    ((method_config, baseline),) = baselines
    at_once = method_config.method.model_runs.at_once(method_config.full_options, texts, tokens)
    return baseline if at_once >= 2 * texts else None


def run_model_methods(method_configs: Mapping[int, MethodConfig], probe: Probe, graph: bool) -> dict[int, Attribution]:
    """The attributions of methods that run the model themselves, by number."""
    attributions: dict[int, Attribution] = {}
    for number, method_config in method_configs.items():
        method_probe = probe
        if method_config.method.model_runs.written_out:
            method_probe = replace(probe, record_options=replace(probe.record_options, fused=False))
        with torch.set_grad_enabled(graph):
            parts = attribute_parts(method_config, method_probe)
        attributions[number] = join_parts(method_config, parts, [1] * len(parts), method_probe.fused, probe.each)
    return attributions


def attribute_parts(method_config: MethodConfig, probe: Probe) -> list[Attribution]:
    """For each part of the target, the attribution of a method that runs the model itself."""
    batches = [part[0].mask_later_tokens(probe.batch) for part in probe.parts]
    if method_config.method.model_runs.parts:
        joint_attribution = as_attribution(method_config.method.function(probe, **method_config.own_options))
        attributions = [
            Attribution(scores, {name: values[number] for name, values in joint_attribution.extras.items()})
            for number, scores in enumerate(joint_attribution.scores)
        ]
    else:
        probes = [replace(part, batch=batch) for part, batch in zip(probe.by_part(), batches, strict=True)]
        attributions = [
            as_attribution(method_config.method.function(part, **method_config.own_options)) for part in probes
        ]
    return [
        zero_padding_scores(batch.attention_mask.bool(), attribution)
        for batch, attribution in zip(batches, attributions, strict=True)
    ]


@dataclass
class Passes:
    """The passes over one batch."""

    instrumented: InstrumentedModel
    batch: Batch
    plan: PassPlan
    pass_cache: PassCache | None
    graph: bool
    record_options: RecordOptions
    output: PassOutput | None = None  # of the first pass
    query_weights: QueryWeights = field(default_factory=QueryWeights)
    target: BatchTarget = field(init=False)  # with the selectors of the first pass, so that all explain the same

    def __post_init__(self) -> None:
        self.target = self.plan.target

    def run_plain(self) -> None:
        """Run a pass for its output only."""
        reads_query_position = any(pass_spec.reads_query_position for pass_spec in self.plan.passes.values())
        self.output = self._record(PassSpec({"row"} if reads_query_position else set[str]())).pass_output
        self._fix_target(self.output.selectors)

    def run_with_baseline(self, baseline: Tensor) -> Any:
        """Run the texts together with embeddings [batch, token, dim]; returns the output for the embeddings."""
        embeddings = torch.cat([self.instrumented.embed(self.batch.input_ids), baseline])
        capture = Capture(CaptureSpec(embeddings=embeddings, fused=self.record_options.may_fuse))
        read_at = self.record_options.logit_positions(self.target.read_positions(self.batch))
        twice = self.batch.map(lambda tensor: torch.cat([tensor, tensor]))
        output = self.instrumented.run(
            twice, capture, read_at=None if read_at is None else torch.cat([read_at, read_at])
        )
        check_fused(self.instrumented, capture, self.record_options)
        tensors = {name: part.detach() for name, part in output.items() if isinstance(part, Tensor)}
        of_both = {name: part for name, part in tensors.items() if part.ndim and len(part) == 2 * len(baseline)}
        of_texts = {name: part[: len(baseline)] for name, part in of_both.items()}
        selectors = self.target.select(of_texts, self.batch, self.instrumented.model)
        self._fix_target(selectors)
        score = torch.stack([selector.score(of_texts) for selector in selectors]).sum(0)
        check_finite(score)
        self.output = PassOutput(selectors, of_texts, score)
        return {name: part[len(baseline) :] for name, part in of_both.items()}

    def run_group(self, keys: Sequence[Key]) -> dict[int, Attribution]:
        """Run these passes part by part; returns the attributions of the methods that read them, by number."""
        opened: dict[Key, OpenPass | Recording] = {}
        # Passes without rules come first, because they find the query positions.
        for key in sorted(keys, key=lambda key: self.plan.passes[key].rules is not None):
            opened[key] = self._open(self.plan.passes[key])
            self._fix_target(opened[key].selectors)
        opened = {key: opened[key] for key in keys}
        readers = {
            number: (method_config, reads)
            for number, (method_config, reads) in enumerate(self.plan.readers)
            if set(reads) & set(keys)
        }
        attributions: dict[int, list[Attribution]] = {number: [] for number in readers}
        signs: list[int] = []
        scores: list[Tensor] = []
        with torch.set_grad_enabled(self.graph):
            for parts in zip(*(opened_pass.parts() for opened_pass in opened.values()), strict=True):
                for number, attribution in read_parts(dict(zip(keys, parts, strict=True)), readers).items():
                    attributions[number].append(zero_padding_scores(parts[0].trace.mask, attribution))
                signs.append(parts[0].trace.sign)
                scores.append(parts[0].trace.sign * parts[0].trace.score)
        if self.output is None:
            first = opened[keys[0]]
            self.output = PassOutput(first.selectors, first.output, torch.stack(scores).sum(0))
        return {
            number: join_parts(
                method_config,
                attributions[number],
                signs,
                all(opened[key].fused for key in reads),
                self.target.in_parts,
            )
            for number, (method_config, reads) in readers.items()
        }

    def _fix_target(self, selectors: tuple[OutputSelector, ...]) -> None:
        self.target = replace(self.target, selectors=selectors)

    def _open(self, pass_spec: PassSpec) -> OpenPass | Recording:
        """A pass from the cache, an open pass that is read block by block or part by part, or a recording."""
        # A pass without rules and gates is the same for every head mask, so it may be cached.
        pass_cache = self.pass_cache if pass_spec.rules is None and pass_spec.gates is None else None
        if cached := pass_cache and pass_cache.find(pass_spec, self.instrumented.model):
            return cached
        try:
            # Signals of one part at a time take less memory than those of all parts.
            if (self.record_options.by_block or self.target.in_parts) and pass_cache is None:
                return OpenPass(self.instrumented, self.batch, self.target, pass_spec, **self._settings)
            if (
                self.pass_cache is not None
                and pass_spec.gates is not None
                and self._graph_bytes(pass_spec) <= self.pass_cache.graph_limit
            ):
                return self._with_graph(self.pass_cache, pass_spec)
            pass_spec = pass_spec if pass_cache is None else pass_spec.keeping_all()
            recording = self._record(pass_spec)
        except NoQueryPosition as error:
            raise RefusedValue(f"{error}. {describe_readers(self.plan.method_configs)}") from error
        if pass_cache is not None:
            pass_cache.keep(pass_spec, recording)
        return recording

    @property
    def _settings(self) -> dict[str, Any]:
        return {"graph": self.graph, "record_options": self.record_options, "query_weights": self.query_weights}

    def _record(self, pass_spec: PassSpec) -> Recording:
        return record(self.instrumented, self.batch, self.target, pass_spec, **self._settings)

    def _graph_bytes(self, pass_spec: PassSpec) -> float:
        texts, tokens = self.batch.input_ids.shape
        return need_of_pass(shape_of(self.instrumented), pass_spec, texts, tokens, self.record_options).graph

    def _with_graph(self, pass_cache: PassCache, pass_spec: PassSpec) -> OpenPass:
        """A pass that keeps its graph, so that another head mask needs a backward pass only."""
        cached = pass_cache.find_graph(pass_spec)
        if cached is not None:
            return cached.again(self.instrumented, pass_spec)
        opened = OpenPass(self.instrumented, self.batch, self.target, pass_spec, **self._settings, repeatable=True)
        pass_cache.keep_graph(pass_spec, opened)
        return opened


def read_parts(
    parts: Mapping[Key, Part], readers: Mapping[int, tuple[MethodConfig, Sequence[Key]]]
) -> dict[int, Attribution]:
    """The attributions of one part of the target, first of methods that read block by block, then of the others."""
    foldings = {
        number: Folding(method_config.method.function(*(parts[key].trace for key in keys), **method_config.own_options))
        for number, (method_config, keys) in readers.items()
        if method_config.method.folds
    }
    keys_by_block = list(dict.fromkeys(key for number in foldings for key in readers[number][1]))
    for blocks in zip(*(parts[key].blocks for key in keys_by_block), strict=True):
        block_of = dict(zip(keys_by_block, blocks, strict=True))
        for number, folding in foldings.items():
            folding.feed([block_of[key] for key in readers[number][1]])
        for block in blocks:
            block.release()
        if all(folding.done for folding in foldings.values()):
            break
    attributions: dict[int, Attribution] = {}
    traces = {key: part.close() for key, part in parts.items()}
    for number, (method_config, keys) in readers.items():
        result = (
            foldings[number].finish()
            if method_config.method.folds
            else method_config.method.function(*(traces[key] for key in keys), **method_config.own_options)
        )
        attributions[number] = as_attribution(result)
    return attributions


def refuse_methods_that_need_attention_weights(method_configs: Iterable[MethodConfig]) -> None:
    """Refuse methods that need attention weights if fused attention was requested."""
    readers = [
        method_config.method.name
        for method_config in method_configs
        if method_config.method.model_runs.written_out
        or not all(pass_spec.can_fuse for pass_spec in method_config.passes(split=False))
    ]
    if readers:
        raise RefusedValue(
            f"fused=True: {', '.join(readers)} need attention weights, which fused attention does not compute: "
            "omit fused=True"
        )


def describe_readers(method_configs: Sequence[MethodConfig]) -> str:
    """A hint for the error that no query position is known."""
    readers = [
        method_config.method.name
        for method_config in method_configs
        if any(pass_spec.reads_query_position for pass_spec in method_config.passes(split=False))
    ]
    methods_without_query_position = [name for name, entry in METHODS.items() if not entry.reads_query_position]
    return (
        f"{', '.join(readers)} need the tokens whose output is explained: choose a target that reads real tokens, or a "
        f"method that needs none: {', '.join(methods_without_query_position)}"
    )
