"""What a running page holds: one model, its head mask, and what was computed before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenlight.explain.answering import ask_about_part, ids_of
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.inquiry import Inquiry, inquire
from tokenlight.masks.head_mask import HeadMask
from tokenlight.model.settings import layers_and_heads
from tokenlight.record.pass_memory import PassMemory
from tokenlight.serve.cache import Cache
from tokenlight.serve.checks import ANSWER, Refused
from tokenlight.serve.questions import Question
from tokenlight.tasks.targets import TargetLike
from tokenlight.tasks.task import Task
from tokenlight.text.documents import asking
from tokenlight.text.rows import Chat, Row, Text, parts
from tokenlight.text.sources import Source

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


def place(session: Session, asked: Question) -> Inquiry:
    """The question on this model, or the reason why it cannot be asked."""
    explainer = session.explainer
    try:
        row = read_prompt(session, asked)
        if asked.answer is not None:
            ids = read_answer(session, row, asked.answer)
            return ask_about_part(explainer.task, row, ids, asked.part or (0, len(ids)), asked.target, asked.foil)
        (inquiry,) = inquire(explainer.task, [row], *goal_of(explainer.task, asked, row))
        return inquiry
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def read_prompt(session: Session, asked: Question) -> Row:
    """What the model reads before it answers."""
    if asked.second is not None and not session.explainer.task.reads_pairs:
        raise Refused(f"this {session.explainer.task.name} model reads one text: leave out the second")
    (row,) = session.explainer.encode([text_of(session, asked)])
    if len(row) > TOKENS:
        raise Refused(f"the text has {len(row)} tokens, the page takes {TOKENS}: shorten it")
    return row


def text_of(session: Session, asked: Question) -> Text:
    if asked.messages is not None:
        if not session.explainer.task.reads_on:
            raise Refused(f"language models read messages; this is a {session.explainer.task.name} model")
        roles, contents = zip(*asked.messages, strict=True)
        return Chat(roles, contents)
    return asked.text if asked.second is None else (asked.text, asked.second)


def sources_of(session: Session, asked: Question) -> tuple[Source, ...]:
    """Where the passages stand: in the message that asks, as the page puts them there, or else in any message.

    Earlier messages may hold the same words, as where a passage is asked about again.
    """
    text, found = text_of(session, asked), ()
    for segment in (asking(text), 0) if isinstance(text, Chat) else (0,):
        found = find_passages(parts(text), asked.documents, segment)
        if len(found) == len(asked.documents):
            return found
    raise Refused(f"passage {len(found) + 1} is not in the prompt after the passages before it")


def find_passages(texts: Sequence[str], passages: Sequence[str], segment: int) -> tuple[Source, ...]:
    """From a message on, one behind the other, so that the same one may stand twice; up to one that is missing."""
    found, place = list[Source](), 0
    for number, passage in enumerate(passages, 1):
        while (start := texts[segment].find(passage, place)) < 0:
            segment, place = segment + 1, 0
            if segment == len(texts):
                return tuple(found)
        place = start + len(passage)
        found.append(Source(f"passage {number}", segment, (start, place)))
    return tuple(found)


def read_answer(session: Session, row: Row, answer: str | tuple[int, ...]) -> tuple[int, ...]:
    """Its token ids."""
    task = session.explainer.task
    if not task.reads_on:
        raise Refused(f"answers are what language models write; this is a {task.name} model")
    ids = ids_of(task, row, answer)
    if len(ids) > ANSWER:
        raise Refused(f"the answer has {len(ids)} tokens, the page takes {ANSWER}: shorten it")
    return ids


def goal_of(task: Task, asked: Question, row: Row) -> tuple[TargetLike, TargetLike]:
    """Target and foil as `explain` takes them."""
    position = task.default_position(row) if asked.position is None else asked.position
    return task.compose(asked.target, position, asked.target_span), task.compose(asked.foil, span=asked.foil_span)
