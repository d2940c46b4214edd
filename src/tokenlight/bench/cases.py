"""From an example to a case: its tokens, the model's prediction, what is explained and which tokens are marked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from tokenlight.bench.protocol import Protocol
from tokenlight.common.error_location import reason_to_skip
from tokenlight.data.examples import MASK_MARK, BadRow, Example, NumberedRow, Span, fill_mask, reason_unsuitable
from tokenlight.explain.answers import answer_ids
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.running import RunOptions
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.perturbation import removable_units
from tokenlight.model.capture import Capture
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.runs.halving import isolate_failures
from tokenlight.runs.run_folder import Record
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import ResolvedTarget, Target, chosen_indices
from tokenlight.tasks.task import Task
from tokenlight.text.tokenize import encode_each
from tokenlight.text.tokenized_text import SegmentIndex, TokenizedText, trim


def find_marks(protocol: Protocol, tokenized_text: TokenizedText, example: Example) -> Tensor | None:
    """[token] bool; None where nothing is marked, or not all of it is among the tokens."""
    if example.answer is not None:
        return protocol.answer_marks(tokenized_text, example.answer)
    return mark(tokenized_text, [(0, span) for span in example.evidence])


def mark(tokenized_text: TokenizedText, places: Sequence[tuple[int, Span]]) -> Tensor | None:
    """The same for spans in parts of the text."""
    marks = torch.zeros(len(tokenized_text), dtype=torch.bool)
    for segment, span in places:
        index = tokenized_text.segment_index(segment)
        found = index.find(span)
        if found is None or (tokenized_text.truncated and is_cut_off(index, tokenized_text.texts[segment], span)):
            return None
        marks[slice(*found)] = True
    return marks if places else None


def is_cut_off(index: SegmentIndex, text: str, span: Span) -> bool:
    """Whether characters of a span are before the first or behind the last token of a text that was cut."""
    start, end = trim(text, *span)
    return start < index.starts[0] or end > index.ends[-1]


def marked_span(marks: Tensor) -> tuple[int, int]:
    places = marks.nonzero()[:, 0]
    return int(places[0]), int(places[-1])


BATCH = 32  # texts that run together


@dataclass(frozen=True)
class CaseDraft:
    """An example that the model can read."""

    number: int
    example: Example
    tokenized_text: TokenizedText
    gold: int | None  # class, or the right token
    resolved: ResolvedTarget
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

    draft: CaseDraft
    target: Any
    foil: Any
    record: Record


def sort_out(
    explainer: Explainer,
    protocol: Protocol,
    rows: Sequence[NumberedRow],
    method_configs: Mapping[str, MethodConfig] | None = None,
) -> tuple[list[Case], list[Record]]:
    """The cases, and records of what is not measured: bad rows, and examples that the protocol sets aside.

    A row on which anything fails is a bad one, and spoils no other. With `method_configs`, so is one that they cannot
    explain.
    """

    def do(some: Sequence[NumberedRow]) -> list[tuple[list[Case], list[Record]]]:
        cases, records = sort_out_together(explainer, protocol, some, InstrumentedModel(explainer.model))
        if method_configs and cases:
            targets, foils = [case.target for case in cases], [case.foil for case in cases]
            running = RunOptions(progress=False)
            explainer.explain_rows(
                [c.draft.tokenized_text for c in cases], method_configs, target=targets, foil=foils, run_options=running
            )
        return [(cases, records)]

    def set_aside(row: NumberedRow, error: Exception, reason: str) -> tuple[list[Case], list[Record]]:
        return [], [bad_row(row, reason)]

    found = isolate_failures(rows, do, set_aside) if rows else []
    return [case for cases, _ in found for case in cases], [record for _, records in found for record in records]


def sort_out_together(
    explainer: Explainer, protocol: Protocol, rows: Sequence[NumberedRow], instrumented: InstrumentedModel
) -> tuple[list[Case], list[Record]]:
    """The same, all at once. `instrumented` is of the explainer's model."""
    drafts, records = make_drafts(explainer, protocol, rows)
    answers = ask_model(explainer, protocol, drafts, instrumented)
    kept: list[tuple[CaseDraft, Answer, Record]] = []
    for one, answer in zip(drafts, answers, strict=True):
        record = describe(explainer, one, answer) | {"set_aside": reason_to_set_aside(explainer, protocol, one, answer)}
        if record["set_aside"] is None:
            kept.append((one, answer, record))
        else:
            records.append(record)
    labels = [class_of(explainer, one) for one, _, _ in kept]
    given = protocol.targets(explainer, [one.tokenized_text for one, _, _ in kept], labels, instrumented)
    cases = [
        Case(one, answer.target if target is None else target, one.resolved.foil, record)
        for target, (one, answer, record) in zip(given, kept, strict=True)
    ]
    return cases, records


