"""Answers of language models: written by the model, or given, and explained token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.explain.inquiry import Inquiry
from tokenlight.explain.jobs import Job
from tokenlight.explain.remarks import answer_notes, input_notes, is_signed, merge_notes
from tokenlight.foundation.versions import library_versions
from tokenlight.masks.choosing import model_name
from tokenlight.methods import Attribution
from tokenlight.model.copying import private_copy
from tokenlight.model.placement import device_of
from tokenlight.record.choices import Continuation
from tokenlight.record.recording import Answer
from tokenlight.results.explained_answer import Alternative, ExplainedAnswer
from tokenlight.results.explanation import keep_precision
from tokenlight.tasks.targets import TargetLike, Wanted
from tokenlight.tasks.task import Task
from tokenlight.text.answers import follow, refuse_too_long
from tokenlight.text.rows import Chat, Row, parts

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


def generate(explainer: "Explainer", row: Row, seed: int | None, settings: Mapping[str, Any]) -> Generated:
    """By transformers' own `generate`, on the model as it was given, or on a copy without dropout."""
    task, model = explainer.task, cast(Any, explainer.model)  # an adapter's class may be around it
    if not task.reads_on:
        raise ValueError(f"only language models write answers; this is a {task.name} model")
    if isinstance(row.text, tuple):
        raise ValueError("a language model continues one text or a chat; found a pair")
    if any(module.training for module in explainer.inner.modules()):
        model = cast(Any, evaluating_copy(explainer.inner))
    if not callable(getattr(model, "generate", None)):
        model = cast(Any, explainer.inner)  # wrappers that only spread a model over devices
    if not callable(getattr(model, "generate", None)):
        raise ValueError(
            f"{type(model).__name__} cannot write: transformers gives it no generate(); use explain_answer"
        )
    ids = torch.tensor([row.input_ids], device=device_of(explainer.inner.get_input_embeddings()))
    settings = with_defaults(explainer, row, settings)
    with torch.no_grad(), torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        found: Any = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    whole = getattr(found, "sequences", found)
    if len(whole) != 1:
        raise ValueError(f"one answer at a time: num_return_sequences= asks for {len(whole)}")
    written = tuple(whole[0, len(row) :].tolist())
    if not written:
        raise ValueError("the model wrote nothing: allow more with max_new_tokens=")
    assert not isinstance(row.text, tuple), "refused above"
    return Generated(row.text, explainer.tokenizer.decode(list(written), skip_special_tokens=True), written, explainer)


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
        raise ValueError(
            f"temperature is 0 (always the likeliest token) or a number from {LEAST_TEMPERATURE}, found {temperature}"
        )


def with_defaults(explainer: "Explainer", row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
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
        refuse_too_long(row, (0,), limit)
        rooms = {"max_new_tokens": limit - len(row), "max_length": limit}
        config = found.get("generation_config") or own
        set_by_config = {name: getattr(config, name, None) for name in rooms if name not in found}
        for name, room in rooms.items():
            if found.get(name):
                found[name] = min(found[name], room)
            elif (set_by_config.get(name) or 0) > room and not found.keys() & rooms.keys():
                found[name] = room
    return found


def ask_about(task: Task, row: Row, answer: AnswerLike, against_all: bool) -> Inquiry:
    """All tokens of an answer, one by one."""
    if not task.reads_on:
        raise ValueError(f"answers are what language models write; this is a {task.name} model")
    wanted = Wanted(answer=ids_of(task, row, answer), each=True, against_all=against_all)
    return Inquiry(row, wanted, named=True, read=task.read_on(row, wanted))


def ask_about_part(
    task: Task, row: Row, ids: Sequence[int], part: tuple[int, int], target: TargetLike = None, foil: TargetLike = None
) -> Inquiry:
    """Some tokens of an answer together, or another target in their place, given what was written before them."""
    start, end = part
    if not 0 <= start < end <= len(ids):
        raise ValueError(f"the answer has the tokens 0 to {len(ids) - 1}: there is no part from {start} up to {end}")
    given = tuple(ids[:start])
    itself = ids[start] if end == start + 1 else tuple(ids[start:end])
    wanted = task.want(row, itself if target is None else target, foil)
    if wanted.index is not None and foil is None:
        wanted = task.want(row, (wanted.index,), None)  # a single token of an answer is explained as several are
    if given and wanted.foil_answer:
        raise ValueError("two continuations can be compared only right after the prompt: name one token each")
    behind = given + wanted.answer
    read = follow(row, behind, task.tokenizer) if behind else row
    return Inquiry(row, wanted, named=True, given=given, read=read)


def ids_of(task: Task, row: Row, answer: AnswerLike) -> tuple[int, ...]:
    if isinstance(answer, Generated):
        answer = answer.ids
    if isinstance(answer, str):
        answer = tuple(task.tokenizer.encode(answer, add_special_tokens=False))
    if not isinstance(answer, Sequence):
        found = type(answer).__name__
        raise TypeError(f"an answer is a text, what generate() returned, or a tuple of token ids; found {found}")
    ids = tuple(task.index(i) for i in answer)
    if not ids:
        raise ValueError("expected an answer, found an empty one")
    refuse_too_long(row, ids, task.max_length)
    return ids


def assemble_answer(
    explainer: "Explainer", inquiry: Inquiry, job: Job, answer: Answer, attribution: Attribution, place: int
) -> ExplainedAnswer:
    """The answer at this place of the batch; every part of the attribution is a token of it."""
    task, row, ids = explainer.task, inquiry.read, inquiry.wanted.answer
    numbers, logits = said_of(answer, place, len(ids))
    prompt, text = inquiry.row.text, parts(row.text)[-1]
    assert not isinstance(prompt, tuple), "refused when the answer was put behind it"
    matrix = keep_precision(attribution.scores[place, : len(ids), : len(row)])
    extras = {name: value[place, : len(ids)].cpu().to(matrix.dtype) for name, value in attribution.extras.items()}
    notes = [*input_notes(task, inquiry.row, job, False), *merge_notes(task, inquiry.row, ids)]
    notes += answer_notes(job, numbers.cpu(), matrix, extras, explainer.inner.dtype)
    return ExplainedAnswer(
        prompt=prompt,
        answer=text,
        tokens=row.tokens,
        special=torch.tensor(row.special),
        segments=row.segments,
        spans=row.spans,
        ids=ids,
        sources=inquiry.row.sources,
        matrix=matrix,
        numbers=numbers.cpu().to(matrix.dtype),
        log_probabilities=log_probabilities(logits, ids).cpu().to(matrix.dtype),
        alternatives=likeliest(task, logits),
        method=job.method.name,
        options={**job.described_options, **inquiry.number},
        model=model_name(explainer.inner),
        task=task.name,
        signed=is_signed(job, task, None),
        extras=extras,
        notes=tuple(notes),
        versions=library_versions(),
        fused=attribution.fused,
        explainer=explainer,
    )


def said_of(answer: Answer, place: int, count: int) -> tuple[Tensor, Tensor]:
    """For each token of the text at this place of the batch: the explained number [step], and logits [step, index]."""
    asked = answer.choices[0]
    assert isinstance(asked, Continuation), "an answer is asked about step by step"
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
