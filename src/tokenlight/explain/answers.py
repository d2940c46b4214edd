"""Answers of language models, written by the model or given, explained token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.versions import library_versions
from tokenlight.explain.assemble import answer_notes, input_notes, is_signed, merge_notes, presentation_of
from tokenlight.heads.mask import model_name
from tokenlight.methods import Attribution
from tokenlight.methods.config import MethodConfig
from tokenlight.model.private_copy import device_of, private_copy
from tokenlight.record.recorder import Answer
from tokenlight.results.explained_answer import Alternative, ExplainedAnswer
from tokenlight.results.explanation import keep_precision
from tokenlight.tasks.request import Request
from tokenlight.tasks.selectors import ContinuationSelector
from tokenlight.tasks.targets import ResolvedTarget, TargetSpec
from tokenlight.tasks.task import Task
from tokenlight.text.tokenize import follow, refuse_too_long
from tokenlight.text.tokenized_text import Chat, TokenizedText, parts

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer

LEAST_TEMPERATURE = 0.01  # with less, the likeliest token is as good as certain
NEW_TOKENS = 60  # that a model may write where nobody says how many
LIKELIEST = 5  # alternatives that are kept for each token


@dataclass(frozen=True)
class Generated:
    """What a model wrote after a prompt."""

    prompt: str | Chat
    text: str
    ids: tuple[int, ...]
    explainer: "Explainer" = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def explain(self, method: str = "attn_lrp", **settings: Any) -> ExplainedAnswer:
        """Why did it write that? As `Explainer.explain_answer`."""
        return self.explainer.explain_answer(self.prompt, self, method, **settings)


AnswerLike = str | Generated | tuple[int, ...]


def generate(
    explainer: "Explainer", tokenized_text: TokenizedText, seed: int | None, settings: Mapping[str, Any]
) -> Generated:
    """By transformers' own `generate`, on the model as it was given, or on a copy without dropout."""
    task, model = explainer.task, cast(Any, explainer.model)  # an adapter's class may be around it
    if not task.reads_on:
        raise RefusedValue(f"only language models write answers; this is a {task.name} model")
    if isinstance(tokenized_text.text, tuple):
        raise RefusedValue("a language model continues one text or a chat; found a pair")
    if any(module.training for module in explainer.inner.modules()):
        model = cast(Any, evaluating_copy(explainer.inner))
    if not callable(getattr(model, "generate", None)):
        model = cast(Any, explainer.inner)  # wrappers that only spread a model over devices
    if not callable(getattr(model, "generate", None)):
        raise RefusedValue(
            f"{type(model).__name__} cannot write: transformers gives it no generate(); use explain_answer"
        )
    ids = torch.tensor([tokenized_text.input_ids], device=device_of(explainer.inner.get_input_embeddings()))
    settings = with_defaults(explainer, tokenized_text, settings)
    with torch.no_grad(), torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        found: Any = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    whole = getattr(found, "sequences", found)
    if len(whole) != 1:
        raise RefusedValue(f"one answer at a time: num_return_sequences= asks for {len(whole)}")
    written = tuple(whole[0, len(tokenized_text) :].tolist())
    if not written:
        raise RefusedValue("the model wrote nothing: allow more with max_new_tokens=")
    assert not isinstance(tokenized_text.text, tuple), "refused above"
    return Generated(
        tokenized_text.text, explainer.tokenizer.decode(list(written), skip_special_tokens=True), written, explainer
    )


def evaluating_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A private copy around the same weights, in eval mode: explanations are of the model without dropout, too.

    The model itself keeps its mode, and another thread may go on training it.
    """
    made = private_copy(model, own_experts=True)
    made.config.use_cache = getattr(model.config, "use_cache", True)
    return made


def refuse_tiny_temperature(temperature: Any) -> None:
    """Logits are divided by it, and would overflow."""
    if isinstance(temperature, int | float) and 0 < temperature < LEAST_TEMPERATURE:
        raise RefusedValue(
            f"temperature is 0 (always the likeliest token) or a number from {LEAST_TEMPERATURE}, found {temperature}"
        )


def with_defaults(explainer: "Explainer", tokenized_text: TokenizedText, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `generate`; the model writes no more than it can read again."""
    found: dict[str, Any] = {"pad_token_id": explainer.tokenizer.pad_token_id, **settings}
    if "custom_generate" in found:  # otherwise transformers asks on standard input whether to run its code
        found.setdefault("trust_remote_code", False)
    refuse_tiny_temperature(found.get("temperature"))
    if found.get("stop_strings"):
        found.setdefault("tokenizer", explainer.tokenizer)
    own: Any = explainer.inner.generation_config
    said = own.max_new_tokens or own.max_length != type(own)().max_length  # by the checkpoint
    if not said and not found.keys() & {"max_new_tokens", "max_length", "generation_config"}:
        found["max_new_tokens"] = NEW_TOKENS
    limit = explainer.task.max_length
    if limit is not None:
        refuse_too_long(tokenized_text, (0,), limit)
        rooms = {"max_new_tokens": limit - len(tokenized_text), "max_length": limit}
        config = found.get("generation_config") or own
        set_by_config = {name: getattr(config, name, None) for name in rooms if name not in found}
        for name, room in rooms.items():
            if found.get(name):
                found[name] = min(found[name], room)
            elif (set_by_config.get(name) or 0) > room and not found.keys() & rooms.keys():
                found[name] = room
    return found


