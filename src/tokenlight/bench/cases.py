"""From an example to a case: its tokens, the model's prediction, the target and which tokens are marked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from tokenlight.bench.protocol import Protocol
from tokenlight.common.error_location import reason_to_skip
from tokenlight.data.examples import MASK_MARK, BadRow, Example, NumberedRow, Span, fill_mask, reason_unsuitable
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.options import RunOptions
from tokenlight.explain.resolve import answer_ids
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.perturbation import removable_units
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.runs.isolate_failures import isolate_failures
from tokenlight.runs.run_folder import Record
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget, TargetSpec, selected_indices, span_indices
from tokenlight.tasks.task import Task
from tokenlight.text.tokenize import encode_each
from tokenlight.text.tokenized_text import SegmentIndex, TokenizedText, trim


def find_marks(protocol: Protocol, tokenized_text: TokenizedText, example: Example) -> Tensor | None:
    """[token] bool; None if nothing is marked, or if a part of it is not among the tokens."""
    if example.answer is not None:
        return protocol.answer_marks(tokenized_text, example.answer)
    return mark(tokenized_text, [(0, span) for span in example.evidence])


def mark(tokenized_text: TokenizedText, places: Sequence[tuple[int, Span]]) -> Tensor | None:
    """[token] bool for spans of characters, each in a segment of the text; None as for `find_marks`."""
    marks = torch.zeros(len(tokenized_text), dtype=torch.bool)
    for segment, span in places:
        index = tokenized_text.segment_index(segment)
        tokens = index.find(span)
        if tokens is None or (tokenized_text.truncated and is_cut_off(index, tokenized_text.texts[segment], span)):
            return None
        marks[slice(*tokens)] = True
    return marks if places else None


def is_cut_off(index: SegmentIndex, text: str, span: Span) -> bool:
    """Whether characters of a span are before the first or behind the last token of a text that was cut."""
    start, end = trim(text, *span)
    return start < index.starts[0] or end > index.ends[-1]


def marked_span(marks: Tensor) -> tuple[int, int]:
    """From the first marked token to the token after the last."""
    tokens = marks.nonzero()[:, 0]
    return int(tokens[0]), int(tokens[-1]) + 1


BATCH = 32  # texts that run together


@dataclass(frozen=True)
class CaseDraft:
    """An example that the model can read."""

    number: int
    example: Example
    tokenized_text: TokenizedText
    gold: int | None  # class, or the right token
    target: ResolvedTarget  # without indices, the target is the prediction
    marks: Tensor | None  # [token] bool: the gold answer or the evidence


@dataclass(frozen=True)
class MeasuredAnswer:
    """The model's prediction for a draft in the measured pass."""

    prediction: str
    probability: float | None
    target: ResolvedTarget  # the predicted class, answer or word; the right word if the example names one
    gold_probability: float | None  # with a foil: among the two
    right: bool | None


@dataclass(frozen=True)
class Case:
    """An example that is measured, with the target that is explained."""

    draft: CaseDraft
    target: ResolvedTarget
    record: Record

    def of_class(self, change: Callable[[int], int]) -> ResolvedTarget:
        """The same target with another class, for measures that compare classes."""
        assert self.target.index is not None, "the target of a case has indices"
        return replace(self.target, indices=(change(self.target.index),))


def select_cases(
    explainer: Explainer,
    protocol: Protocol,
    rows: Sequence[NumberedRow],
    method_configs: Mapping[str, MethodConfig] | None = None,
) -> tuple[list[Case], list[Record]]:
    """The cases, and records of what is not measured: bad rows, and examples that the protocol sets aside.

    A row on which anything fails is a bad one, without an effect on others. With `method_configs`, rows that these
    methods cannot explain are bad ones, too.
    """

    def select(group: Sequence[NumberedRow]) -> list[tuple[list[Case], list[Record]]]:
        cases, records = select_together(explainer, protocol, group, InstrumentedModel(explainer.model))
        if method_configs and cases:
            explainer.explain_tokenized(
                [case.draft.tokenized_text for case in cases],
                method_configs,
                target=[case.target for case in cases],
                run_options=RunOptions(progress=False),
            )
        return [(cases, records)]

    def set_aside(row: NumberedRow, error: Exception, reason: str) -> tuple[list[Case], list[Record]]:
        return [], [bad_row(row, reason)]

    selected = isolate_failures(rows, select, set_aside) if rows else []
    return [case for cases, _ in selected for case in cases], [record for _, records in selected for record in records]


