"""Checks of methods on one model against the unmodified model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.error_location import describe_error, is_refusal, message_line
from tokenlight.common.errors import NothingToRead
from tokenlight.diagnostics.reference_model import PlainModel, target_of
from tokenlight.explain.attribute_ids import attribute_ids, raw_batch
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.private_copy import private_copy
from tokenlight.record.pass_spec import PassSpec
from tokenlight.record.recorder import record
from tokenlight.results.model_report import Check, ModelCheck, Outcome
from tokenlight.tasks import task_of
from tokenlight.text.batch import Batch


def perturbation_size(precision: torch.dtype) -> float:
    """The relative size of a perturbation: much larger than rounding, small enough to be linear."""
    return torch.finfo(precision).eps ** 0.5


def perturbed_model(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with the same weights, whose embeddings are slightly perturbed."""
    copy = private_copy(model)
    size = perturbation_size(model.dtype)

    def change(module: Any, args: Any, embeddings: Tensor) -> Tensor:
        generator = torch.Generator(embeddings.device).manual_seed(0)
        # The same for every text, so that texts of a batch differ as before.
        noise = torch.randn(embeddings.shape[1:], generator=generator, device=embeddings.device)
        return embeddings * (1 + size * noise.to(embeddings))

    copy.get_input_embeddings().register_forward_hook(change)
    return copy


GRADIENT = "gradient_x_input"  # a method whose scores plain autograd can compute
SWEPT = (  # one method of each kind
    GRADIENT,
    "attn_lrp",
    "lrp",
    "raw_attention",
    "attcat",
    "transformer_attribution",
    "alti",
    "alti_logit",
)
# Adding n numbers has an error of about n roundings of their size: two blocks of ten sums of up to 50 terms, forward
# and backward. Softmaxes, norms and shares amplify errors: they divide by numbers that may be ten times smaller.
OPERATIONS, GROWTH = 2000, 10


def check_model(model: PreTrainedModel, rows: Sequence[Tensor], methods: Sequence[str] = SWEPT) -> ModelCheck:
    """Check methods on a model. `rows` are the token ids of two texts of different lengths, the longer one first."""
    return ModelChecker(model, tuple(rows), tuple(methods)).run_all()


def try_method(model: PreTrainedModel, rows: Sequence[Tensor], method: str) -> Outcome:
    """Run a method on the first of the texts."""
    return ModelChecker(model, tuple(rows), (method,)).try_method(method)