def make_drafts(
    explainer: Explainer, protocol: Protocol, rows: Sequence[NumberedRow]
) -> tuple[list[CaseDraft], list[Record]]:
    """The examples in tokens, all at once; and records of what cannot be read or does not fit this model."""
    records = [bad(number, row) for number, row in rows if isinstance(row, BadRow)]
    readable: list[tuple[int, Example]] = []
    for number, row in rows:
        if isinstance(row, Example):
            try:
                readable.append((number, with_own_mask(explainer, with_own_targets(explainer.task, row))))
            except Exception as error:
                records.append(unusable(number, row, error))
    drafts: list[CaseDraft] = []
    encoded = encode_each(explainer.encode, [example.text for _, example in readable])
    for (number, example), row in zip(readable, encoded, strict=True):
        try:
            found = make_draft(explainer, protocol, number, example, row)
        except Exception as error:
            found = unusable(number, example, error)
        if isinstance(found, CaseDraft):
            drafts.append(found)
        else:
            records.append(found)
    return drafts, records


def with_own_mask(explainer: Explainer, example: Example) -> Example:
    """With the tokenizer's mask token in place of the mark, for models that fill it."""
    marked = explainer.task.gap == "inside" and isinstance(example.text, str) and MASK_MARK in example.text
    return fill_mask(example, explainer.tokenizer.mask_token) if marked else example


def with_own_targets(task: Task, example: Example) -> Example:
    """With target and foil as the task reads them in data."""
    return replace(example, target=task.read_target(example.target), foil=task.read_target(example.foil))


def make_draft(
    explainer: Explainer, protocol: Protocol, number: int, example: Example, tokenized_text: TokenizedText | Exception
) -> CaseDraft | Record:
    """The example in tokens and indices; or a record that says why it is not measured. What is wrong is raised."""
    if isinstance(tokenized_text, Exception):
        raise tokenized_text
    tokenized_text = replace(tokenized_text, documents=example.documents)
    if example.target is not None and (reason := reason_unsuitable(example, tokenized_text, explainer.tokenizer)):
        return {"row": number, "id": example.id, "tokens": len(tokenized_text), "set_aside": reason}
    if example.reply is not None:
        return draft_answer(explainer.task, number, example, tokenized_text, example.reply)
    resolved = explainer.task.resolve_target(tokenized_text, example.target, example.foil)
    gold = explainer.task.gold(example.label, resolved)
    return CaseDraft(number, example, tokenized_text, gold, resolved, find_marks(protocol, tokenized_text, example))


def draft_answer(task: Task, number: int, example: Example, tokenized_text: TokenizedText, reply: str) -> CaseDraft:
    """A prompt whose answer is explained as a whole; what does not fit is a ValueError."""
    resolved = task.resolve_target(tokenized_text, answer_ids(task, tokenized_text, reply), None)
    marks = mark(tokenized_text, [(one.segment, one.span) for one in example.rests_on])
    return CaseDraft(number, example, tokenized_text, None, resolved, marks)


def unusable(number: int, example: Example, error: Exception) -> Record:
    return bad(number, BadRow(f"example {example.id}", reason_to_skip(error)))


def bad_row(numbered: NumberedRow, reason: str) -> Record:
    number, row = numbered
    where = row.where or (f"example {row.id}" if isinstance(row, Example) else f"row {number}")
    return bad(number, BadRow(where, reason))


def bad(number: int, row: BadRow) -> Record:
    return {"row": number, "where": row.where, "bad": row.reason}


