"""What every method does on one model, and how that was checked."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["works", "refused", "crashed", "wrong"]
WORST = ("works", "refused", "crashed", "wrong")  # each is worse than those before it


@dataclass(frozen=True)
class Outcome:
    """One method on one model."""

    method: str
    verdict: Verdict
    reason: str = ""  # why not

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
    task: str
    model: str = ""  # the name of its class
    precision: str = ""
    outcomes: tuple[Outcome, ...] = ()
    checks: tuple[Check, ...] = ()
    problem: str = ""  # why there is no such model, or why it does not run on token ids

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "ModelCheck":
        outcomes = tuple(Outcome(**one) for one in plain["outcomes"])
        checks = tuple(Check(**{**one, "methods": tuple(one["methods"])}) for one in plain["checks"])
        return cls(**{**plain, "outcomes": outcomes, "checks": checks})