@dataclass(frozen=True)
class ModelChecker:
    """A model, and the texts on which it is checked."""

    model: PreTrainedModel
    rows: tuple[Tensor, ...]
    methods: tuple[str, ...]
    known: dict[tuple[str, tuple[int, ...]], Attribution] = field(default_factory=dict)

    def run_all(self) -> ModelCheck:
        outcomes = {name: self.try_method(name) for name in self.methods}
        working = tuple(name for name, outcome in outcomes.items() if outcome.verdict == "works")
        checks: list[Check] = []
        if working:
            common = (self.logits, self.gradient, self.attention, self.ids_past_embedding, self.query_weights)
            checks += [attempt(check, working) for check in common]
            for name in working:
                checks += [attempt(self.conservation, (name,)), attempt(self.batch_as_single, (name,))]
        for check in checks:
            for name in check.methods if check.passed is False else ():
                outcomes[name] = outcomes[name].or_worse(Outcome(name, "wrong", describe(check)))
        return ModelCheck(
            self.model.config.model_type,
            model=type(self.model).__name__,
            precision=str(self.model.dtype).removeprefix("torch."),
            outcomes=tuple(outcomes.values()),
            checks=tuple(check for check in checks if check.remark),
        )

    # Methods

    def try_method(self, method: str) -> Outcome:
        try:
            self.attribution(method)
        except Exception as error:
            refused = is_refusal(error)
            message = message_line(error) if refused else describe_error(error)
            defined = not isinstance(error, NothingToRead)
            return Outcome(method, "refused" if refused else "crashed", message, defined)
        return Outcome(method, "works")

    def attribution(self, method: str, indices: tuple[int, ...] = (0,)) -> Attribution:
        """The attribution of the texts with these indices in one batch; cached."""
        if (method, indices) not in self.known:
            ids, mask = self.pad([self.rows[index] for index in indices])
            target = task_of(self.model).trial_target(self.last)
            self.known[method, indices] = attribute_ids(self.model, ids, mask, None, method, {}, target)
        return self.known[method, indices]

    def pad(self, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        pad = getattr(self.model.config.get_text_config(), "pad_token_id", None) or 0
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), pad, device=rows[0].device)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return ids, mask

    @property
    def last(self) -> int:
        """The index of the last token that all texts have."""
        return min(map(len, self.rows)) - 1

    # Reference values

    @cached_property
    def plain(self) -> PlainModel:
        return PlainModel.of(self.model)

    @cached_property
    def products(self) -> Tensor:
        """[1, token, dim] gradient times input, by plain autograd."""
        return self.plain.gradient_x_input(self.batch, target_of(self.model, self.last, 1))

    @property
    def size_of_products(self) -> float:
        """The size of the terms of a token's sum, which cancel if a norm follows the embeddings."""
        return float(self.products.abs().sum(-1).max())

    @cached_property
    def batch(self) -> Batch:
        return raw_batch(*self.pad(self.rows[:1]), None, InstrumentedModel(self.model))

    @property
    def tolerance(self) -> float:
        return torch.finfo(self.model.dtype).eps * OPERATIONS * GROWTH

    def tolerance_at(self, difference: float, method: str) -> float:
        """The tolerance for this difference: larger if scores, and so rounding errors, change fast."""
        return (
            self.tolerance if difference <= self.tolerance else self.tolerance * max(1.0, self.growth(method) / GROWTH)
        )

    def growth(self, method: str) -> float:
        """The relative change of scores, divided by that of the embeddings."""
        model, size = perturbed_model(self.model), perturbation_size(self.model.dtype)
        last = (len(self.rows) - 1,)
        perturbed = ModelChecker(model, self.rows, (method,)).attribution(method, last).scores
        return difference(perturbed, self.attribution(method, last).scores) / size

    def logits(self, working: tuple[str, ...]) -> Check:
        expected = self.plain.logits(self.batch)
        output = InstrumentedModel(self.model).run(self.batch, Capture())
        deviation = max(difference(output[name], values) for name, values in expected.items())
        return Check("logits", deviation, self.tolerance, "the instrumented model compared with the model", working)

    def gradient(self, working: tuple[str, ...]) -> Check | None:
        if GRADIENT not in working:
            return None
        scores = self.attribution(GRADIENT).scores
        deviation = difference(scores, self.products.sum(-1), self.size_of_products)
        return Check("gradient", deviation, self.tolerance, "plain autograd", (GRADIENT,))

    def attention(self, working: tuple[str, ...]) -> Check | None:
        readers = tuple(name for name in working if reads_attention(name))
        if not readers:
            return None
        expected = self.plain.attention(self.batch)
        target = target_of(self.model, self.last, 1)
        trace = record(self.model, self.batch, target, PassSpec(frozenset({"attention"}))).traces[0]
        maps = [signal.value for signal in trace.attention]
        if [map_.shape for map_ in maps] != [map_.shape for map_ in expected]:
            shapes = f"{[list(map_.shape) for map_ in expected]} instead of {[list(map_.shape) for map_ in maps]}"
            return Check("attention", remark=f"the model gives none, or others: {shapes}", methods=readers)
        deviation = max(
            difference_from_reported(map_, expected_map) for map_, expected_map in zip(maps, expected, strict=True)
        )
        return Check("attention", deviation, self.tolerance, "the model's output_attentions", readers)

    def ids_past_embedding(self, working: tuple[str, ...]) -> Check | None:
        """Methods that read the embeddings require that the output depends on ids only through the embedding layer."""
        target = target_of(self.model, self.last, 1)
        plans = {name: plan_passes(target, [MethodConfig(METHODS[name], {})]) for name in working}
        working = tuple(name for name, plan in plans.items() if plan.follows_embeddings)
        if not working:
            return None
        other_ids = self.batch.input_ids.roll(1, 1)
        share = self.plain.past_embedding(self.batch, other_ids, target)
        return Check("ids past the embedding", share, 1e-4, f"{share:.0%} of the answer", working)

    def query_weights(self, working: tuple[str, ...]) -> Check | None:
        """The query positions of the model's head compared with those of tokenlight."""
        readers = tuple(name for name in working if METHODS[name].reads_query_position)
        if not readers:
            return None
        target = target_of(self.model, self.last, 1)
        gradient_norms = self.plain.query_weights(self.batch, target)
        traces = record(self.model, self.batch, target, PassSpec(frozenset({"row"}))).traces
        query_weights = torch.stack([trace.rows[0] for trace in traces])  # [part, token]
        head_reads, maps_read = (
            tokens.nonzero()[:, 0].tolist() for tokens in (gradient_norms[0], query_weights.sum(0))
        )
        deviation = (
            1.0
            if head_reads != maps_read
            else 0.0
            if len(traces) > 1
            else difference(query_weights, gradient_norms / gradient_norms.sum())
        )
        return Check(
            "rows read",
            deviation,
            self.tolerance,
            f"the head reads {head_reads}, maps are read at {maps_read}",
            readers,
        )

    def conservation(self, working: tuple[str, ...]) -> Check | None:
        (method,) = working
        attribution = self.attribution(method)
        if "residual" not in attribution.extras:
            return None
        sizes = [attribution.scores.abs().sum(1), *(amount.abs() for amount in attribution.extras.values())]
        deviation = float((attribution.extras["residual"].abs() / torch.stack(sizes).sum(0)).max())
        return Check(f"conservation of {method}", deviation, self.tolerance, "residual", working)

    def batch_as_single(self, working: tuple[str, ...]) -> Check:
        (method,) = working
        indices = range(len(self.rows))
        batched = self.attribution(method, tuple(indices)).scores
        single = [self.attribution(method, (index,)).scores[0] for index in indices]
        size = self.size_of_products if method == GRADIENT else 0.0
        deviation = max(difference(batched[i, : len(scores)], scores, size) for i, scores in enumerate(single))
        allowed = self.tolerance_at(deviation, method)
        return Check(f"batch = single of {method}", deviation, allowed, "two rows, padded", working)


