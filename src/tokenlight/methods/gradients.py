"""Methods from gradients at the embeddings and at the block inputs. X = a hidden state, y = the explained score."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.methods import Attribution, ModelRuns, Pass, method, select_maps
from tokenlight.methods.attention_gradients import mean_queries
from tokenlight.model.config import embedding_rows
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.model.module_ops import rectifies_only
from tokenlight.record.probe import Probe
from tokenlight.record.trace import Block, Fold, Signal, Trace
from tokenlight.rules.tables import GUIDED
from tokenlight.text.batch import Batch, refuse_unembedded_role

SIGN_CAUTION = (
    "the sign is that of gradient × state: a word counts against the target where a little less of it would raise the "
    "score, even if it reads as if it supported it"
)


def read_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    return ("hidden.grad",) if options["read"] == "blocks" else ("embeddings.grad",)


@method(title="Gradient (l1)", paper="Simonyan et al. 2014; Arras et al. 2025", signed=False, needs=read_needs)
def gradient_l1(trace: Trace, *, read: str = "embeddings") -> Tensor:
    """Sum of the absolute gradient over the features of each token."""
    return signal_at(trace, read).gradient.abs().sum(-1)


@method(
    title="Gradient",
    paper="Simonyan et al. 2014; Ferrando et al. 2022, eq. 14",
    signed=False,
    needs=read_needs,
    aliases=("Gradient (l2)", "Grad_l2"),
)
def gradient_l2(trace: Trace, *, read: str = "embeddings", squared: bool = False) -> Tensor:
    """Length of the gradient at each token; squared=True gives its square, as in Arras et al. 2025."""
    length = torch.linalg.vector_norm(signal_at(trace, read).gradient, dim=-1)
    return length**2 if squared else length


@method(
    title="Gradient x Input",
    paper="Shrikumar et al. 2016; Denil et al. 2014",
    signed=True,
    needs=read_needs,
    caution=SIGN_CAUTION,
    aliases=("GxI", "G×I", "Gradient×Input", "Input x Gradient"),
)
def gradient_x_input(trace: Trace, *, reduce: str = "sum", read: str = "embeddings") -> Tensor:
    """Gradient times embedding, summed over features.

    reduce="l2" and "mean_abs" are G×I_ℓ2 and G×I_μ of Ferrando et al. 2022 (eq. 14 and 15).
    """
    return reduce_features(signal_at(trace, read).relevance, reduce)


LENGTHS = {"l1": 1, "l2": 2}


@method(
    title="Guided Backpropagation",
    paper="Springenberg et al. 2015",
    signed=False,
    fits=rectifies_only,
    passes=(Pass(read_needs, GUIDED),),
    aliases=("Guided Backprop", "GuidedBP", "Guided BP"),
)
def guided_backpropagation(trace: Trace, *, reduce: str = "l2", read: str = "embeddings") -> Tensor:
    """Length of the gradient when ReLUs pass only its positive part; models with other activations are refused.

    reduce="l2" or "l1": the Euclidean length, or the sum of absolute values.
    """
    if reduce not in LENGTHS:
        raise RefusedValue(f"reduce is 'l1' or 'l2', found {reduce!r}")
    return torch.linalg.vector_norm(signal_at(trace, read).gradient, LENGTHS[reduce], dim=-1)


STATES = ("inputs", "outputs")


def cat_needs(options: Mapping[str, Any]) -> tuple[str, ...]:
    if options["states"] not in STATES:
        raise RefusedValue(f"states is 'inputs' or 'outputs', found {options['states']!r}")
    return ("hidden.grad",)


@method(
    title="CAT", paper="Qiang et al. 2022 (AttCAT), eq. 8 to 10", signed=True, needs=cat_needs, caution=SIGN_CAUTION
)
def cat(trace: Trace, *, states: str = "inputs", detail: Any = ()) -> Fold[Attribution]:
    """Gradient times state at every block's input, summed over features and layers.

    states="outputs" reads every block's output, as the paper's equations do; "inputs" is what its release reads.
    """
    layers: list[Tensor] = []
    while block := (yield):
        layers.append(block_state(block, states).relevance.sum(-1))
    return add_layers(layers, detail)


@method(
    title="AttCAT",
    paper="Qiang et al. 2022, eq. 8 to 12",
    signed=True,
    needs=lambda options: (*cat_needs(options), "attention"),
    caution=SIGN_CAUTION,
)
def attcat(trace: Trace, *, states: str = "inputs", detail: Any = ()) -> Fold[Attribution]:
    """CAT of each layer weighted by the attention that the token receives there, mean over heads and queries.

    states="outputs" reads every block's output, as the paper's equations do; "inputs" is what its release reads.
    """
    layers: list[Tensor] = []
    while block := (yield):
        received = mean_queries(block.attention.value.mean(1), trace.mask)  # [batch, token]
        layers.append(received * block_state(block, states).relevance.sum(-1))
    return add_layers(layers, detail)


def block_state(block: Block, states: str) -> Signal:
    """X^(l-1), the input of block l, or its output X^l."""
    return block.hidden if states == "inputs" else block.after


def add_layers(layers: list[Tensor], detail: Any) -> Attribution:
    """The sum of the layers' terms, each [batch, token], given from the last layer to the first.

    detail="layers" adds the terms as a map.
    """
    terms = torch.stack(layers[::-1], 1)  # [batch, layer, token]
    return Attribution(terms.sum(1), maps=dict.fromkeys(select_maps(detail, ("layers",)), terms))


STEPS_AT_ONCE = 32  # points of the paths of all texts in one batch


def steps_together(options: Mapping[str, Any], texts: int) -> int:
    """Steps that share a batch with this many texts."""
    return min(check_steps(options["steps"]), max(1, STEPS_AT_ONCE // texts))


def baseline_passes(options: Mapping[str, Any]) -> int:
    """Extra passes for the baseline of one text: 1 if it does not fit into the batch of the text, else 0."""
    return int(steps_together(options, 1) < 2)


@method(
    title="Integrated Gradients",
    paper="Sundararajan et al. 2017",
    signed=True,
    cost="steps × (forward + backward)",
    model_runs=ModelRuns(
        passes=lambda options, tokens: ceil(options["steps"] / steps_together(options, 1)) + baseline_passes(options),
        at_once=lambda options, texts, tokens: texts * steps_together(options, texts),
        gradient=True,
        parts=True,
        baseline=lambda instrumented, batch, options: baseline_embeddings(instrumented, batch, options["baseline"]),
    ),
    aliases=("IG",),
)
def integrated_gradients(
    probe: Probe,
    *,
    steps: int = 50,
    baseline: str | int | None = None,
    quadrature: str = "gauss-legendre",
    reduce: str = "sum",
) -> Attribution:
    """Mean gradient along the path from a baseline, times the path; "completeness" is the difference to the change.

    baseline: "mask", "pad", "zero" or a token id; None takes the first of these that the vocabulary has.
    """
    origin = baseline_embeddings(probe.instrumented, probe.batch, baseline)
    path = probe.instrumented.embed(probe.batch.input_ids) - origin  # [batch, token, dim]
    points, weights = (tensor.to(path) for tensor in quadrature_rule(steps, quadrature))  # [step]
    signed = path.new_zeros(len(probe.parts), *path.shape[:2])  # [part, batch, token]
    # Only lengths need the mean gradient as a vector for every token of every part; sums are accumulated.
    mean = None if reduce == "sum" else path.new_zeros(len(probe.parts), *path.shape)
    for batch_steps in steps_at_once(probe, steps):
        embeddings = origin + points[batch_steps, None, None, None] * path
        for part, gradients in enumerate(gradients_at(probe, embeddings)):
            weighted = torch.einsum("s,sbtd->btd", weights[batch_steps], gradients)
            signed[part] += (path * weighted).sum(-1)
            if mean is not None:
                mean[part] += weighted
    change = probe.scores_as_they_are() - probe.scores_at_baseline(origin)  # [part, batch]
    scores = signed if mean is None else reduce_features(path * mean, reduce)
    return Attribution(scores, {"completeness": signed.sum(-1) - change})


def steps_at_once(probe: Probe, steps: int) -> Iterator[slice]:
    """The steps of each batch, when all texts are in it."""
    texts = len(probe.batch.input_ids)
    at_once = steps_together({"steps": steps}, texts) if probe.at_once is None else max(1, probe.at_once // texts)
    for first in range(0, steps, at_once):
        yield slice(first, min(first + at_once, steps))


def gradients_at(probe: Probe, embeddings: Tensor) -> Iterator[Tensor]:
    """For each part of the target, its gradients at these embeddings; both [step, batch, token, dim]."""
    for _, gradients in repeat_probe(probe, len(embeddings)).gradients(embeddings.flatten(0, 1)):
        yield gradients.view(embeddings.shape)


def repeat_probe(probe: Probe, times: int) -> Probe:
    """A probe for the batch repeated `times` times."""
    ids = probe.batch.input_ids
    return probe.rows(torch.arange(len(ids), device=ids.device).repeat(times))


def quadrature_rule(steps: int, name: str) -> tuple[Tensor, Tensor]:
    """Points in [0, 1] and their weights, both [step]."""
    check_steps(steps)
    if name == "gauss-legendre":
        points, weights = np.polynomial.legendre.leggauss(steps)
        return torch.tensor((points + 1) / 2), torch.tensor(weights / 2)
    if name == "riemann":  # right ends: Sundararajan et al. 2017, eq. 3; Ferrando et al. 2022, eq. 16
        points = torch.arange(1, steps + 1, dtype=torch.float64) / steps
        return points, torch.full_like(points, 1 / steps)
    raise RefusedValue(f"quadrature is 'gauss-legendre' or 'riemann', found {name!r}")


def check_steps(steps: Any) -> int:
    return check_count(steps, "steps")


def check_count(count: Any, option: str) -> int:
    """The value of an option that is a positive whole number; others are refused."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise RefusedValue(f"{option} is a positive number, found {count!r}")
    return count


