"""What a running page holds: one model, its head mask, and what was computed before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenlight.explain.answering import answer_ids, answer_part_request
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.inquiry import Request, resolve_requests
from tokenlight.masks.head_mask import HeadMask
from tokenlight.model.settings import layers_and_heads
from tokenlight.record.pass_memory import PassMemory
from tokenlight.serve.cache import Cache
from tokenlight.serve.checks import ANSWER, Refused
from tokenlight.serve.questions import PageRequest
from tokenlight.tasks.targets import TargetSpec
from tokenlight.tasks.task import Task
from tokenlight.text.documents import asking
from tokenlight.text.rows import Chat, Text, TokenizedText, parts
from tokenlight.text.sources import Document

TOKENS = 4096  # of one text


@dataclass(frozen=True)
class Session:
    """Everything here is used by the one thread that computes, except what never changes."""

    explainer: Explainer
    mask: HeadMask | None = None  # the model's own: what its head map is drawn from
    cache: Cache = field(default_factory=Cache)
    memory: PassMemory = field(default_factory=PassMemory)

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return layers_and_heads(self.explainer.inner)


def place(session: Session, asked: PageRequest) -> Request:
    """The question on this model, or the reason why it cannot be asked."""
    explainer = session.explainer
    try:
        tokenized_text = read_prompt(session, asked)
        if asked.answer is not None:
            ids = read_answer(session, tokenized_text, asked.answer)
            return answer_part_request(
                explainer.task, tokenized_text, ids, asked.part or (0, len(ids)), asked.target, asked.foil
            )
        (request,) = resolve_requests(
            explainer.task, [tokenized_text], *measured_target_of(explainer.task, asked, tokenized_text)
        )
        return request
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def read_prompt(session: Session, asked: PageRequest) -> TokenizedText:
    """What the model reads before it answers."""
    if asked.second is not None and not session.explainer.task.reads_pairs:
        raise Refused(f"this {session.explainer.task.name} model reads one text: leave out the second")
    (tokenized_text,) = session.explainer.encode([text_of(session, asked)])
    if len(tokenized_text) > TOKENS:
        raise Refused(f"the text has {len(tokenized_text)} tokens, the page takes {TOKENS}: shorten it")
    return tokenized_text


def text_of(session: Session, asked: PageRequest) -> Text:
    if asked.messages is not None:
        if not session.explainer.task.reads_on:
            raise Refused(f"language models read messages; this is a {session.explainer.task.name} model")
        roles, contents = zip(*asked.messages, strict=True)
        return Chat(roles, contents)
    return asked.text if asked.second is None else (asked.text, asked.second)


def documents_of(session: Session, asked: PageRequest) -> tuple[Document, ...]:
    """Where the passages stand: in the message that asks, as the page puts them there, or else in any message.

    Earlier messages may hold the same words, as where a passage is asked about again.
    """
    text, found = text_of(session, asked), ()
    for segment in (asking(text), 0) if isinstance(text, Chat) else (0,):
        found = find_passages(parts(text), asked.documents, segment)
        if len(found) == len(asked.documents):
            return found
    raise Refused(f"passage {len(found) + 1} is not in the prompt after the passages before it")


def find_passages(texts: Sequence[str], passages: Sequence[str], segment: int) -> tuple[Document, ...]:
    """From a message on, one behind the other, so that the same one may stand twice; up to one that is missing."""
    found, place = list[Document](), 0
    for number, passage in enumerate(passages, 1):
        while (start := texts[segment].find(passage, place)) < 0:
            segment, place = segment + 1, 0
            if segment == len(texts):
                return tuple(found)
        place = start + len(passage)
        found.append(Document(f"passage {number}", segment, (start, place)))
    return tuple(found)


def read_answer(session: Session, tokenized_text: TokenizedText, answer: str | tuple[int, ...]) -> tuple[int, ...]:
    """Its token ids."""
    task = session.explainer.task
    if not task.reads_on:
        raise Refused(f"answers are what language models write; this is a {task.name} model")
    ids = answer_ids(task, tokenized_text, answer)
    if len(ids) > ANSWER:
        raise Refused(f"the answer has {len(ids)} tokens, the page takes {ANSWER}: shorten it")
    return ids


def measured_target_of(task: Task, asked: PageRequest, tokenized_text: TokenizedText) -> tuple[TargetSpec, TargetSpec]:
    """Target and foil as `explain` takes them."""
    position = task.default_position(tokenized_text) if asked.position is None else asked.position
    return task.compose(asked.target, position, asked.target_span), task.compose(asked.foil, span=asked.foil_span)