def attempt(check: Callable[[tuple[str, ...]], Check | None], working: tuple[str, ...]) -> Check:
    """Run a check; if it fails to run, the remark has the reason."""
    name = check.__name__.replace("_", " ")
    try:
        return check(working) or Check(name)
    except Exception as error:
        remark = f"refused: {message_line(error)}" if is_refusal(error) else describe_error(error)
        return Check(name, remark=remark, methods=working)


def reads_attention(method: str) -> bool:
    entry = METHODS[method]
    return any("attention" in need for pass_ in entry.passes for need in pass_.needs_with(entry.options))


def difference(values: Tensor, expected: Tensor, size: float = 0.0) -> float:
    """The largest difference, relative to the largest value or to `size`."""
    if values.shape != expected.shape or not torch.isfinite(values).all():
        return float("inf")
    return float((values - expected).abs().max()) / max(float(expected.abs().max()), size, 1e-30)


def difference_from_reported(maps: Tensor, reported: Tensor) -> float:
    """The difference of maps from those that a model reports; some families report them before attention sinks."""
    return min(difference(maps, reported), difference(maps / maps.sum(-1, keepdim=True), reported))


def describe(check: Check) -> str:
    deviation = "" if check.difference is None else f" off by {check.difference:.0e}"
    return f"{check.name}{deviation} ({check.remark})"