def baseline_embeddings(instrumented: InstrumentedModel, batch: Batch, baseline: str | int | None) -> Tensor:
    """Embeddings [batch, token, dim] of the texts with every token but the special ones replaced by the baseline."""
    ids: dict[object, int | None] = {"mask": batch.mask_id, "pad": batch.pad_id}
    if baseline is None:
        baseline = next((role for role, token in ids.items() if token is not None), "zero")  # type: ignore[misc]
    token = baseline if isinstance(baseline, int) else ids.get(baseline)
    special = torch.zeros_like(batch.input_ids).bool() if batch.special is None else batch.special
    if baseline == "zero":
        return instrumented.embed(batch.input_ids) * special[:, :, None]
    if baseline in batch.unembedded:
        refuse_unembedded_role(str(baseline), batch.unembedded[str(baseline)])
    if token is None:
        raise RefusedValue(
            f"no baseline {baseline!r} here: choose 'mask' or 'pad' (if the vocabulary has it), 'zero', an id"
        )
    vocabulary = embedding_rows(instrumented.model)
    if not 0 <= token < vocabulary:
        raise RefusedValue(f"baseline {token} is outside the vocabulary of {vocabulary} tokens")
    return instrumented.embed(torch.where(special, batch.input_ids, token))


def signal_at(trace: Trace, read: str) -> Signal:
    """The signal that scores are read from: "embeddings" (word embeddings) or "blocks" (the first block's input)."""
    if read == "embeddings" and trace.embeddings is not None:
        return trace.embeddings
    if read == "blocks":
        state = trace.hidden[0]
        if state.value.ndim != 3:
            raise UnsupportedModelError(
                f"between the blocks of {type(trace.model).__name__}, a token has states of shape "
                f"{tuple(state.value.shape[2:])}, not one vector: read at the embeddings (read='embeddings')"
            )
        return state
    raise RefusedValue(f"read is 'embeddings' or 'blocks', found {read!r}")


def reduce_features(products: Tensor, reduce: str) -> Tensor:
    """[..., token, dim] -> [..., token]"""
    if reduce == "sum":
        return products.sum(-1)
    if reduce == "l2":
        return torch.linalg.vector_norm(products, dim=-1)
    if reduce == "mean_abs":
        return products.abs().mean(-1)
    raise RefusedValue(f"reduce is 'sum', 'l2' or 'mean_abs', found {reduce!r}")