def answer_request(task: Task, tokenized_text: TokenizedText, answer: AnswerLike, against_all: bool) -> Request:
    """All tokens of an answer, one by one."""
    if not task.reads_on:
        raise RefusedValue(f"answers are what language models write; this is a {task.name} model")
    resolved = ResolvedTarget(answer=answer_ids(task, tokenized_text, answer), each=True, against_all=against_all)
    return Request(tokenized_text, resolved, named=True, read=task.read_on(tokenized_text, resolved))


def answer_part_request(
    task: Task,
    tokenized_text: TokenizedText,
    ids: Sequence[int],
    part: tuple[int, int],
    target: TargetSpec = None,
    foil: TargetSpec = None,
) -> Request:
    """Some tokens of an answer together, or another target in their place, given what was written before them."""
    start, end = part
    if not 0 <= start < end <= len(ids):
        raise RefusedValue(f"the answer has the tokens 0 to {len(ids) - 1}: there is no part from {start} up to {end}")
    given = tuple(ids[:start])
    itself = ids[start] if end == start + 1 else tuple(ids[start:end])
    resolved = task.resolve_target(tokenized_text, itself if target is None else target, foil)
    if resolved.index is not None and foil is None:
        resolved = task.resolve_target(
            tokenized_text, (resolved.index,), None
        )  # a single token of an answer is explained as several are
    if given and resolved.foil_answer:
        raise RefusedValue("two continuations can be compared only right after the prompt: name one token each")
    behind = given + resolved.answer
    read = follow(tokenized_text, behind, task.tokenizer) if behind else tokenized_text
    return Request(tokenized_text, resolved, named=True, given=given, read=read)


def answer_ids(task: Task, tokenized_text: TokenizedText, answer: AnswerLike) -> tuple[int, ...]:
    if isinstance(answer, Generated):
        answer = answer.ids
    if isinstance(answer, str):
        answer = tuple(task.tokenizer.encode(answer, add_special_tokens=False))
    if not isinstance(answer, Sequence):
        found = type(answer).__name__
        raise RefusedType(f"an answer is a text, what generate() returned, or a tuple of token ids; found {found}")
    ids = tuple(task.index(i) for i in answer)
    if not ids:
        raise RefusedValue("expected an answer, found an empty one")
    refuse_too_long(tokenized_text, ids, task.max_length)
    return ids


def assemble_answer(
    explainer: "Explainer",
    request: Request,
    method_config: MethodConfig,
    answer: Answer,
    attribution: Attribution,
    place: int,
) -> ExplainedAnswer:
    """The answer at this place of the batch; every part of the attribution is a token of it."""
    task, tokenized_text, ids = explainer.task, request.read, request.resolved.answer
    numbers, logits = facts_of_answer(answer, place, len(ids))
    prompt, text = request.tokenized_text.text, parts(tokenized_text.text)[-1]
    assert not isinstance(prompt, tuple), "refused when the answer was put behind it"
    matrix = keep_precision(attribution.scores[place, : len(ids), : len(tokenized_text)])
    extras = {name: value[place, : len(ids)].cpu().to(matrix.dtype) for name, value in attribution.extras.items()}
    notes = [
        *input_notes(task, request.tokenized_text, method_config, False),
        *merge_notes(task, request.tokenized_text, ids),
    ]
    notes += answer_notes(method_config, numbers.cpu(), matrix, extras, explainer.inner.dtype)
    alternatives = likeliest(task, logits)
    probability, quantity = alternatives[0][0].probability, request.quantity.get("quantity")
    return ExplainedAnswer(
        prompt=prompt,
        answer=text,
        tokens=tokenized_text.tokens,
        special=torch.tensor(tokenized_text.special),
        segments=tokenized_text.segments,
        spans=tokenized_text.spans,
        ids=ids,
        documents=request.tokenized_text.documents,
        matrix=matrix,
        numbers=numbers.cpu().to(matrix.dtype),
        log_probabilities=log_probabilities(logits, ids).cpu().to(matrix.dtype),
        alternatives=alternatives,
        method=method_config.method.name,
        options={**method_config.described_options, **request.quantity},
        model=model_name(explainer.inner),
        task=task.name,
        signed=is_signed(method_config, task, None),
        **presentation_of(task, method_config, probability, quantity),
        extras=extras,
        notes=tuple(notes),
        versions=library_versions(),
        fused=attribution.fused,
        explainer=explainer,
    )


def facts_of_answer(answer: Answer, place: int, count: int) -> tuple[Tensor, Tensor]:
    """For each token of the text at this place of the batch: the explained number [step], and logits [step, index]."""
    asked = answer.selectors[0]
    assert isinstance(asked, ContinuationSelector), "an answer is asked about step by step"
    output = {"logits": answer.output["logits"][place, None]}
    numbers = asked.map(lambda part: part[place, None]).numbers(output)[0, :count]  # of this text alone
    return numbers, output["logits"][0, :count].double()


def log_probabilities(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """[step] from logits [step, index]"""
    return logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]


def likeliest(task: Task, logits: Tensor) -> list[list[Alternative]]:
    found = logits.softmax(-1).topk(min(LIKELIEST, logits.shape[-1]))
    return [
        [Alternative(task.name_of(i), i, chance) for i, chance in zip(indices, chances, strict=True)]
        for indices, chances in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]
