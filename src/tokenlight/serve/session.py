"""What a running page holds: one model, its head mask, and what was computed before."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from tokenlight.batch import Row, Text
from tokenlight.explainer import Explainer
from tokenlight.explanation import Explanation
from tokenlight.heads.masks import HeadMask
from tokenlight.memory import PassMemory
from tokenlight.naming import Names
from tokenlight.serve.cache import Cache
from tokenlight.serve.questions import Question, Refused
from tokenlight.targets import Wanted

PAIRS = ("text-classification", "question-answering")  # tasks that may read two texts
TOKENS = 1024  # of one text: attention of every head on more would not fit into memory beside the model
TOKEN_BYTES = 400  # that a token's strings and numbers take in Python


@dataclass(frozen=True)
class Session:
    """Everything here is used by the one thread that computes, except what never changes."""

    explainer: Explainer
    mask: HeadMask | None = None  # the model's own: what its head map is drawn from
    cache: Cache = field(default_factory=Cache)
    memory: PassMemory = field(default_factory=PassMemory)

    @property
    def names(self) -> Names:
        return self.explainer._names

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        config = self.names.model.config.get_text_config()
        return config.num_hidden_layers, config.num_attention_heads

    def keep_explanation(self, key: Hashable, explanation: Explanation) -> None:
        tensors = (explanation.scores, *explanation.maps.values())
        size = sum(tensor.nbytes for tensor in tensors) + TOKEN_BYTES * len(explanation.tokens)
        self.cache.put(key, explanation, size + 4 * sum(map(len, explanation.text)))


@dataclass(frozen=True)
class Placed:
    """A question as the model counts: its tokens, and what is asked about them."""

    row: Row
    target: Any  # as `explain` takes it
    foil: Any
    wanted: Wanted

    @property
    def text(self) -> Text:
        return self.row.text


def place(session: Session, asked: Question) -> Placed:
    """The question on this model, or the reason why it cannot be asked."""
    try:
        refuse_other_tasks(session, asked)
        text = asked.text if asked.second is None else (asked.text, asked.second)
        (row,) = session.explainer.encode([text])
        if len(row) > TOKENS:
            raise Refused(f"the text has {len(row)} tokens, the page takes {TOKENS}: shorten it")
        target, foil = goal_of(session, asked, row)
        return Placed(row, target, foil, session.names.want(row, target, foil))
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


def refuse_other_tasks(session: Session, asked: Question) -> None:
    """What the question says must have a meaning for this model."""
    task = session.explainer.task
    if asked.second is not None and task not in PAIRS:
        raise Refused(f"this {task} model reads one text: leave out the second")
    if (asked.target_span or asked.foil_span) and task != "question-answering":
        raise Refused(f"spans are for question answering; this is a {task} model")
    if asked.position is not None and task not in ("fill-mask", "token-classification"):
        raise Refused(f"a position is for models that answer for every token; this is a {task} model")


def goal_of(session: Session, asked: Question, row: Row) -> tuple[Any, Any]:
    """Target and foil as `explain` takes them."""
    task = session.explainer.task
    if task == "question-answering":
        return asked.target_span or asked.target, asked.foil_span or asked.foil
    if task not in ("fill-mask", "token-classification"):
        return asked.target, asked.foil
    position = default_position(session, row) if asked.position is None else asked.position
    return (asked.target if position is None else (position, asked.target)), asked.foil


def default_position(session: Session, row: Row) -> int | None:
    """The first gap, or the first word; None where there is none, which has an error of its own."""
    gap = session.explainer.tokenizer.mask_token_id
    if session.explainer.task == "fill-mask":
        return next((i for i, token in enumerate(row.input_ids) if token == gap), None)
    return next((i for i, special in enumerate(row.special) if not special), None)
