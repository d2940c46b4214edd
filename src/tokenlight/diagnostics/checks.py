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
from tokenlight.explain.attribute import attribute_ids, raw_batch
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


def nudge(precision: torch.dtype) -> float:
    """Much more than rounding, and too little to bend anything."""
    return torch.finfo(precision).eps ** 0.5


def nudged(model: PreTrainedModel) -> PreTrainedModel:
    """A copy around the same weights, whose embeddings are a little off."""
    copy = private_copy(model)
    part = nudge(model.dtype)

    def change(module: Any, args: Any, embeddings: Tensor) -> Tensor:
        generator = torch.Generator(embeddings.device).manual_seed(0)
        # The same for every row: who compares rows must find no other difference.
        noise = torch.randn(embeddings.shape[1:], generator=generator, device=embeddings.device)
        return embeddings * (1 + part * noise.to(embeddings))

    copy.get_input_embeddings().register_forward_hook(change)
    return copy


GRADIENT = "gradient_x_input"  # whose scores plain autograd gives as well
SWEPT = (  # one of every school
    GRADIENT,
    "attn_lrp",
    "lrp",
    "raw_attention",
    "attcat",
    "transformer_attribution",
    "alti",
    "alti_logit",
)
# Adding n numbers errs by about n roundings of their size: two blocks of ten sums of up to 50 terms, there and back.
# Sharp softmaxes, norms and shares of sums let errors grow, since they divide by what can be ten times smaller.
OPERATIONS, GROWTH = 2000, 10


def check_model(model: PreTrainedModel, rows: Sequence[Tensor], methods: Sequence[str] = SWEPT) -> ModelCheck:
    """Two rows of token ids of different lengths, the longer one first."""
    return Checking(model, tuple(rows), tuple(methods)).all()


def try_method(model: PreTrainedModel, rows: Sequence[Tensor], method: str) -> Outcome:
    """On the first of the rows alone."""
    return Checking(model, tuple(rows), (method,)).tried(method)