def ask_model(
    explainer: Explainer, protocol: Protocol, drafts: Sequence[CaseDraft], instrumented: InstrumentedModel
) -> list[Answer]:
    """One pass over all texts, similar lengths together. Where the data has the model's answer, nothing is asked."""
    found = {i: given_answer(one) for i, one in enumerate(drafts) if one.resolved.answer}
    asked = [i for i in range(len(drafts)) if i not in found]
    for group in explainer.batches(
        [drafts[i].tokenized_text for i in asked], BATCH, [drafts[i].resolved.foil is not None for i in asked]
    ):
        places = [asked[i] for i in group]
        some = [drafts[i] for i in places]
        batch = protocol.measured(explainer.collate([one.tokenized_text for one in some], instrumented.device))
        with torch.inference_mode(), torch.autocast(instrumented.device.type, enabled=False):
            output = instrumented.run(batch, Capture())
            selectors = Target(explainer.task, tuple(one.resolved for one in some)).select(
                output, batch, instrumented.model
            )
        for place, i in enumerate(places):
            found[i] = read_answer(explainer, drafts[i], output, selectors, place)
    return [found[i] for i in range(len(drafts))]


def given_answer(one: CaseDraft) -> Answer:
    return Answer(one.example.reply or "", None, one.resolved.answer, None, None)


def read_answer(
    explainer: Explainer, one: CaseDraft, output: Any, selectors: tuple[OutputSelector, ...], place: int
) -> Answer:
    prediction, probability = explainer.task.prediction(one.tokenized_text, output, one.resolved, place)
    measured_target = explainer.task.measured_target(*chosen_indices(selectors, place), one.resolved.position)
    if measured_target.span is not None:
        right = None if one.marks is None else measured_target.span == marked_span(one.marks)
        return Answer(prediction, probability, measured_target.target, None, right)
    if one.resolved.foil is not None:
        difference = selectors[0].score(output)[place].double()
        return Answer(
            prediction, probability, measured_target.target, float(difference.sigmoid()), bool(difference > 0)
        )
    if one.gold is None:
        return Answer(prediction, probability, measured_target.target, None, None)
    chance, right = explainer.task.gold_chance(one.tokenized_text, output, one.resolved, one.gold, place)
    return Answer(prediction, probability, measured_target.target, chance, right)


def class_of(explainer: Explainer, one: CaseDraft) -> int | None:
    """The gold class, where classes are explained."""
    return one.gold if explainer.task.compares_classes else None


def reason_to_set_aside(explainer: Explainer, protocol: Protocol, one: CaseDraft, answer: Answer) -> str | None:
    """Why an example is not measured."""
    reason = protocol.keep(one.tokenized_text, label=one.gold, probability=answer.gold_probability, right=answer.right)
    reason = reason or unmeasurable(protocol, one)
    if reason is not None or not protocol.needs_marks or one.marks is not None:
        return reason
    if one.example.answer is None and not one.example.evidence and not one.example.rests_on:
        return "no answer or evidence is marked"
    return f"the {'answer' if one.example.answer else 'evidence'} is not among the tokens that fit into the model"


def unmeasurable(protocol: Protocol, one: CaseDraft) -> str | None:
    """Texts of which nothing can be taken away, and marks on tokens that do not count."""
    read = () if one.resolved.position is None else (one.resolved.position,)
    curves = [measure.resolved_perturbation for measure in protocol.measures if measure.entry.kind == "perturbation"]
    if not one.tokenized_text.documents and any(
        "documents" in (measure.units, measure.resolved_perturbation.units) for measure in protocol.measures
    ):
        return "no documents are named"
    if not all(removable_units(one.tokenized_text, perturbation, read) for perturbation in curves):
        return "no token can be taken away"
    of_words = [m for m in protocol.measures if m.entry.needs == "marks" and m.eligible == "words"]
    if of_words and one.marks is not None and one.marks[torch.tensor(one.tokenized_text.special)].any():
        return "a special token is marked"
    return None


def describe(explainer: Explainer, one: CaseDraft, answer: Answer) -> Record:
    """What is kept of an example beside its numbers."""
    return {
        "row": one.number,
        "id": one.example.id,
        "tokens": len(one.tokenized_text),
        "read": hash_read(one),
        "cut": one.tokenized_text.truncated,
        "label": None if one.gold is None else explainer.task.name_of(one.gold),
        "prediction": answer.prediction,
        "probability": answer.probability,
        "right": answer.right,
        "group": one.example.group,
        "marked": None if one.marks is None else int(one.marks.sum()),
    }


def hash_read(one: CaseDraft) -> str:
    """The same for examples that are the same to the model: equal tokens, target and foil."""
    text, resolved = one.tokenized_text, one.resolved
    read = (text.input_ids, text.token_type_ids, resolved.index, resolved.foil, resolved.answer)
    return sha256(repr(read).encode()).hexdigest()[:16]


def in_order(records: Sequence[Record]) -> Iterator[Record]:
    yield from sorted(records, key=lambda record: record["row"])
