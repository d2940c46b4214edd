"""Makes explanations from what passes and methods return, with notes, and differences of two explanations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tokenlight.common.notes import Note
from tokenlight.common.versions import library_versions
from tokenlight.explain.in_batches import explain_in_batches
from tokenlight.explain.running import RunOptions
from tokenlight.heads.mask import HeadMask, model_name
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.record.recorder import Answer
from tokenlight.results.explanation import Explanation, keep_precision, trim_map
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import chosen_indices
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import Chat, Document, TokenizedText, parts

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


NOTICEABLE = 1e-4  # the share of what is explained
NOTHING = 1e-12  # below it, a score has no shares
SHOWN = 4  # tokens that a note names


def input_notes(
    task: Task, tokenized_text: TokenizedText, method_config: MethodConfig, targeted: bool
) -> Iterator[Note]:
    """What a reader should know of what went in."""
    if tokenized_text.truncated:
        end = "oldest" if isinstance(tokenized_text.text, Chat) else "first" if task.cut == "start" else "last"
        yield Note("truncated", f"the text was too long: its {end} {tokenized_text.truncated} tokens were cut off")
        yield from unread_documents(tokenized_text)
    if targeted and not method_config.method.class_specific:
        yield Note("target_ignored", f"{method_config.method.name} does not depend on the target")
    if isinstance(heads := method_config.options.get("heads"), HeadMask):
        opened = opened_layers(method_config)
        also = f", and all heads of the {opened} of {len(heads.lit)} layers without a lit one" if opened else ""
        yield Note("head_mask", f"{method_config.method.name}: relevance flows through {heads}{also}")
    if method_config.full_options.get("units", "tokens") != "tokens":
        units = method_config.full_options["units"]
        spread = f"{method_config.method.name}: what the {units} score is spread evenly over their tokens"
        yield Note("units", spread)
    if method_config.contexts is not None:
        how_many = (
            "as many contexts as it took to settle"
            if method_config.contexts.until_converged
            else f"{method_config.contexts.count} contexts"
        )
        mean = f"{method_config.method.name}: the mean over {how_many} and the whole text (docs/contexts.md)"
        yield Note("contexts", mean)
        if task.reads_on:
            measured = "for next tokens, means over contexts were measured to be less faithful than a single pass"
            yield Note("contexts_of_next_tokens", f"{measured}: take contexts=0")
    if method_config.rules is not None:
        yield Note("own_rules", "explained with a rule table of the caller's own")


def unread_documents(tokenized_text: TokenizedText) -> Iterator[Note]:
    """Sources that were cut off with a part of the text: 0 would be taken for what the model made of them."""
    lost: dict[str, list[str]] = {"": [], " in part": []}
    for source in tokenized_text.documents:
        spans = [
            span
            for segment, span in zip(tokenized_text.segments, tokenized_text.spans, strict=True)
            if segment == source.segment
        ]
        start, end = source.span
        before = text_between(tokenized_text, source, start, min((first for first, _ in spans), default=end))
        behind = text_between(tokenized_text, source, max((last for _, last in spans), default=end), end)
        if not any(start <= first < end for first, _ in spans):
            lost[""].append(source.name)
        elif before or behind:
            lost[" in part"].append(source.name)
    for how_much, names in lost.items():
        if names:
            unread = f"the model did not read all sources; cut off{how_much}: {', '.join(names)}"
            yield Note("unread_documents", unread)


def text_between(tokenized_text: TokenizedText, source: Document, start: int, end: int) -> str:
    """Of the text that a source stands in, without blanks."""
    return parts(tokenized_text.text)[source.segment][start : max(start, end)].strip()


def merge_notes(task: Task, tokenized_text: TokenizedText, answer: Sequence[int]) -> Iterator[Note]:
    """Where the tokenizer would cut the text and the tokens behind it otherwise, if they were one text."""
    roles = set(task.tokenizer.all_special_ids)
    before = list(dropwhile(roles.__contains__, tokenized_text.input_ids))  # what a tokenizer puts in front is no text

    def again(ids: list[int]) -> list[int]:
        return task.tokenizer.encode(task.tokenizer.decode(ids), add_special_tokens=False)

    if again(before) == before and again([*before, *answer]) != [*before, *answer]:
        shown = [repr(task.name_of(i)) for i in answer[:SHOWN]] + ["…"] * (len(answer) > SHOWN)
        told = f"explained are the tokens as given behind the text ({', '.join(shown)})"
        yield Note("other_tokens", f"{told}: as one text, both would be cut into other tokens")


def result_notes(
    method_config: MethodConfig, score: float, scores: Tensor, extras: Mapping[str, float], precision: torch.dtype
) -> Iterator[Note]:
    """What a reader should know of what came out, computed in this precision."""
    yield from (
        Note(warning.code, warning.text) for warning in result_warnings(method_config, score, scores, extras, precision)
    )


def answer_notes(
    method_config: MethodConfig, numbers: Tensor, matrix: Tensor, extras: Mapping[str, Tensor], precision: torch.dtype
) -> Iterator[Note]:
    """The same for the tokens of an answer [step] and their scores [step, token]: each warning once, for the worst."""
    worst: dict[str, tuple[ScoreWarning, int]] = {}
    count: Counter[str] = Counter()
    for step, (number, scores) in enumerate(zip(numbers.tolist(), matrix, strict=True)):
        own = {name: float(values[step]) for name, values in extras.items() if values.ndim == 1}
        for warning in result_warnings(method_config, number, scores, own, precision):
            count[warning.code] += 1
            if warning.code not in worst or warning.size > worst[warning.code][0].size:
                worst[warning.code] = warning, step
    for code, (warning, step) in worst.items():
        others = f", and {count[code] - 1} more of its tokens" if count[code] > 1 else ""
        which = f" (token {step + 1} of the answer{others})" if len(matrix) > 1 else ""
        yield Note(code, warning.text + which)


class ScoreWarning(NamedTuple):
    """A warning about scores: what it is about, how large that is, and the sentence."""

    code: str
    size: float
    text: str


def result_warnings(
    method_config: MethodConfig, score: float, scores: Tensor, extras: Mapping[str, float], precision: torch.dtype
) -> Iterator[ScoreWarning]:
    name, largest = method_config.method.name, float(scores.abs().max())
    missed, residual = abs(extras.get("completeness", 0.0)), abs(extras.get("residual", 0.0))
    if missed > 0.05 * max(abs(score), largest):
        yield ScoreWarning(
            "completeness", missed, f"{name} misses {missed:.2g} of the change it explains: take more steps"
        )
    if residual > 1e-2 * max(1.0, abs(score)):  # more than rounding of single precision
        half = torch.finfo(precision).bits < 32
        cause = f"rounding to {precision}, or " if half else ""
        text = f"scores and shares miss {residual:.2g} of the whole: {cause}the rules do not cover this target"
        yield ScoreWarning("residual", residual, text)
    masked = isinstance(
        heads := method_config.options.get("heads"), HeadMask
    )  # dark heads stop relevance, which is no rounding
    if masked and not heads.count:
        instead = (
            "relevance flows through all heads"
            if opened_layers(method_config)
            else "only the residual stream carries relevance"
        )
        yield ScoreWarning("no_head", 0.0, f"no head is lit: {instead}")
    dropped = abs(extras.get("masked_share", 0.0)) / max(explained_whole(method_config, score), NOTHING)
    if masked and heads.calibrated is None and dropped > 0.5:  # calibrated strengths hold back what disturbs
        text = f"the head mask drops {dropped:.0%} of the relevance: few heads are lit, or none in some layers"
        remedy = ". empty='all' keeps it" if method_config.full_options.get("empty") == "drop" else ""
        yield ScoreWarning("dropped", dropped, text + remedy)
    if method_config.method.signed and not masked and 0 < largest < NOTICEABLE * abs(score):
        text = f"no score of {name} reaches {NOTICEABLE:g} of what it explains: there is little but rounding"
        cause = (
            ". A norm right behind the embeddings does that: take read='blocks'"
            if reads_embeddings(method_config)
            else ""
        )
        yield ScoreWarning("rounding", abs(score), text + cause)
    if not largest:
        yield ScoreWarning("zero", 0.0, f"every score of {name} is 0 on this text")


def opened_layers(method_config: MethodConfig) -> int:
    """How many layers have no lit head and let relevance flow through all of theirs instead."""
    gates = (
        method_config.method.passes[0].gates_with(method_config.full_options) if method_config.method.passes else None
    )
    return int(gates.layers_without_heads.sum()) if gates is not None and gates.empty == "all" else 0


def explained_whole(method_config: MethodConfig, score: float) -> float:
    """What the relevance of all tokens would add up to: the score, or 1 where it starts from 1."""
    return 1.0 if method_config.method.passes and method_config.method.passes[0].unit else abs(score)


def reads_embeddings(method_config: MethodConfig) -> bool:
    return method_config.full_options.get("read") == "embeddings"


def is_signed(method_config: MethodConfig, task: Task, foil: str | None) -> bool:
    """Differences of two explanations have a sign; lengths have none."""
    apart = method_config.method.explains_separately(task, foil is not None)
    return apart or (method_config.method.signed and method_config.full_options.get("reduce", "sum") == "sum")


def presentation_of(
    task: Task, method_config: MethodConfig, probability: float | None, quantity: str | None
) -> dict[str, str]:
    """The fields of a result that only views read: what method and explained number are called, and the caution."""
    score_word = "output" if probability is None else task.score_word
    return {
        "method_title": method_config.method.title,
        "method_caution": method_config.method.caution,
        "score_word": "logits above the mean" if quantity == "log_probability" else score_word,
    }


def assemble(
    explainer: "Explainer",
    request: Request,
    method_config: MethodConfig,
    answer: Answer,
    attribution: Attribution,
    place: int,
) -> Explanation:
    """The explanation of the text at this place of the batch."""
    task, tokenized_text = explainer.task, request.tokenized_text
    target, foil = task.describe(tokenized_text, answer.selectors, place)
    prediction, probability = task.prediction(tokenized_text, answer.output, request.resolved, place)
    scores = keep_precision(attribution.scores[place, : len(tokenized_text)])
    extras = {name: float(value[place]) for name, value in attribution.extras.items()}
    if request.resolved.answer or request.given:  # an answer's later tokens have their reasons in earlier ones, too
        extras["answer_share"] = float(attribution.scores[place, len(tokenized_text) :].sum())
    score = float(answer.score[place])
    found = result_notes(method_config, score, scores, extras, attribution.scores.dtype)
    notes = [*input_notes(task, tokenized_text, method_config, request.named), *found]
    indices, foil_indices = chosen_indices(answer.selectors, place)
    if request.named and task.reads_on and indices:
        notes += merge_notes(task, tokenized_text, request.given + indices)
    if indices and indices == foil_indices:
        notes.append(Note("foil_predicted", "the model predicts the foil itself: the explained difference is 0"))
    return Explanation(
        text=tokenized_text.text,
        tokens=tokenized_text.tokens,
        scores=scores,
        special=torch.tensor(tokenized_text.special),
        segments=tokenized_text.segments,
        spans=tokenized_text.spans,
        score=score,
        target=target,
        foil=foil,
        prediction=prediction,
        probability=probability,
        method=method_config.method.name,
        options={**method_config.described_options, **request.quantity},
        task=task.name,
        model=model_name(explainer.inner),
        signed=is_signed(method_config, task, foil),
        **presentation_of(task, method_config, probability, request.quantity.get("quantity")),
        position=request.resolved.position,
        indices=indices,
        foil_indices=foil_indices,
        documents=tokenized_text.documents,
        given=request.given,
        extras=extras,
        maps={name: trim_map(name, value[place], len(tokenized_text)) for name, value in attribution.maps.items()},
        notes=tuple(notes),
        fused=attribution.fused,
        versions=library_versions(),
        explainer=explainer,
    )


def explain_requests(
    explainer: "Explainer",
    requests: Sequence[Request],
    method_configs: Mapping[str, MethodConfig],
    run_options: RunOptions,
) -> dict[str, list[Explanation]]:
    """For every job its explanations of all texts."""
    split_foil = [one.split_foil(explainer.task) for one in requests]
    found = explain_in_batches(
        explainer, [one for parts in split_foil for one in parts], method_configs, run_options, assemble
    )
    return {name: differences_of(results, map(len, split_foil)) for name, results in found.items()}


def differences_of(results: Sequence[Explanation], counts: Iterable[int]) -> list[Explanation]:
    """Where there are two for a text, the first minus the second."""
    rest = iter(results)
    groups = [[next(rest) for _ in range(count)] for count in counts]
    return [group[0] if len(group) == 1 else minus(*group) for group in groups]


def minus(one: Explanation, other: Explanation) -> Explanation:
    """Scores and all numbers about them are differences."""
    return replace(
        one,
        scores=one.scores - other.scores,
        score=one.score - other.score,
        foil=other.target,
        foil_indices=other.indices,
        signed=True,
        extras=differences(one.extras, other.extras),
        maps=differences(one.maps, other.maps),
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value - other[name] for name, value in one.items()}