@dataclass(frozen=True)
class Checking:
    """One model, and the rows it is tried on."""

    model: PreTrainedModel
    rows: tuple[Tensor, ...]
    methods: tuple[str, ...]
    known: dict[tuple[str, tuple[int, ...]], Attribution] = field(default_factory=dict)

    def all(self) -> ModelCheck:
        outcomes = {name: self.tried(name) for name in self.methods}
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

    def tried(self, method: str) -> Outcome:
        try:
            self.attribution(method)
        except Exception as error:
            refused = is_refusal(error)
            told = message_line(error) if refused else describe_error(error)
            defined = not isinstance(error, NothingToRead)
            return Outcome(method, "refused" if refused else "crashed", told, defined)
        return Outcome(method, "works")

    def attribution(self, method: str, places: tuple[int, ...] = (0,)) -> Attribution:
        """Of the rows at these places, together; asked for again, it is not computed again."""
        if (method, places) not in self.known:
            ids, mask = self.padded([self.rows[place] for place in places])
            target = task_of(self.model).trial_target(self.last)
            self.known[method, places] = attribute_ids(self.model, ids, mask, None, method, {}, target)
        return self.known[method, places]

    def padded(self, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        pad = getattr(self.model.config.get_text_config(), "pad_token_id", None) or 0
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), pad, device=rows[0].device)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return ids, mask

    @property
    def last(self) -> int:
        """The place of the last token that every row has."""
        return min(map(len, self.rows)) - 1

    # What they rest on

    @cached_property
    def plain(self) -> PlainModel:
        return PlainModel.of(self.model)

    @cached_property
    def products(self) -> Tensor:
        """[1, token, dim] gradient times input"""
        return self.plain.gradient_x_input(self.batch, target_of(self.model, self.last, 1))

    @property
    def size_of_products(self) -> float:
        """Of what is added up for a token: a norm right behind the embeddings lets it cancel."""
        return float(self.products.abs().sum(-1).max())

    @cached_property
    def batch(self) -> Batch:
        return raw_batch(*self.padded(self.rows[:1]), None, InstrumentedModel(self.model))

    @property
    def tolerance(self) -> float:
        return torch.finfo(self.model.dtype).eps * OPERATIONS * GROWTH

    def tolerance_at(self, apart: float, method: str) -> float:
        """For scores that are so far apart: where they change faster than usual with their input, so do roundings."""
        return self.tolerance if apart <= self.tolerance else self.tolerance * max(1.0, self.growth(method) / GROWTH)

    def growth(self, method: str) -> float:
        """How much faster scores change than the embeddings, of which a small part is changed."""
        model, part = nudged(self.model), nudge(self.model.dtype)
        place = (len(self.rows) - 1,)
        moved = Checking(model, self.rows, (method,)).attribution(method, place).scores
        return difference(moved, self.attribution(method, place).scores) / part

    def logits(self, working: tuple[str, ...]) -> Check:
        expected = self.plain.answers(self.batch)
        found = InstrumentedModel(self.model).run(self.batch, Capture())
        apart = max(difference(found[name], part) for name, part in expected.items())
        return Check("logits", apart, self.tolerance, "the instrumented model's beside the model's own", working)

    def gradient(self, working: tuple[str, ...]) -> Check | None:
        if GRADIENT not in working:
            return None
        found = self.attribution(GRADIENT).scores
        apart = difference(found, self.products.sum(-1), self.size_of_products)
        return Check("gradient", apart, self.tolerance, "plain autograd", (GRADIENT,))

    def attention(self, working: tuple[str, ...]) -> Check | None:
        readers = tuple(name for name in working if reads_attention(name))
        if not readers:
            return None
        expected = self.plain.attention(self.batch)
        target = target_of(self.model, self.last, 1)
        trace = record(self.model, self.batch, target, PassSpec(frozenset({"attention"}))).traces[0]
        found = [signal.value for signal in trace.attention]
        if [one.shape for one in found] != [one.shape for one in expected]:
            shapes = f"{[list(one.shape) for one in expected]} beside {[list(one.shape) for one in found]}"
            return Check("attention", remark=f"the model gives none, or others: {shapes}", methods=readers)
        apart = max(apart_from_reported(one, other) for one, other in zip(found, expected, strict=True))
        return Check("attention", apart, self.tolerance, "the model's output_attentions", readers)

    def ids_past_embedding(self, working: tuple[str, ...]) -> Check | None:
        """The answer may depend on ids through the embedding layer alone, where it is followed back to it."""
        target = target_of(self.model, self.last, 1)
        plans = {name: plan_passes(target, [MethodConfig(METHODS[name], {})]) for name in working}
        working = tuple(name for name, plan in plans.items() if plan.follows_embeddings)
        if not working:
            return None
        other = self.batch.input_ids.roll(1, 1)
        share = self.plain.past_embedding(self.batch, other, target)
        return Check("ids past the embedding", share, 1e-4, f"{share:.0%} of the answer", working)

    def query_weights(self, working: tuple[str, ...]) -> Check | None:
        """Where the head reads, beside where tokenlight reads maps."""
        readers = tuple(name for name in working if METHODS[name].reads_query_position)
        if not readers:
            return None
        target = target_of(self.model, self.last, 1)
        lengths = self.plain.query_weights(self.batch, target)
        traces = record(self.model, self.batch, target, PassSpec(frozenset({"row"}))).traces
        ours = torch.stack([trace.rows[0] for trace in traces])  # [part, token]
        read, maps = (tokens.nonzero()[:, 0].tolist() for tokens in (lengths[0], ours.sum(0)))
        apart = 1.0 if read != maps else 0.0 if len(traces) > 1 else difference(ours, lengths / lengths.sum())
        return Check("rows read", apart, self.tolerance, f"the head reads {read}, maps are read at {maps}", readers)

    def conservation(self, working: tuple[str, ...]) -> Check | None:
        (method,) = working
        found = self.attribution(method)
        if "residual" not in found.extras:
            return None
        parts = [found.scores.abs().sum(1), *(part.abs() for part in found.extras.values())]
        apart = float((found.extras["residual"].abs() / torch.stack(parts).sum(0)).max())
        return Check(f"conservation of {method}", apart, self.tolerance, "residual", working)

    def batch_as_single(self, working: tuple[str, ...]) -> Check:
        (method,) = working
        places = range(len(self.rows))
        together = self.attribution(method, tuple(places)).scores
        alone = [self.attribution(method, (place,)).scores[0] for place in places]
        size = self.size_of_products if method == GRADIENT else 0.0
        apart = max(difference(together[i, : len(one)], one, size) for i, one in enumerate(alone))
        allowed = self.tolerance_at(apart, method)
        return Check(f"batch = single of {method}", apart, allowed, "two rows, padded", working)


def attempt(check: Callable[[tuple[str, ...]], Check | None], working: tuple[str, ...]) -> Check:
    """A check that cannot be made says why."""
    name = check.__name__.replace("_", " ")
    try:
        return check(working) or Check(name)
    except Exception as error:
        remark = f"refused: {message_line(error)}" if is_refusal(error) else describe_error(error)
        return Check(name, remark=remark, methods=working)


def reads_attention(method: str) -> bool:
    entry = METHODS[method]
    return any("attention" in needed for one in entry.passes for needed in one.needs_with(entry.options))


def difference(found: Tensor, expected: Tensor, size: float = 0.0) -> float:
    """As a share of the largest number, or of the size of what was added up to it."""
    if found.shape != expected.shape or not torch.isfinite(found).all():
        return float("inf")
    return float((found - expected).abs().max()) / max(float(expected.abs().max()), size, 1e-30)


def apart_from_reported(found: Tensor, reported: Tensor) -> float:
    """Maps beside those that a model reports. Some families report them before attention sinks take their share of a
    row; what mixes the values is what is left."""
    return min(difference(found, reported), difference(found / found.sum(-1, keepdim=True), reported))


def describe(check: Check) -> str:
    apart = "" if check.difference is None else f" off by {check.difference:.0e}"
    return f"{check.name}{apart} ({check.remark})"
