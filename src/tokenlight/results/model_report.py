"""Reports on a model: how every method did on it, and what memory methods need."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["works", "refused", "crashed", "wrong"]
WORST: tuple[Verdict, ...] = ("works", "refused", "crashed", "wrong")  # each is worse than those before it


@dataclass(frozen=True)
class Outcome:
    """One method on one model."""

    method: str
    verdict: Verdict
    reason: str = ""  # why not
    defined: bool = True  # False: the model has none of what the method reads

    def or_worse(self, other: "Outcome") -> "Outcome":
        return max(self, other, key=lambda one: WORST.index(one.verdict))


@dataclass(frozen=True)
class Check:
    """Something that must hold, and by how much it does not: as a share of the numbers that were compared."""

    name: str
    difference: float | None = None  # None: could not be checked
    allowed: float = 0.0  # what rounding explains
    remark: str = ""
    methods: tuple[str, ...] = ()  # those that rely on it

    @property
    def passed(self) -> bool | None:
        return None if self.difference is None else self.difference <= self.allowed


@dataclass(frozen=True)
class ModelCheck:
    """A model's row of the table."""

    kind: str  # config.model_type
    task: str = ""
    model: str = ""  # the name of its class
    precision: str = ""
    outcomes: tuple[Outcome, ...] = ()
    checks: tuple[Check, ...] = ()
    text: bool = True  # made for text, not for its part in pictures or sounds
    problem: str = ""  # why there is no such model, or why it does not run on token ids

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "ModelCheck":
        outcomes = tuple(Outcome(**one) for one in plain["outcomes"])
        checks = tuple(Check(**{**one, "methods": tuple(one["methods"])}) for one in plain["checks"])
        return cls(**{**plain, "outcomes": outcomes, "checks": checks})


def to_json(found: Sequence[ModelCheck]) -> str:
    return json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=1) + "\n"


def from_json(text: str) -> list[ModelCheck]:
    return [ModelCheck.from_dict(plain) for plain in json.loads(text)]


@dataclass(frozen=True)
class Need:
    """What one method will need: bytes for a batch, and how many texts fit at once."""

    method: str
    need: int
    need_low: int  # with low_memory=True
    fitting: int | None  # None where nobody says what is free
    fitting_low: int | None


@dataclass(frozen=True)
class Outlook:
    """What every method will need on texts of some length, beside the weights."""

    tokens: int  # of a text
    texts: int  # of a batch
    weights: int  # bytes
    device: str
    free: int | None  # bytes there
    needs: tuple[Need, ...]


@dataclass(frozen=True)
class Finding:
    """How one method did."""

    method: str
    seconds: float
    held: int  # bytes that autograd held for the backward pass
    error: str | None = None


@dataclass(frozen=True)
class Examination:
    """Every method tried on one short text."""

    model: str  # the name of its class
    task: str
    parameters: int  # how many numbers
    weights: int  # bytes
    dtype: str
    device: str
    tokens: int  # of the text
    findings: tuple[Finding, ...]
    check: ModelCheck  # what the table of models says about such a model
