"""Notes of a result: what a reader should know of the input and of the scores."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import NamedTuple

import torch
from torch import Tensor

from tokenlight.common.notes import Note
from tokenlight.heads.mask import HeadMask
from tokenlight.methods.config import MethodConfig
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import Chat, Document, TokenizedText, parts

NOTICEABLE_SHARE = 1e-4  # of the explained number: smaller scores are rounding errors
SMALLEST_SCORE = 1e-12  # that shares are computed of
MAX_NAMED = 4  # tokens that a note names


def input_notes(
    task: Task, tokenized_text: TokenizedText, method_config: MethodConfig, targeted: bool
) -> Iterator[Note]:
    """Notes on the text, the target and the method's options. `targeted`: the caller named a target or a foil."""
    if tokenized_text.truncated:
        end = "oldest" if isinstance(tokenized_text.text, Chat) else "first" if task.cut == "start" else "last"
        yield Note("truncated", f"the text was too long: its {end} {tokenized_text.truncated} tokens were cut off")
        yield from unread_documents(tokenized_text)
    if targeted and not method_config.method.class_specific:
        yield Note("target_ignored", f"{method_config.method.name} does not depend on the target")
    if isinstance(heads := method_config.options.get("heads"), HeadMask):
        opened = count_opened_layers(method_config)
        others = f", and all heads of the {opened} of {len(heads.lit)} layers without a lit one" if opened else ""
        yield Note("head_mask", f"{method_config.method.name}: relevance flows through {heads}{others}")
    if method_config.full_options.get("units", "tokens") != "tokens":
        units = method_config.full_options["units"]
        yield Note("units", f"{method_config.method.name}: what the {units} score is spread evenly over their tokens")
    if method_config.contexts is not None:
        how_many = (
            "as many contexts as convergence took"
            if method_config.contexts.until_converged
            else f"{method_config.contexts.count} contexts"
        )
        mean = f"{method_config.method.name}: the mean over {how_many} and the whole text (docs/contexts.md)"
        yield Note("contexts", mean)
        if task.generates:
            measured = "for next tokens, means over contexts were measured to be less faithful than a single pass"
            yield Note("contexts_of_next_tokens", f"{measured}: take contexts=0")
    if method_config.rules is not None:
        yield Note("own_rules", "explained with a rule table of the caller's own")


def unread_documents(tokenized_text: TokenizedText) -> Iterator[Note]:
    """Documents that were truncated with the text, so that a score of 0 is not mistaken for a result."""
    cut_off: dict[str, list[str]] = {"": [], " in part": []}
    for document in tokenized_text.documents:
        spans = [
            span
            for segment, span in zip(tokenized_text.segments, tokenized_text.spans, strict=True)
            if segment == document.segment
        ]
        start, end = document.span
        before = text_between(tokenized_text, document, start, min((first for first, _ in spans), default=end))
        after = text_between(tokenized_text, document, max((last for _, last in spans), default=end), end)
        if not any(start <= first < end for first, _ in spans):
            cut_off[""].append(document.name)
        elif before or after:
            cut_off[" in part"].append(document.name)
    for how_much, names in cut_off.items():
        if names:
            unread = f"the model did not read all documents; cut off{how_much}: {', '.join(names)}"
            yield Note("unread_documents", unread)


def text_between(tokenized_text: TokenizedText, document: Document, start: int, end: int) -> str:
    """Characters of the segment that a document is in, without surrounding blanks."""
    return parts(tokenized_text.text)[document.segment][start : max(start, end)].strip()


def merge_notes(task: Task, tokenized_text: TokenizedText, continuation: Sequence[int]) -> Iterator[Note]:
    """A note if text and continuation would have other tokens when tokenized as one text."""
    special_ids = set(task.tokenizer.all_special_ids)
    ids = list(dropwhile(special_ids.__contains__, tokenized_text.input_ids))  # without those before the text

    def tokenize_again(ids: list[int]) -> list[int]:
        return task.tokenizer.encode(task.tokenizer.decode(ids), add_special_tokens=False)

    if tokenize_again(ids) == ids and tokenize_again([*ids, *continuation]) != [*ids, *continuation]:
        named = [repr(task.name_of(i)) for i in continuation[:MAX_NAMED]] + ["…"] * (len(continuation) > MAX_NAMED)
        explained = f"the explained tokens follow the text as given ({', '.join(named)})"
        yield Note("other_tokens", f"{explained}: tokenized as one text, both would have other tokens")


def result_notes(
    method_config: MethodConfig, score: float, scores: Tensor, extras: Mapping[str, float], precision: torch.dtype
) -> Iterator[Note]:
    """Notes on scores that were computed in this precision."""
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
        step_extras = {name: float(values[step]) for name, values in extras.items() if values.ndim == 1}
        for warning in result_warnings(method_config, number, scores, step_extras, precision):
            count[warning.code] += 1
            if warning.code not in worst or warning.size > worst[warning.code][0].size:
                worst[warning.code] = warning, step
    for code, (warning, step) in worst.items():
        others = f", and {count[code] - 1} more of its tokens" if count[code] > 1 else ""
        which = f" (token {step + 1} of the answer{others})" if len(matrix) > 1 else ""
        yield Note(code, warning.text + which)


class ScoreWarning(NamedTuple):
    """A warning about scores: its code, how severe it is, and its sentence."""

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
    # Heads that are not lit stop relevance, which is no rounding error.
    masked = isinstance(heads := method_config.options.get("heads"), HeadMask)
    if masked and not heads.count:
        instead = (
            "relevance flows through all heads"
            if count_opened_layers(method_config)
            else "only the residual stream carries relevance"
        )
        yield ScoreWarning("no_head", 0.0, f"no head is lit: {instead}")
    dropped = abs(extras.get("masked_share", 0.0)) / max(explained_whole(method_config, score), SMALLEST_SCORE)
    if masked and heads.calibrated is None and dropped > 0.5:  # calibrated strengths hold back what disturbs
        text = f"the head mask drops {dropped:.0%} of the relevance: few heads are lit, or none in some layers"
        remedy = ". empty='all' keeps it" if method_config.full_options.get("empty") == "drop" else ""
        yield ScoreWarning("dropped", dropped, text + remedy)
    if method_config.method.signed and not masked and 0 < largest < NOTICEABLE_SHARE * abs(score):
        text = f"no score of {name} reaches {NOTICEABLE_SHARE:g} of what it explains: there is little but rounding"
        cause = (
            ". A norm right behind the embeddings does that: take read='blocks'"
            if reads_embeddings(method_config)
            else ""
        )
        yield ScoreWarning("rounding", abs(score), text + cause)
    if not largest:
        yield ScoreWarning("zero", 0.0, f"every score of {name} is 0 on this text")


def count_opened_layers(method_config: MethodConfig) -> int:
    """The number of layers without a lit head in which relevance flows through all heads instead."""
    gates = (
        method_config.method.passes[0].gates_with(method_config.full_options) if method_config.method.passes else None
    )
    return int(gates.layers_without_heads.sum()) if gates is not None and gates.empty == "all" else 0


def explained_whole(method_config: MethodConfig, score: float) -> float:
    """The total relevance of all tokens: the score, or 1 if relevance starts from 1."""
    return 1.0 if method_config.method.passes and method_config.method.passes[0].unit else abs(score)


def reads_embeddings(method_config: MethodConfig) -> bool:
    return method_config.full_options.get("read") == "embeddings"
