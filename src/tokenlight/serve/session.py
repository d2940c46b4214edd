"""The state of a running page: one model, its head masks, and cached results."""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from tokenlight.explain.explainer import Explainer
from tokenlight.explain.resolve import answer_ids, answer_part_request, resolve_requests
from tokenlight.heads.mask import CALIBRATED, OWN, HeadMask, calibrated_heads, has_heads, roles, rows
from tokenlight.methods import Method
from tokenlight.methods.relevance import CALIBRATED_RULES
from tokenlight.model.config import layers_and_heads
from tokenlight.record.pass_cache import PassCache
from tokenlight.serve.requests import ANSWER, Lit, PageRequest, Refused
from tokenlight.tasks.request import Request
from tokenlight.tasks.targets import TargetSpec
from tokenlight.tasks.task import Task
from tokenlight.text.documents import find_question
from tokenlight.text.tokenized_text import Chat, Document, Text, TokenizedText, parts

# Objects that results share and that do not count for their size: the model, its tokenizer, code.
CODE = (type, Enum, FunctionType, BuiltinFunctionType, ModuleType)
SHARED = (Explainer, nn.Module, PreTrainedTokenizerBase, Task, *CODE)
POINTER = 8  # bytes
SMALL_NUMBERS = range(-5, 257)


def size_of(value: Any) -> int:
    """Bytes in memory of a value and all that it holds, each object counted once."""
    waiting, known, size = [value], set[int](), 0
    while waiting:
        found = waiting.pop()
        if id(found) in known or is_shared(found):
            continue
        known.add(id(found))
        size += sys.getsizeof(found) + (POINTER * len(fields(found)) if is_dataclass(found) else 0)
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            if storage.data_ptr() not in known:  # a view keeps all of it
                known.add(storage.data_ptr())
                size += storage.nbytes()
        elif isinstance(found, numpy.ndarray):
            size += 0 if found.base is None else found.nbytes  # what it owns is in its own size
        else:
            waiting += members(found)
    return size


def is_shared(value: Any) -> bool:
    return value is None or isinstance(value, SHARED) or (isinstance(value, int) and value in SMALL_NUMBERS)


def members(value: Any) -> Iterable[Any]:
    """The objects that one refers to."""
    if isinstance(value, str | bytes | int | float | complex):
        return
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    if is_dataclass(value):  # by its fields, because reading its __dict__ would create one
        yield from (getattr(value, one.name) for one in fields(value))
        return
    if hasattr(value, "__dict__"):
        yield vars(value)
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield getattr(value, name)


