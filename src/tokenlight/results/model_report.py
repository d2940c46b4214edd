"""Reports on a model: the outcome of every method, and the memory that methods need."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["works", "refused", "crashed", "wrong"]
FROM_BEST: tuple[Verdict, ...] = ("works", "refused", "crashed", "wrong")  # from the best to the worst


@dataclass(frozen=True)
class Outcome:
    """The outcome of one method on one model."""

    method: str
    verdict: Verdict
    reason: str = ""  # why it does not work
    defined: bool = True  # False: the model has none of the signals that the method reads

    def or_worse(self, other: "Outcome") -> "Outcome":
        return max(self, other, key=lambda outcome: FROM_BEST.index(outcome.verdict))


@dataclass(frozen=True)
class Check:
    """A check of an identity: the difference of two results, relative to their size, and the allowed difference."""

    name: str
    difference: float | None = None  # None: could not be checked
    allowed: float = 0.0  # by rounding
    remark: str = ""
    methods: tuple[str, ...] = ()  # those whose results rely on it

    @property
    def passed(self) -> bool | None:
        return None if self.difference is None else self.difference <= self.allowed


@dataclass(frozen=True)
class ModelCheck:
    """All outcomes and checks of one model: a row of the table of families."""

    kind: str  # config.model_type
    task: str = ""
    model: str = ""  # the name of its class
    precision: str = ""
    outcomes: tuple[Outcome, ...] = ()
    checks: tuple[Check, ...] = ()
    text: bool = True  # False: the text part of a model for images or sounds
    problem: str = ""  # why no such model could be built, or why it does not run on token ids

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "ModelCheck":
        outcomes = tuple(Outcome(**outcome) for outcome in plain["outcomes"])
        checks = tuple(Check(**{**check, "methods": tuple(check["methods"])}) for check in plain["checks"])
        return cls(**{**plain, "outcomes": outcomes, "checks": checks})


def to_json(model_checks: Sequence[ModelCheck]) -> str:
    return json.dumps([asdict(model_check) for model_check in model_checks], ensure_ascii=False, indent=1) + "\n"


def from_json(text: str) -> list[ModelCheck]:
    return [ModelCheck.from_dict(plain) for plain in json.loads(text)]


@dataclass(frozen=True)
class Need:
    """The estimated need of one method: bytes for a batch, and how many texts fit at once."""

    method: str
    need: int
    need_low: int  # with low_memory=True
    fitting: int | None  # None if free memory is unknown
    fitting_low: int | None


@dataclass(frozen=True)
class Outlook:
    """The estimated needs of all methods on texts of one length, in addition to the weights."""

    tokens: int  # of a text
    texts: int  # of a batch
    weights: int  # bytes
    device: str
    free: int | None  # bytes on the device; None if unknown
    needs: tuple[Need, ...]


@dataclass(frozen=True)
class Finding:
    """The trial of one method."""

    method: str
    seconds: float
    held: int  # bytes that autograd held for the backward pass
    error: str | None = None


@dataclass(frozen=True)
class Examination:
    """The trial of all methods on one short text."""

    model: str  # the name of its class
    task: str
    parameters: int  # their number
    weights: int  # bytes
    dtype: str
    device: str
    tokens: int  # of the text
    findings: tuple[Finding, ...]
    check: ModelCheck  # the same checks as in the table of families
