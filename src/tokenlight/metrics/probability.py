"""How probable the model finds its target on many changed inputs: each asked once, similar lengths together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokenlight import anatomy
from tokenlight.batch import Batch, length_batches
from tokenlight.errors import UnsupportedModelError
from tokenlight.explainer import Explainer
from tokenlight.metrics.perturbation import Changed
from tokenlight.progress import track
from tokenlight.targets import Span
from tokenlight.twin import Tape, Twin

TOKENS = 4096  # that run together
OUTPUTS = 2**26  # numbers that a language model may answer with at once: 256 MB in float32
GONE = (-1, -1)  # an answer of which no token is left


@dataclass(frozen=True)
class Goal:
    """Whose probability is measured in one text, in indices of the whole row.

    With a foil it is the probability among the two: the softmax over target and foil alone. An answer's is that of
    its first token as start times that of its last token as end, each among all tokens of the row; where these were
    deleted, its first and last token that are left stand in, and an answer that is gone altogether has probability 0.
    A continuation's is the product over its tokens.
    """

    index: tuple[int, ...] = ()  # a label, or token ids that follow one another
    foil: int | None = None
    position: int | None = None  # the token whose label or word is read; it is never taken away
    span: Span | None = None  # an answer
    foil_span: Span | None = None

    @property
    def protected(self) -> tuple[int, ...]:
        return () if self.position is None else (self.position,)

    def move(self, kept: Sequence[int]) -> "Goal":
        """The same goal where only these tokens are left."""
        position = None if self.position is None else kept.index(self.position)
        span, foil_span = (one and squeeze(one, kept) for one in (self.span, self.foil_span))
        return replace(self, position=position, span=span, foil_span=foil_span)


def squeeze(span: Span, kept: Sequence[int]) -> Span:
    inside = [new for new, old in enumerate(kept) if span[0] <= old <= span[1]]
    return (inside[0], inside[-1]) if inside else GONE


@dataclass(frozen=True)
class Question:
    """An input and what is read from it; equal questions have equal answers."""

    input_ids: tuple[int, ...]
    original_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None
    goal: Goal

    def __len__(self) -> int:
        return len(self.input_ids)


def ask(explainer: Explainer, changed: Changed, goal: Goal) -> Question:
    """The question for one changed row. What is continued has the continuation behind it, all but its last token."""
    ids, original, types = changed.input_ids, changed.original_ids, changed.token_type_ids
    if not ids:
        ids = original = (start_token(explainer),)
        types = types if types is None else (0,)
    goal = goal.move(changed.kept)
    if explainer.task == "text-generation":
        tail = goal.index[:-1]
        ids, original = ids + tail, original + tail
        types = types if types is None else types + types[-1:] * len(tail)
    return Question(ids, original, types, goal)


def start_token(explainer: Explainer) -> int:
    """What stands for an empty text, where nothing is put around texts: the token that texts begin with or end with."""
    found = [t for t in (explainer.tokenizer.bos_token_id, explainer.tokenizer.eos_token_id) if t is not None]
    if not found:
        raise ValueError(
            "every token is taken away, and the vocabulary has no token for an empty text: replace instead"
        )
    return found[0]


def probabilities(
    explainer: Explainer,
    questions: Sequence[Question],
    *,
    twin: Twin | None = None,
    tokens: int = TOKENS,
    progress: bool = False,
) -> Tensor:
    """[question] in double precision. `tokens` is how many run together, padding included."""
    if tokens < 1:
        raise ValueError(f"tokens is how many run together, 1 or more; found {tokens}")
    check_probabilities(explainer)
    twin = twin or Twin(explainer.model)
    distinct = list(dict.fromkeys(questions))
    values: dict[Question, float] = {}
    batches = batches_of(explainer, distinct, tokens)
    with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
        for some in track(batches, "evaluating", map(len, batches), progress):
            answers = read(explainer, twin.run(make_batch(explainer, twin, some), Tape()), some)
            values.update(zip(some, answers.tolist(), strict=True))
    found = torch.tensor([values[question] for question in questions], dtype=torch.float64)
    if not torch.isfinite(found).all():
        raise ValueError(
            "the model's output is not finite on a changed input: its weights or its precision are at fault"
        )
    return found


def check_probabilities(explainer: Explainer) -> None:
    config = explainer._names.model.config
    one = explainer.task == "text-classification" and config.num_labels == 1
    if one and config.problem_type != "multi_label_classification":
        raise UnsupportedModelError(
            "the model answers with a number, not with a label: it has no probability to measure"
        )


def batches_of(explainer: Explainer, questions: Sequence[Question], tokens: int) -> list[list[Question]]:
    """Similar lengths together, at most `tokens` of them with padding, fewer where every token gets a vocabulary."""
    model = explainer._names.model
    config = model.config.get_text_config()
    if explainer.task in ("fill-mask", "text-generation"):
        tokens = min(tokens, OUTPUTS // config.vocab_size)
    places = length_batches(list(map(len, questions)), tokens, anatomy.needs_equal_lengths(model))
    return [[questions[i] for i in some] for some in places]


def make_batch(explainer: Explainer, twin: Twin, questions: Sequence[Question]) -> Batch:
    """Padded on the right, with positions written out as the whole rows count them."""
    width = max(map(len, questions))
    known = (twin.model.config.get_text_config().pad_token_id, explainer.tokenizer.pad_token_id, 0)
    fill = next(i for i in known if i is not None and i >= 0)

    def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], device=twin.device)

    types = [question.token_type_ids for question in questions if question.token_type_ids is not None]
    mask = padded([[1] * len(question) for question in questions], 0)
    before = Batch(padded([question.original_ids for question in questions], fill), mask)
    return Batch(
        input_ids=padded([question.input_ids for question in questions], fill),
        attention_mask=mask,
        token_type_ids=padded(types, 0) if len(types) == len(questions) else None,
        position_ids=anatomy.fix_positions(twin.model, before).position_ids,
    )


def read(explainer: Explainer, output: dict[str, Tensor], questions: Sequence[Question]) -> Tensor:
    """[question]"""
    if explainer.task == "question-answering":
        sides = [output["start_logits"], output["end_logits"]]
        return torch.stack([answer(sides, i, question) for i, question in enumerate(questions)])
    logits = output["logits"]
    config = explainer._names.model.config
    several = explainer.task == "text-classification" and config.problem_type == "multi_label_classification"
    found = []
    for i, question in enumerate(questions):
        goal, rows = question.goal, logits[i][None]  # text classification: [1, label]
        if explainer.task == "text-generation":
            end = len(question)
            rows = logits[i, end - len(goal.index) : end]  # [token of the continuation, vocabulary]
        elif explainer.task != "text-classification":
            rows = logits[i, goal.position][None]
        rows = rows.double()
        wanted = rows[list(range(len(rows))), list(goal.index)]
        if goal.foil is not None:
            found.append(torch.sigmoid(wanted - rows[:, goal.foil]).prod())
        elif several:
            found.append(torch.sigmoid(wanted).prod())
        else:
            found.append((wanted - rows.logsumexp(-1)).sum().exp())
    return torch.stack(found)


def answer(sides: Sequence[Tensor], i: int, question: Question) -> Tensor:
    """The probability of start times that of end."""
    goal, probability = question.goal, torch.ones((), dtype=torch.float64, device=sides[0].device)
    if goal.span is None or goal.span == GONE:
        return probability * 0
    for side, logits in enumerate(sides):
        row = logits[i, : len(question)].double()
        place = goal.span[side]
        if goal.foil_span is None:
            probability = probability * row.softmax(0)[place]
        elif goal.foil_span != GONE:
            probability = probability * torch.sigmoid(row[place] - row[goal.foil_span[side]])
    return probability
