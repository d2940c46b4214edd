"""One part of a corpus, explained. What comes out depends on the part alone, so every engine gives the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.corpus.batches_that_fit import Failure, in_batches
from tokenlight.corpus.windows import Window, cut, mean_logits, merge
from tokenlight.data.corpus import BadText, Part, TextRow
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.jobs import Job
from tokenlight.explain.running import Running
from tokenlight.model import pooling
from tokenlight.model.tape import Tape
from tokenlight.model.twin import Twin
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import Wanted
from tokenlight.text.rows import Row, encode

LARGEST = {"float32": torch.finfo(torch.float32).max, "float16": torch.finfo(torch.float16).max}


@dataclass(frozen=True)
class Settings:
    """What results depend on beside the model, the methods and the texts; kept with them."""

    part_rows: int = 1000
    tokens: int = 512  # that run together, padding included
    window: int | None = None  # tokens
    overlap: int | None = None
    dtype: str = "float32"  # of the scores that are written
    keep_text: bool = True
    target: str | int | None = None  # the same for every text; None: what the model predicts
    foil: str | int | None = None
    low_memory: bool = False
    device: str = "cpu"
    threads: int = 1  # of torch: they change how sums are rounded


@dataclass(frozen=True)
class Plan:
    """What is done to every part."""

    explainer: Explainer
    jobs: Mapping[str, Job]  # by label
    settings: Settings

    @property
    def equal_lengths(self) -> bool:
        return pooling.needs_equal_lengths(self.explainer.task.model)


@dataclass(frozen=True)
class Draft:
    """A text that the model can read, whole or in windows."""

    source: TextRow
    whole: Row
    windows: list[Window]
    target: Any
    foil: Any


@dataclass(frozen=True)
class ExplainedText:
    """A text with what each method says about it."""

    source: TextRow
    found: dict[str, Explanation]  # by label
    truncated: int  # tokens
    windows: int


@dataclass(frozen=True)
class ExplainedPart:
    """Every row of a part is in one of the two, in order."""

    number: int
    texts: list[ExplainedText]
    bad: list[BadText]


def explain_part(plan: Plan, part: Part, tell: Callable[[float], None] = lambda rows: None) -> ExplainedPart:
    """Texts of similar length run together; all methods share their passes. `tell` hears how many rows are done."""
    bad = [row for row in part.rows if isinstance(row, BadText)]
    drafts: list[Draft] = []
    for found in make_drafts(plan, [row for row in part.rows if isinstance(row, TextRow)]):
        (drafts if isinstance(found, Draft) else bad).append(found)  # type: ignore[arg-type]
    tell(len(bad))
    twin = Twin(plan.explainer.model)
    answers = ask_about_windows(plan, twin, drafts)
    results = explain_windows(plan, twin, drafts, answers, tell)
    texts: list[ExplainedText] = []
    for draft, answer, result in zip(drafts, answers, results, strict=True):
        failure = next((one for one in (answer, *result) if isinstance(one, Failure)), None)
        reason = failure and failure.reason
        if reason is None:
            text = put_together(plan, draft, answer, result)  # type: ignore[arg-type]
            reason = too_large(text, plan.settings.dtype)
            if reason is None:
                texts.append(text)
                continue
        bad.append(set_aside(draft.source, reason))
    return ExplainedPart(part.number, texts, sorted(bad, key=lambda row: row.number))


def make_drafts(plan: Plan, sources: Sequence[TextRow]) -> list[Draft | BadText]:
    """The texts in tokens; one that cannot be read spoils no other."""
    try:
        rows: list[Row | str] = [*read_rows(plan, sources)]
    except (TypeError, ValueError):
        rows = [read_alone(plan, source) for source in sources]
    return [make_draft(plan, source, row) for source, row in zip(sources, rows, strict=True)]


def read_rows(plan: Plan, sources: Sequence[TextRow]) -> list[Row]:
    texts = [source.text for source in sources]
    if not texts:
        return []
    if plan.settings.window is None:
        return plan.explainer.encode(texts)
    return encode(plan.explainer.tokenizer, texts, None)


def read_alone(plan: Plan, source: TextRow) -> Row | str:
    """The row, or why there is none."""
    try:
        return read_rows(plan, [source])[0]
    except (TypeError, ValueError) as error:
        return str(error)


def make_draft(plan: Plan, source: TextRow, row: Row | str) -> Draft | BadText:
    if isinstance(row, str):
        return set_aside(source, row)
    settings = plan.settings
    target = settings.target if source.target is None else source.target
    foil = settings.foil if source.foil is None else source.foil
    try:
        plan.explainer.task.want(row, target, foil)
        windows = cut(row, settings.window or len(row), settings.overlap or 0)
    except (TypeError, ValueError) as error:
        return set_aside(source, str(error))
    return Draft(source, row, windows, target, foil)


def too_large(text: ExplainedText, dtype: str) -> str | None:
    """Why the scores cannot be written."""
    for label, found in text.found.items():
        largest = float(found.scores.abs().max())
        if largest > LARGEST[dtype]:
            return f"a score of {label} is {largest:.3g}, which {dtype} cannot hold: choose another dtype"
    return None


def set_aside(source: TextRow, reason: str) -> BadText:
    return BadText(source.number, source.where, reason)


def ask_about_windows(plan: Plan, twin: Twin, drafts: Sequence[Draft]) -> list[Tensor | Failure | None]:
    """[label] logits of the whole text where it is read in windows, so that all of them explain the same label."""
    owners = [d for d, draft in enumerate(drafts) if len(draft.windows) > 1 for _ in draft.windows]
    rows = [one.row for draft in drafts if len(draft.windows) > 1 for one in draft.windows]

    def run(places: list[int]) -> list[Tensor]:
        batch = plan.explainer.collate([rows[i] for i in places], twin.device)
        with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
            return list(twin.run(batch, Tape())["logits"].cpu())

    by_draft: dict[int, list[Tensor | Failure]] = {}
    for owner, logits in zip(owners, in_batches(rows, plan.settings.tokens, plan.equal_lengths, run), strict=True):
        by_draft.setdefault(owner, []).append(logits)
    return [average(by_draft[d]) if d in by_draft else None for d in range(len(drafts))]


def average(logits: Sequence[Tensor | Failure]) -> Tensor | Failure:
    failure = next((one for one in logits if isinstance(one, Failure)), None)
    return failure or mean_logits([one for one in logits if isinstance(one, Tensor)])


def explain_windows(
    plan: Plan,
    twin: Twin,
    drafts: Sequence[Draft],
    answers: Sequence[Tensor | Failure | None],
    tell: Callable[[float], None],
) -> list[list[dict[str, Explanation] | Failure]]:
    """For every draft its windows' explanations."""
    units = [
        (d, one.row, settle_target(draft, answer), draft.foil)
        for d, (draft, answer) in enumerate(zip(drafts, answers, strict=True))
        for one in draft.windows
    ]

    def run(places: list[int]) -> list[dict[str, Explanation]]:
        _, rows, targets, foils = zip(*(units[i] for i in places), strict=True)
        running = Running(len(places), plan.settings.low_memory, progress=False, twin=twin)
        found = plan.explainer.explain_rows(rows, plan.jobs, target=list(targets), foil=list(foils), running=running)
        # Maps, which some options ask for, are not written; those of a whole part would not fit in memory.
        return [{label: replace(results[i], maps={}) for label, results in found.items()} for i in range(len(places))]

    def finished(places: list[int]) -> None:
        tell(sum(1 / len(drafts[units[i][0]].windows) for i in places))

    rows = [row for _, row, _, _ in units]
    sorted_out: list[list[dict[str, Explanation] | Failure]] = [[] for _ in drafts]
    found = in_batches(rows, plan.settings.tokens, plan.equal_lengths, run, finished)
    for (d, *_), result in zip(units, found, strict=True):
        sorted_out[d].append(result)
    return sorted_out


def settle_target(draft: Draft, answer: Tensor | Failure | None) -> Any:
    """Several windows explain what the model says about all of them."""
    return int(answer.argmax()) if draft.target is None and isinstance(answer, Tensor) else draft.target


def put_together(
    plan: Plan, draft: Draft, logits: Tensor | None, found: Sequence[dict[str, Explanation]]
) -> ExplainedText:
    if len(found) == 1 or logits is None:
        return ExplainedText(draft.source, found[0], draft.whole.truncated, 1)
    output = {"logits": logits[None]}
    prediction, probability = plan.explainer.task.prediction(draft.whole, output, Wanted(), 0)
    merged = {
        label: replace(
            merge(draft.whole, draft.windows, [one[label] for one in found]),
            prediction=prediction,
            probability=probability,
        )
        for label in found[0]
    }
    return ExplainedText(draft.source, merged, 0, len(found))