@dataclass
class Cache:
    """Read and written by the one thread that computes."""

    limit: int = 64 * 2**20  # bytes
    size: int = 0
    _kept: OrderedDict[Hashable, tuple[Any, int]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable) -> Any:
        """What was kept, or None."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Hashable, value: Any) -> None:
        """Cache a value, and drop the least recently used ones; values above the limit are not cached."""
        self._drop(key)
        size = size_of((key, value))
        if size > self.limit:
            return
        self._kept[key] = (value, size)
        self.size += size
        while self.size > self.limit:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        self._kept.clear()
        self.size = 0

    def _drop(self, key: Hashable) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.size -= size

    def __len__(self) -> int:
        return len(self._kept)


TOKENS = 4096  # of one text


@dataclass(frozen=True)
class Session:
    """Everything here is used by the one thread that computes, except what never changes."""

    explainer: Explainer
    mask: HeadMask | None = None  # the model's own: what its head map is drawn from
    cache: Cache = field(default_factory=Cache)
    pass_cache: PassCache = field(default_factory=PassCache)

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
            explainer.task, [tokenized_text], *target_and_foil(explainer.task, asked, tokenized_text)
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
        if not session.explainer.task.generates:
            raise Refused(f"language models read messages; this is a {session.explainer.task.name} model")
        roles, contents = zip(*asked.messages, strict=True)
        return Chat(roles, contents)
    return asked.text if asked.second is None else (asked.text, asked.second)


def documents_of(session: Session, asked: PageRequest) -> tuple[Document, ...]:
    """The spans of the passages: in the last message, where the page inserts them, or else in any message.

    Earlier messages may contain the same passage.
    """
    text, found = text_of(session, asked), ()
    for segment in (find_question(text), 0) if isinstance(text, Chat) else (0,):
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
    if not task.generates:
        raise Refused(f"only language models write answers; this is a {task.name} model")
    ids = answer_ids(task, tokenized_text, answer)
    if len(ids) > ANSWER:
        raise Refused(f"the answer has {len(ids)} tokens, the page takes {ANSWER}: shorten it")
    return ids


def target_and_foil(task: Task, asked: PageRequest, tokenized_text: TokenizedText) -> tuple[TargetSpec, TargetSpec]:
    """Target and foil as `explain` takes them."""
    position = task.default_position(tokenized_text) if asked.position is None else asked.position
    return task.compose(asked.target, position, asked.target_span), task.compose(asked.foil, span=asked.foil_span)


TITLES = {
    "paper": "the paper's mask",
    "syntactic": "syntactic heads only",
    "positional": "positional heads only",
    "calibrated": "the calibrated mask",
    "all": "all heads",
    "none": "no heads",
}


def presets(session: Session) -> list[dict[str, Any]]:
    """Masks to start from, by name; the first is the model's own, if it has one."""
    mask, calibrated = session.mask, calibrated_heads(session.explainer.inner)
    masks: dict[str, HeadMask] = {}
    titles = dict(TITLES)
    if mask is not None:
        masks = {"paper": mask, "syntactic": mask.only("syntactic"), "positional": mask.only("positional")}
        if mask.calibrated is not None:
            titles["paper"] = "the mask of your file, calibrated"
    if calibrated is not None:
        masks["calibrated"] = calibrated
    masks["all"] = HeadMask.by_hand(torch.ones(session.shape))
    masks["none"] = HeadMask.by_hand(torch.zeros(session.shape))
    return [{"name": name, "title": titles[name], "lit": rows(mask.lit)} for name, mask in masks.items()]


def default_mask(session: Session, method: Method) -> HeadMask | None:
    """The head mask of a method by default: that of the session, if the method takes this kind of mask."""
    resolved, mask = method.options.get("heads"), session.mask
    if mask is None or resolved not in (OWN, CALIBRATED):
        return None
    made_for_it = mask.calibrated is not None and mask.made.get("method") in CALIBRATED_RULES
    return mask if resolved == OWN or made_for_it else None


def lacks_mask(session: Session, method: Method) -> bool:
    """Whether the method needs a head mask that the user has to choose."""
    return default_mask(session, method) is None and not has_heads(method.options.get("heads"), session.explainer.inner)


def head_map(session: Session) -> list[list[dict[str, Any]]] | None:
    """[layer][head] what each head does."""
    if session.mask is None:
        return None
    return [[{**asdict(role), "label": role.label} for role in layer] for layer in roles(session.mask)]


def lit_heads(session: Session, lit: Lit) -> HeadMask:
    """The heads that are lit on the page as a mask.

    A head keeps the group that the model's own mask has it in, since Mask-LRP scales each group on its own: so the
    own mask, lit by hand, is the own mask. Heads of no group count as syntactic.
    """
    layers, heads = session.shape
    found = sorted({len(row) for row in lit})
    if len(lit) != layers or found != [heads]:
        counts = " or ".join(map(str, found))
        raise Refused(f"heads has {len(lit)} rows of {counts} numbers; the model has {layers} layers of {heads} heads")
    strength = torch.tensor(lit, dtype=torch.float64)
    own = session.mask
    for known in (own, calibrated_heads(session.explainer.inner)):
        if known is not None and torch.equal(strength, known.lit):
            return known
    if own is None or own.calibrated is not None:  # a calibrated mask is one group
        return HeadMask.by_hand(strength)
    positional = own.positional > 0
    syntactic = (own.syntactic > 0) | ~positional
    return HeadMask(strength * syntactic, strength * positional, {"by": "hand"})