def select_together(
    explainer: Explainer, protocol: Protocol, rows: Sequence[NumberedRow], instrumented: InstrumentedModel
) -> tuple[list[Case], list[Record]]:
    """The same for rows that run together. `instrumented` is the explainer's model, instrumented."""
    drafts, records = make_drafts(explainer, protocol, rows)
    answers = predict_drafts(explainer, protocol, drafts, instrumented)
    kept: list[tuple[CaseDraft, MeasuredAnswer, Record]] = []
    for draft, answer in zip(drafts, answers, strict=True):
        reason = reason_to_set_aside(protocol, draft, answer)
        record = describe(explainer, draft, answer) | {"set_aside": reason}
        if reason is None:
            kept.append((draft, answer, record))
        else:
            records.append(record)
    labels = [class_of(explainer, draft) for draft, _, _ in kept]
    targets = protocol.targets(explainer, [draft.tokenized_text for draft, _, _ in kept], labels, instrumented)
    cases = [
        Case(draft, answer.target if target is None else with_foil(explainer.task, draft, target), record)
        for target, (draft, answer, record) in zip(targets, kept, strict=True)
    ]
    return cases, records


def with_foil(task: Task, draft: CaseDraft, target: TargetSpec) -> ResolvedTarget:
    """The target that the protocol names, compared with the example's foil if it has one."""
    return replace(task.resolve_target(draft.tokenized_text, target, None), foil=draft.target.foil)


def make_drafts(
    explainer: Explainer, protocol: Protocol, rows: Sequence[NumberedRow]
) -> tuple[list[CaseDraft], list[Record]]:
    """The tokenized examples; and records of rows that cannot be read or do not fit this model."""
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
            draft = make_draft(explainer, protocol, number, example, row)
        except Exception as error:
            draft = unusable(number, example, error)
        if isinstance(draft, CaseDraft):
            drafts.append(draft)
        else:
            records.append(draft)
    return drafts, records


def with_own_mask(explainer: Explainer, example: Example) -> Example:
    """The example with the tokenizer's mask token in place of the mark, for models that predict it."""
    marked = explainer.task.gap == "inside" and isinstance(example.text, str) and MASK_MARK in example.text
    return fill_mask(example, explainer.tokenizer.mask_token) if marked else example


def with_own_targets(task: Task, example: Example) -> Example:
    """The example with target and foil as `resolve_target` takes them."""
    return replace(example, target=task.read_target(example.target), foil=task.read_target(example.foil))


def make_draft(
    explainer: Explainer, protocol: Protocol, number: int, example: Example, tokenized_text: TokenizedText | Exception
) -> CaseDraft | Record:
    """The tokenized example with its target, or a record of why it is not measured. Unreadable ones raise an error."""
    if isinstance(tokenized_text, Exception):
        raise tokenized_text
    tokenized_text = replace(tokenized_text, documents=example.documents)
    if example.target is not None and (reason := reason_unsuitable(example, tokenized_text, explainer.tokenizer)):
        return {"row": number, "id": example.id, "tokens": len(tokenized_text), "set_aside": reason}
    if example.reply is not None:
        return draft_answer(explainer.task, number, example, tokenized_text, example.reply)
    target = explainer.task.resolve_target(tokenized_text, example.target, example.foil)
    gold = explainer.task.gold(example.label, target)
    return CaseDraft(number, example, tokenized_text, gold, target, find_marks(protocol, tokenized_text, example))


def draft_answer(task: Task, number: int, example: Example, tokenized_text: TokenizedText, reply: str) -> CaseDraft:
    """A prompt whose answer is explained as a whole; one that does not fit into the model is refused."""
    target = task.resolve_target(tokenized_text, answer_ids(task, tokenized_text, reply), None)
    marks = mark(tokenized_text, [(document.segment, document.span) for document in example.rests_on])
    return CaseDraft(number, example, tokenized_text, None, target, marks)


def unusable(number: int, example: Example, error: Exception) -> Record:
    return bad(number, BadRow(f"example {example.id}", reason_to_skip(error)))


def bad_row(numbered: NumberedRow, reason: str) -> Record:
    number, row = numbered
    where = row.where or (f"example {row.id}" if isinstance(row, Example) else f"row {number}")
    return bad(number, BadRow(where, reason))


def bad(number: int, row: BadRow) -> Record:
    return {"row": number, "where": row.where, "bad": row.reason}


