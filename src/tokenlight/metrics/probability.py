"""The targets whose probability is measured, and their log-probabilities on many changed inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.common.progress import track
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.perturbation import PerturbedText
from tokenlight.model import config
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import embedding_rows, padding_id
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import BatchTarget, ChangedInput, ResolvedTarget, TargetSpec, selected_indices
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch, has_embedding, length_batches
from tokenlight.text.tokenized_text import Text, TokenizedText

BATCH = 32  # texts per batch


def complete_targets(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    explanations: Sequence[Explanation],
    targets: Sequence[TargetSpec],
    foils: Sequence[TargetSpec],
) -> list[ResolvedTarget]:
    """For each explanation, the target that the caller names, or else the explained one; with indices."""
    completed: dict[int, ResolvedTarget] = {}
    unknown: dict[int, ResolvedTarget] = {}  # targets without indices: the model's prediction
    for i, (tokenized_text, explanation) in enumerate(zip(tokenized_texts, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise RefusedValue("a foil needs a target to be compared with")
        if targets[i] is None:
            completed[i] = explained_target(explainer.task, explanation)
            continue
        resolved = explainer.task.resolve_target(tokenized_text, targets[i], foils[i])
        if resolved.foil_continuation:
            raise RefusedValue("the probability of one continuation among two is not measured: leave the foil out")
        if resolved.indices:
            selected = ResolvedTarget(resolved.indices, resolved.foil, position=resolved.position, given=resolved.given)
            completed[i] = explainer.task.measured_target(selected)
        else:  # a target such as (position, None) is the predicted one
            unknown[i] = resolved
    completed |= predicted_targets(explainer, instrumented, tokenized_texts, unknown)
    return [completed[i] for i in range(len(tokenized_texts))]


def explained_target(task: Task, explanation: Explanation) -> ResolvedTarget:
    """The target of the explanation. A target that was a function of the output is refused."""
    if not explanation.indices:
        raise RefusedValue(
            f"the target {explanation.target!r} was a function of the output: give target= as in explain()"
        )
    selected = ResolvedTarget(
        explanation.indices, explanation.foil_indices, position=explanation.position, given=explanation.given
    )
    return task.measured_target(selected)


def predicted_targets(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    unknown: dict[int, ResolvedTarget],
) -> dict[int, ResolvedTarget]:
    """The targets that the model predicts, by index. Equal targets of the same text run once."""
    distinct = list({(tokenized_texts[i].text, target): i for i, target in unknown.items()}.values())
    has_foil = [unknown[i].has_foil for i in distinct]
    predicted: dict[tuple[Text, ResolvedTarget], ResolvedTarget] = {}
    for positions in explainer.batches([tokenized_texts[i] for i in distinct], BATCH, has_foil):
        batch_indices = [distinct[position] for position in positions]
        batch = explainer.collate([tokenized_texts[i] for i in batch_indices], instrumented.device)
        target = BatchTarget(explainer.task, tuple(unknown[i] for i in batch_indices))
        selectors = target.select(instrumented.predict(batch), batch, instrumented.model)
        for row, i in enumerate(batch_indices):
            selected = ResolvedTarget(*selected_indices(selectors, row), position=unknown[i].position)
            predicted[tokenized_texts[i].text, unknown[i]] = explainer.task.measured_target(selected)
    return {i: predicted[tokenized_texts[i].text, target] for i, target in unknown.items()}


TOKENS = 4096  # per batch
OUTPUTS = 2**26  # logits of a language model per batch: 256 MB in float32


@dataclass(frozen=True)
class EvaluationOptions:
    """How the model is run on many changed inputs."""

    tokens: int = TOKENS  # per batch, padding included
    progress: bool = False
    tokenized_texts: Sequence[TokenizedText] | None = None  # of the explanations, if they are already known
    instrumented: InstrumentedModel | None = None  # of the explainer's model, if there already is one

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, int) or self.tokens < 1:
            raise RefusedValue(f"tokens is how many tokens a batch has, 1 or more; found {self.tokens!r}")


DEFAULT_OPTIONS = EvaluationOptions()


def make_changed_input(explainer: Explainer, perturbed: PerturbedText, target: ResolvedTarget) -> ChangedInput:
    """The model's input for a perturbed text, with the target at its new position."""
    ids, original, types = perturbed.input_ids, perturbed.original_ids, perturbed.token_type_ids
    if not ids:
        ids = original = (empty_text_token(explainer),)
        types = types if types is None else (0,)
    return explainer.task.complete_input(ChangedInput(ids, original, types, target.keep_tokens(perturbed.kept)))


