"""What an explanation explained, in indices again: an explanation names its target in words."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from tokenlight import anatomy
from tokenlight.batch import Row
from tokenlight.explainer import Explainer
from tokenlight.explanation import Explanation
from tokenlight.metrics.probability import Goal
from tokenlight.naming import answer_text
from tokenlight.targets import Span, Target, Wanted
from tokenlight.twin import Tape, Twin

BATCH = 32  # texts that run together
GIVE = "give target= (and foil=) as in explain()"


def goals_of(
    explainer: Explainer,
    twin: Twin,
    rows: Sequence[Row],
    explanations: Sequence[Explanation],
    targets: Sequence[Any],
    foils: Sequence[Any],
) -> list[Goal]:
    """For each explanation what the caller names, or else what it explained itself."""
    goals: list[Goal | None] = []
    open_questions: dict[int, Wanted] = {}  # those that the model's own prediction decides
    for i, (row, explanation) in enumerate(zip(rows, explanations, strict=True)):
        if targets[i] is None and foils[i] is not None:
            raise ValueError("a foil needs a target to be compared with")
        if targets[i] is None:
            wanted = wanted_again(explainer, row, explanation)
        elif explainer.task == "text-generation" and (several := continuation(explainer, row, targets[i], foils[i])):
            goals.append(Goal(index=several))
            continue
        else:
            wanted = explainer._names.want(row, targets[i], foils[i])
        goals.append(goal_from(wanted))
        if goals[-1] is None:
            open_questions[i] = wanted
    for i, goal in predictions(explainer, twin, rows, open_questions).items():
        if targets[i] is None:  # a target such as (position, None) is the predicted one by the caller's own word
            check_name(explainer, rows[i], explanations[i], goal)
        goals[i] = goal
    return [goal for goal in goals if goal is not None]


def goal_from(wanted: Wanted) -> Goal | None:
    """None where the prediction decides."""
    if wanted.span is None and wanted.index is None:
        return None
    index = () if wanted.index is None else (wanted.index,)
    return Goal(index, wanted.foil, wanted.position, wanted.span, wanted.foil_span)


def wanted_again(explainer: Explainer, row: Row, explanation: Explanation) -> Wanted:
    """From the names that the explanation holds; an index stays None where the target's name fits several or none."""
    names = (explanation.target, explanation.foil)
    find = spans_of if explainer.task == "question-answering" else indices_of
    target, foil = ([] if name is None else find(explainer, row, name) for name in names)
    if explanation.foil is not None and len(foil) != 1:
        raise ValueError(f"the foil {explanation.foil!r} fits {len(foil)} outputs of the model: {GIVE}")
    one, other = (found[0] if len(found) == 1 else None for found in (target, foil))
    if explainer.task == "question-answering":
        inside = [i for i, segment in enumerate(row.segments) if segment == 1]
        return Wanted(span=one, foil_span=other, context=(inside[0], inside[-1]))
    return Wanted(index=one, foil=other, position=explanation.position)


def indices_of(explainer: Explainer, row: Row, name: str) -> list[Any]:
    """Labels or tokens of this name."""
    if explainer.task in ("fill-mask", "text-generation"):
        return list(written_tokens(explainer.tokenizer).get(name, ()))
    return [i for i, label in explainer._names.labels.items() if label == name]


@lru_cache(maxsize=2)
def written_tokens(tokenizer: Any) -> dict[str, list[int]]:
    """The ids behind each text; in SentencePiece vocabularies '▁are' and 'are' are both written 'are'."""
    found: dict[str, list[int]] = {}
    for i in range(len(tokenizer)):
        found.setdefault(tokenizer.decode([i]), []).append(i)
    return found


def spans_of(explainer: Explainer, row: Row, name: str) -> list[Any]:
    """Answers of exactly these characters, wherever they begin in the context."""
    begins = {i: span[0] for i, span in enumerate(row.spans) if row.segments[i] == 1}
    ends = {i: span[1] for i, span in enumerate(row.spans) if row.segments[i] == 1}
    context = row.text[1]
    found: list[Span] = []
    for first, begin in begins.items():
        last = [i for i, end in ends.items() if end == begin + len(name) and i >= first]
        if name and context.startswith(name, begin) and last:
            found.append((first, last[0]))
    return found


def predictions(explainer: Explainer, twin: Twin, rows: Sequence[Row], wanted: dict[int, Wanted]) -> dict[int, Goal]:
    """What the model says where nothing else decides; several methods' explanations of one text are one question."""
    asked = list({(rows[i].text, one): i for i, one in wanted.items()}.values())
    foiled = [wanted[i].foil is not None or wanted[i].foil_span is not None for i in asked]
    goals: dict[Any, Goal] = {}
    for places in explainer._batches([rows[i] for i in asked], BATCH, foiled):
        some = [asked[place] for place in places]
        batch = explainer.collate([rows[i] for i in some], twin.device)
        target = Target(explainer.task, tuple(wanted[i] for i in some))
        with torch.inference_mode(), torch.autocast(twin.device.type, enabled=False):
            choices = target.choose(twin.run(batch, Tape()), batch, twin.model)
        chosen = [choice.index.tolist() for choice in choices if choice.index is not None]
        for i, *found in zip(some, *chosen, strict=True):
            one = wanted[i]
            if explainer.task == "question-answering":
                goal = Goal(span=(found[0], found[1]), foil_span=one.foil_span)
            else:
                goal = Goal((found[0],), one.foil, one.position)
            goals[rows[i].text, one] = goal
    return {i: goals[rows[i].text, one] for i, one in wanted.items()}


def check_name(explainer: Explainer, row: Row, explanation: Explanation, goal: Goal) -> None:
    said = answer_text(row, goal.span) if goal.span else explainer._names.name(goal.index[0])
    if said != explanation.target:
        raise ValueError(
            f"the explained target {explanation.target!r} is neither what this model predicts ({said!r}) nor the name "
            f"of exactly one of its outputs: {GIVE}"
        )


def continuation(explainer: Explainer, row: Row, target: Any, foil: Any) -> tuple[int, ...]:
    """The tokens of a continuation of several, given as a text or as a tuple of ids; () for a single token."""
    try:
        explainer._names.index(target)
    except (ValueError, TypeError):
        pass
    else:
        return ()
    ids = target if isinstance(target, tuple) else ()
    if isinstance(target, str):
        ids = tuple(explainer.tokenizer.encode(target, add_special_tokens=False))
    if not ids or explainer.tokenizer.unk_token_id in ids:
        return ()  # the single token's own error says what is wrong
    ids = tuple(explainer._names.index(i) for i in ids)
    limit = anatomy.max_length(explainer._names.model, explainer.tokenizer.model_max_length)
    if foil is not None:
        raise ValueError("a continuation of several tokens has no foil: compare single tokens")
    if limit is not None and len(row) + len(ids) - 1 > limit:
        raise ValueError(
            f"the text and its continuation have {len(row) + len(ids) - 1} tokens, the model reads {limit}"
        )
    return ids