def predict_drafts(
    explainer: Explainer, protocol: Protocol, drafts: Sequence[CaseDraft], instrumented: InstrumentedModel
) -> list[MeasuredAnswer]:
    """The model's predictions, texts of similar length together. Examples with a given answer need no pass."""
    answers = {i: given_answer(draft) for i, draft in enumerate(drafts) if draft.target.continuation}
    unknown = [i for i in range(len(drafts)) if i not in answers]
    for positions in explainer.batches(
        [drafts[i].tokenized_text for i in unknown], BATCH, [drafts[i].target.has_foil for i in unknown]
    ):
        batch_indices = [unknown[position] for position in positions]
        batch_drafts = [drafts[i] for i in batch_indices]
        tokenized_texts = [draft.tokenized_text for draft in batch_drafts]
        batch = protocol.measured(explainer.collate(tokenized_texts, instrumented.device))
        output = instrumented.predict(batch)
        target = BatchTarget(explainer.task, tuple(draft.target for draft in batch_drafts))
        selectors = target.select(output, batch, instrumented.model)
        for row, i in enumerate(batch_indices):
            answers[i] = read_answer(explainer.task, drafts[i], output, selectors, row)
    return [answers[i] for i in range(len(drafts))]


def given_answer(draft: CaseDraft) -> MeasuredAnswer:
    return MeasuredAnswer(draft.example.reply or "", None, draft.target, None, None)


def read_answer(
    task: Task, draft: CaseDraft, output: Any, selectors: tuple[OutputSelector, ...], row: int
) -> MeasuredAnswer:
    prediction, probability = task.prediction(draft.tokenized_text, output, draft.target, row)
    indices, foil = selected_indices(selectors, row)
    target = replace(draft.target, indices=indices, foil=foil)
    if target.kind == "span":
        right = None if draft.marks is None else indices == span_indices(marked_span(draft.marks))
        return MeasuredAnswer(prediction, probability, target, None, right)
    if target.foil:
        difference = selectors[0].score(output)[row].double()
        return MeasuredAnswer(prediction, probability, target, float(difference.sigmoid()), bool(difference > 0))
    if draft.gold is None:
        return MeasuredAnswer(prediction, probability, target, None, None)
    gold_probability, right = task.gold_probability(draft.tokenized_text, output, draft.target, draft.gold, row)
    return MeasuredAnswer(prediction, probability, target, gold_probability, right)


def class_of(explainer: Explainer, draft: CaseDraft) -> int | None:
    """The gold class, where classes are explained."""
    return draft.gold if explainer.task.compares_classes else None


def reason_to_set_aside(protocol: Protocol, draft: CaseDraft, answer: MeasuredAnswer) -> str | None:
    """Why an example is not measured."""
    gold_probability, right = answer.gold_probability, answer.right
    reason = protocol.keep(draft.tokenized_text, label=draft.gold, probability=gold_probability, right=right)
    reason = reason or unmeasurable(protocol, draft)
    if reason is not None or not protocol.needs_marks or draft.marks is not None:
        return reason
    if draft.example.answer is None and not draft.example.evidence and not draft.example.rests_on:
        return "no answer or evidence is marked"
    return f"the {'answer' if draft.example.answer else 'evidence'} is not among the tokens that fit into the model"


def unmeasurable(protocol: Protocol, draft: CaseDraft) -> str | None:
    """Why an example cannot be measured: no token can be removed, or a token is marked that is not counted."""
    read = () if draft.target.position is None else (draft.target.position,)
    curves = [measure.resolved_perturbation for measure in protocol.measures if measure.entry.kind == "perturbation"]
    if not draft.tokenized_text.documents and any(
        "documents" in (measure.units, measure.resolved_perturbation.units) for measure in protocol.measures
    ):
        return "no documents are named"
    if not all(removable_units(draft.tokenized_text, perturbation, read) for perturbation in curves):
        return "no token can be removed"
    of_words = [m for m in protocol.measures if m.entry.needs == "marks" and m.eligible == "words"]
    if of_words and draft.marks is not None and draft.marks[torch.tensor(draft.tokenized_text.special)].any():
        return "a special token is marked"
    return None


def describe(explainer: Explainer, draft: CaseDraft, answer: MeasuredAnswer) -> Record:
    """What is stored of an example beside its values."""
    return {
        "row": draft.number,
        "id": draft.example.id,
        "tokens": len(draft.tokenized_text),
        "read": hash_read(draft),
        "cut": draft.tokenized_text.truncated,
        "label": None if draft.gold is None else explainer.task.name_of(draft.gold),
        "prediction": answer.prediction,
        "probability": answer.probability,
        "right": answer.right,
        "group": draft.example.group,
        "marked": None if draft.marks is None else int(draft.marks.sum()),
    }


def hash_read(draft: CaseDraft) -> str:
    """A hash of what the model reads: equal for equal tokens, targets and foils."""
    text, target = draft.tokenized_text, draft.target
    read = (text.input_ids, text.token_type_ids, target.index, target.foil, target.continuation)
    return sha256(repr(read).encode()).hexdigest()[:16]


def in_order(records: Sequence[Record]) -> Iterator[Record]:
    yield from sorted(records, key=lambda record: record["row"])
