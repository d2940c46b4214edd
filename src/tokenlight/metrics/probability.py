"""How likely the model finds its target on many changed inputs: each asked once, similar lengths together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.progress import track
from tokenlight.metrics.perturbation import Changed
from tokenlight.model import inputs
from tokenlight.model.habits import behavior_of
from tokenlight.model.settings import embedding_rows, padding_id
from tokenlight.model.tape import Capture
from tokenlight.model.twin import InstrumentedModel
from tokenlight.tasks.targets import ChangedInput, MeasuredTarget
from tokenlight.text.batches import Batch, has_embedding, length_batches
from tokenlight.text.rows import TokenizedText

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
            raise ValueError(f"tokens is how many run together, 1 or more; found {self.tokens!r}")


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
        raise ValueError(
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
        raise ValueError(
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
        position_ids=inputs.fix_positions(instrumented.model, before).position_ids,
    )