def empty_text_token(explainer: Explainer) -> int:
    """The token that replaces an empty text if the tokenizer adds none: that of the beginning or end of texts.

    A vocabulary without such a token is refused.
    """
    ids = (explainer.tokenizer.bos_token_id, explainer.tokenizer.eos_token_id)
    embedded = [token for token in ids if has_embedding(token, embedding_rows(explainer.inner))]
    if not embedded:
        raise RefusedValue(
            "all tokens are removed, and the vocabulary has no token for an empty text: "
            "replace tokens instead of deleting them"
        )
    return embedded[0]


def log_probabilities(
    explainer: Explainer, inputs: Sequence[ChangedInput], options: EvaluationOptions = DEFAULT_OPTIONS
) -> Tensor:
    """[input] in double precision; impossible targets have -inf. Equal inputs run once.

    Tasks without probabilities are refused, and so are models with an output that is not finite.
    """
    check_probabilities(explainer)
    instrumented = options.instrumented or InstrumentedModel(explainer.model)
    distinct = list(dict.fromkeys(inputs))
    value_of: dict[ChangedInput, float] = {}
    batches = batch_by_length(explainer, distinct, options.tokens)
    for batch_inputs in track(batches, "evaluating", map(len, batches), options.progress):
        output = instrumented.predict(make_batch(explainer, instrumented, batch_inputs))
        values = [explainer.task.log_probability(output, changed, i) for i, changed in enumerate(batch_inputs)]
        value_of.update(zip(batch_inputs, torch.stack(values).tolist(), strict=True))
    result = torch.tensor([value_of[changed] for changed in inputs], dtype=torch.float64)
    if result.isnan().any() or (result == torch.inf).any():
        raise RefusedValue(
            "the model's output is not finite on a changed input: check its weights, or use a higher precision"
        )
    return result


def check_probabilities(explainer: Explainer) -> None:
    """Refuse models whose output is a number instead of probabilities."""
    if explainer.task.gives_number:
        raise UnsupportedModelError("the model predicts a number, not a label: it has no probability to measure")


def batch_by_length(explainer: Explainer, inputs: Sequence[ChangedInput], tokens: int) -> list[list[ChangedInput]]:
    """Batches of similar lengths with at most `tokens` tokens, padding included.

    Fewer if each token's output is a vector over the vocabulary.
    """
    if explainer.task.with_words:
        tokens = min(tokens, OUTPUTS // explainer.task.outputs)
    batches = length_batches(list(map(len, inputs)), tokens, behavior_of(explainer.inner).equal_lengths)
    return [[inputs[i] for i in indices] for indices in batches]


def make_batch(explainer: Explainer, instrumented: InstrumentedModel, inputs: Sequence[ChangedInput]) -> Batch:
    """The inputs padded on the right, with explicit position ids, computed from the original token ids."""
    width = max(map(len, inputs))
    candidates = (padding_id(instrumented.model), explainer.tokenizer.pad_token_id, 0)
    fill = next(i for i in candidates if i is not None and has_embedding(i, embedding_rows(instrumented.model)))

    def pad(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], device=instrumented.device)

    types = [changed.token_type_ids for changed in inputs if changed.token_type_ids is not None]
    mask = pad([[1] * len(changed) for changed in inputs], 0)
    original = Batch(pad([changed.original_ids for changed in inputs], fill), mask)
    return Batch(
        input_ids=pad([changed.input_ids for changed in inputs], fill),
        attention_mask=mask,
        token_type_ids=pad(types, 0) if len(types) == len(inputs) else None,
        position_ids=config.fix_positions(instrumented.model, original).position_ids,
    )
