"""Which target's probability is measured, and its value on many changed inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.common.progress import track
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.perturbation import Changed
from tokenlight.model import config
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.capture import Capture
from tokenlight.model.config import embedding_rows, padding_id
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import ChangedInput, MeasuredTarget, ResolvedTarget, Target, TargetSpec, chosen_indices
from tokenlight.tasks.task import Task
from tokenlight.text.batch import Batch, has_embedding, length_batches
from tokenlight.text.tokenized_text import Text, TokenizedText

BATCH = 32  # texts that run together


def measured_targets_of(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    explanations: Sequence[Explanation],
    targets: Sequence[TargetSpec],
    foils: Sequence[TargetSpec],
) -> list[MeasuredTarget]:
    """For each explanation what the caller names, or else what it explained itself."""
    measured_targets: list[MeasuredTarget | None] = []
    open_questions: dict[int, ResolvedTarget] = {}  # those that the model's own prediction decides
    for i, (tokenized_text, explanation) in enumerate(zip(tokenized_texts, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise RefusedValue("a foil needs a target to be compared with")
        if targets[i] is None:
            measured_targets.append(explained_target(explainer.task, explanation))
        else:
            resolved = explainer.task.resolve_target(tokenized_text, targets[i], foils[i])
            measured_targets.append(resolved.measured_target)
            if measured_targets[-1] is None:  # a target such as (position, None) is the predicted one
                open_questions[i] = resolved
    for i, measured_target in predictions(explainer, instrumented, tokenized_texts, open_questions).items():
        measured_targets[i] = measured_target
    return [measured_target for measured_target in measured_targets if measured_target is not None]


def explained_target(task: Task, explanation: Explanation) -> MeasuredTarget:
    """What the explanation explained."""
    if not explanation.indices:
        raise RefusedValue(
            f"the target {explanation.target!r} was a function of the output: give target= as in explain()"
        )
    measured_target = task.measured_target(explanation.indices, explanation.foil_indices, explanation.position)
    return replace(measured_target, given=explanation.given)


def predictions(
    explainer: Explainer,
    instrumented: InstrumentedModel,
    tokenized_texts: Sequence[TokenizedText],
    resolved: dict[int, ResolvedTarget],
) -> dict[int, MeasuredTarget]:
    """What the model says where nothing else decides; several methods' explanations of one text are one question."""
    asked = list({(tokenized_texts[i].text, one): i for i, one in resolved.items()}.values())
    foiled = [resolved[i].foiled for i in asked]
    measured_targets: dict[tuple[Text, ResolvedTarget], MeasuredTarget] = {}
    for places in explainer.batches([tokenized_texts[i] for i in asked], BATCH, foiled):
        some = [asked[place] for place in places]
        batch = explainer.collate([tokenized_texts[i] for i in some], instrumented.device)
        target = Target(explainer.task, tuple(resolved[i] for i in some))
        with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
            selectors = target.select(instrumented.run(batch, Capture()), batch, instrumented.model)
        for place, i in enumerate(some):
            measured_targets[tokenized_texts[i].text, resolved[i]] = explainer.task.measured_target(
                *chosen_indices(selectors, place), resolved[i].position
            )
    return {i: measured_targets[tokenized_texts[i].text, one] for i, one in resolved.items()}


TOKENS = 4096  # that run together
OUTPUTS = 2**26  # numbers that a language model may answer with at once: 256 MB in float32


@dataclass(frozen=True)
class Asking:
    """How the model is asked about many changed inputs."""

    tokens: int = TOKENS  # that run together, padding included
    progress: bool = False
    tokenized_texts: Sequence[TokenizedText] | None = None  # the texts of the explanations, where they were read before
    instrumented: InstrumentedModel | None = None  # of the explainer's model, where there is one already

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, int) or self.tokens < 1:
            raise RefusedValue(f"tokens is how many run together, 1 or more; found {self.tokens!r}")


ASKING = Asking()


def ask(explainer: Explainer, changed: Changed, measured_target: MeasuredTarget) -> ChangedInput:
    """The question for one changed row, as the model has to read it."""
    ids, original, types = changed.input_ids, changed.original_ids, changed.token_type_ids
    if not ids:
        ids = original = (start_token(explainer),)
        types = types if types is None else (0,)
    return explainer.task.pose(ChangedInput(ids, original, types, measured_target.move(changed.kept)))


def start_token(explainer: Explainer) -> int:
    """What stands for an empty text, where nothing is put around texts: the token that texts begin with or end with."""
    ids = (explainer.tokenizer.bos_token_id, explainer.tokenizer.eos_token_id)
    found = [token for token in ids if has_embedding(token, embedding_rows(explainer.inner))]
    if not found:
        raise RefusedValue(
            "every token is taken away, and the vocabulary has no token for an empty text: replace instead"
        )
    return found[0]


def log_probabilities(explainer: Explainer, questions: Sequence[ChangedInput], asking: Asking = ASKING) -> Tensor:
    """[question] in double precision; what cannot be has -inf."""
    check_probabilities(explainer)
    instrumented = asking.instrumented or InstrumentedModel(explainer.model)
    distinct = list(dict.fromkeys(questions))
    values: dict[ChangedInput, float] = {}
    batches = batches_of(explainer, distinct, asking.tokens)
    with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
        for some in track(batches, "evaluating", map(len, batches), asking.progress):
            output = instrumented.run(make_batch(explainer, instrumented, some), Capture())
            answers = [explainer.task.log_probability(output, question, i) for i, question in enumerate(some)]
            values.update(zip(some, torch.stack(answers).tolist(), strict=True))
    found = torch.tensor([values[question] for question in questions], dtype=torch.float64)
    if found.isnan().any() or (found == torch.inf).any():
        raise RefusedValue(
            "the model's output is not finite on a changed input: its weights or its precision are at fault"
        )
    return found


def check_probabilities(explainer: Explainer) -> None:
    if explainer.task.gives_number:
        raise UnsupportedModelError(
            "the model answers with a number, not with a label: it has no probability to measure"
        )


def batches_of(explainer: Explainer, questions: Sequence[ChangedInput], tokens: int) -> list[list[ChangedInput]]:
    """Similar lengths together, at most `tokens` of them with padding, fewer where every token gets a vocabulary."""
    if explainer.task.with_words:
        tokens = min(tokens, OUTPUTS // explainer.task.outputs)
    places = length_batches(list(map(len, questions)), tokens, behavior_of(explainer.inner).equal_lengths)
    return [[questions[i] for i in some] for some in places]


def make_batch(explainer: Explainer, instrumented: InstrumentedModel, questions: Sequence[ChangedInput]) -> Batch:
    """Padded on the right, with positions written out as the whole rows count them."""
    width = max(map(len, questions))
    known = (padding_id(instrumented.model), explainer.tokenizer.pad_token_id, 0)
    fill = next(i for i in known if i is not None and has_embedding(i, embedding_rows(instrumented.model)))

    def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], device=instrumented.device)

    types = [question.token_type_ids for question in questions if question.token_type_ids is not None]
    mask = padded([[1] * len(question) for question in questions], 0)
    before = Batch(padded([question.original_ids for question in questions], fill), mask)
    return Batch(
        input_ids=padded([question.input_ids for question in questions], fill),
        attention_mask=mask,
        token_type_ids=padded(types, 0) if len(types) == len(questions) else None,
        position_ids=config.fix_positions(instrumented.model, before).position_ids,
    )
