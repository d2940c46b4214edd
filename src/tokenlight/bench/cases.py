"""From a row of data to a case: the text as the model reads it, what the model says, what is explained and marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.bench.protocol import Protocol
from tokenlight.data.examples import MASK_MARK, BadRow, Example, fill_mask
from tokenlight.data.subject_verb import misfit
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.perturbation import takeable
from tokenlight.model.tape import Tape
from tokenlight.model.twin import Twin
from tokenlight.record.choices import Choice
from tokenlight.runs.store import Record
from tokenlight.syntax.align import segment_tokens, tokens_of
from tokenlight.tasks.targets import Target, Wanted, chosen_indices
from tokenlight.text.rows import Row

Item = tuple[int, Example | BadRow]  # with its number in the data
BATCH = 32  # texts that run together


@dataclass(frozen=True)
class Draft:
    """An example that the model can read."""

    number: int
    example: Example
    row: Row
    gold: int | None  # class, or the right token
    wanted: Wanted
    marks: Tensor | None  # [token] bool: the gold answer or the evidence


@dataclass(frozen=True)
class Answer:
    """What the model says about a draft in the measured pass."""

    prediction: str
    probability: float | None
    target: Any  # the predicted class, answer or word as target= takes it; the right word where one is given
    gold_probability: float | None  # where there is a wrong word, among the two
    right: bool | None


@dataclass(frozen=True)
class Case:
    """An example that is measured."""

    draft: Draft
    target: Any
    foil: Any
    record: Record


def sort_out(explainer: Explainer, protocol: Protocol, items: Sequence[Item]) -> tuple[list[Case], list[Record]]:
    """The cases, and records of what is not measured: bad rows, and examples that the protocol sets aside."""
    drafts: list[Draft] = []
    records: list[Record] = []
    for number, item in items:
        found = bad(number, item) if isinstance(item, BadRow) else draft(explainer, protocol, number, item)
        if isinstance(found, Draft):
            drafts.append(found)
        else:
            records.append(found)
    answers = ask_model(explainer, protocol, drafts)
    kept: list[tuple[Draft, Answer, Record]] = []
    for one, answer in zip(drafts, answers, strict=True):
        record = describe(explainer, one, answer) | {"set_aside": doubt(explainer, protocol, one, answer)}
        if record["set_aside"] is None:
            kept.append((one, answer, record))
        else:
            records.append(record)
    given = protocol.targets(
        explainer, [one.row for one, _, _ in kept], [class_of(explainer, one) for one, _, _ in kept]
    )
    cases = [
        Case(one, answer.target if target is None else target, one.wanted.foil, record)
        for target, (one, answer, record) in zip(given, kept, strict=True)
    ]
    return cases, records


def draft(explainer: Explainer, protocol: Protocol, number: int, example: Example) -> Draft | Record:
    """The example in tokens and indices; or a record that says what is wrong with it for this model."""
    try:
        if explainer.task.gap == "inside" and MASK_MARK in example.text:
            example = fill_mask(example, explainer.tokenizer.mask_token)
        row = explainer.encode([example.text])[0]
        if example.target is not None and (reason := misfit(example, row, explainer.tokenizer)):
            return {"row": number, "id": example.id, "tokens": len(row), "set_aside": reason}
        wanted = explainer.task.want(row, example.target, example.foil)
        gold = explainer.task.gold(example.label, wanted)
    except ValueError as error:
        return bad(number, BadRow(f"example {example.id}", str(error)))
    return Draft(number, example, row, gold, wanted, find_marks(protocol, row, example))


def bad(number: int, row: BadRow) -> Record:
    return {"row": number, "where": row.where, "bad": row.reason}


def find_marks(protocol: Protocol, row: Row, example: Example) -> Tensor | None:
    """[token] bool; None where nothing is marked, or not all of it is among the tokens."""
    if example.answer is not None:
        return protocol.answer_marks(row, example.answer)
    tokens = segment_tokens(row, 0)
    places = [tokens_of(tokens, span) for span in example.evidence]
    marks = torch.zeros(len(row), dtype=torch.bool)
    for place in places:
        if place is None:
            return None
        marks[place[0] : place[1] + 1] = True
    return marks if places else None


def ask_model(explainer: Explainer, protocol: Protocol, drafts: Sequence[Draft]) -> list[Answer]:
    """One pass over all texts, similar lengths together."""
    twin = Twin(explainer.model)
    found: dict[int, Answer] = {}
    for places in explainer.batches(
        [one.row for one in drafts], BATCH, [one.wanted.foil is not None for one in drafts]
    ):
        some = [drafts[i] for i in places]
        batch = protocol.measured(explainer.collate([one.row for one in some], twin.device))
        with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
            output = twin.run(batch, Tape())
            choices = Target(explainer.task, tuple(one.wanted for one in some)).choose(output, batch, twin.model)
        for place, i in enumerate(places):
            found[i] = read_answer(explainer, drafts[i], output, choices, place)
    return [found[i] for i in range(len(drafts))]


def read_answer(explainer: Explainer, one: Draft, output: Any, choices: tuple[Choice, ...], place: int) -> Answer:
    prediction, probability = explainer.task.prediction(one.row, output, one.wanted, place)
    goal = explainer.task.goal(*chosen_indices(choices, place), one.wanted.position)
    if goal.span is not None:
        right = None if one.marks is None else goal.span == marked_span(one.marks)
        return Answer(prediction, probability, goal.target, None, right)
    if one.wanted.foil is not None:
        difference = choices[0].score(output)[place].double()
        return Answer(prediction, probability, goal.target, float(difference.sigmoid()), bool(difference > 0))
    if one.gold is None:
        return Answer(prediction, probability, goal.target, None, None)
    chance, right = explainer.task.gold_chance(one.row, output, one.wanted, one.gold, place)
    return Answer(prediction, probability, goal.target, chance, right)


def marked_span(marks: Tensor) -> tuple[int, int]:
    places = marks.nonzero()[:, 0]
    return int(places[0]), int(places[-1])


def class_of(explainer: Explainer, one: Draft) -> int | None:
    """The gold class, where classes are explained."""
    return one.gold if explainer.task.compares_classes else None


def doubt(explainer: Explainer, protocol: Protocol, one: Draft, answer: Answer) -> str | None:
    """Why an example is not measured."""
    reason = protocol.keep(one.row, label=one.gold, probability=answer.gold_probability, right=answer.right)
    reason = reason or unmeasurable(protocol, one)
    if reason is not None or not protocol.needs_marks or one.marks is not None:
        return reason
    if one.example.answer is None and not one.example.evidence:
        return "no answer or evidence is marked"
    return f"the {'answer' if one.example.answer else 'evidence'} is not among the tokens that fit into the model"


def unmeasurable(protocol: Protocol, one: Draft) -> str | None:
    """Texts of which nothing can be taken away, and marks on tokens that do not count."""
    read = () if one.wanted.position is None else (one.wanted.position,)
    curves = [measure.settled for measure in protocol.measures if measure.entry.kind == "perturbation"]
    if not all(takeable(one.row, perturbation, read) for perturbation in curves):
        return "no token can be taken away"
    of_words = [m for m in protocol.measures if m.entry.needs == "marks" and m.eligible == "words"]
    if of_words and one.marks is not None and one.marks[torch.tensor(one.row.special)].any():
        return "a special token is marked"
    return None


def describe(explainer: Explainer, one: Draft, answer: Answer) -> Record:
    """What is kept of an example beside its numbers."""
    return {
        "row": one.number,
        "id": one.example.id,
        "tokens": len(one.row),
        "cut": one.row.truncated,
        "label": None if one.gold is None else explainer.task.name_of(one.gold),
        "prediction": answer.prediction,
        "probability": answer.probability,
        "right": answer.right,
        "group": one.example.group,
        "marked": None if one.marks is None else int(one.marks.sum()),
    }


def in_order(records: Sequence[Record]) -> Iterator[Record]:
    yield from sorted(records, key=lambda record: record["row"])
