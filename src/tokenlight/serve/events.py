"""What a request is answered with, line by line."""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Waiting:
    name: ClassVar[str] = "waiting"
    ahead: int  # requests that are served first


@dataclass(frozen=True)
class Progress:
    name: ClassVar[str] = "progress"
    method: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Result:
    name: ClassVar[str] = "result"
    method: str
    explanation: dict[str, Any]
    seconds: float  # of the passes it shared with the others, where it did
    reused: bool


@dataclass(frozen=True)
class CurveDrawn:
    name: ClassVar[str] = "curve"
    method: str
    shares: list[float]
    probabilities: list[float]
    aopc: float
    log_odds: float


@dataclass(frozen=True)
class Writing:
    name: ClassVar[str] = "writing"
    text: str  # all that is written so far
    tokens: int


@dataclass(frozen=True)
class Wrote:
    name: ClassVar[str] = "wrote"
    method: str  # "write"
    text: str
    ids: list[int]
    ended: bool  # by the model itself, not by the limit


@dataclass(frozen=True)
class Failed:
    name: ClassVar[str] = "failed"
    method: str
    error: str


@dataclass(frozen=True)
class Done:
    name: ClassVar[str] = "done"


Event = Waiting | Progress | Result | CurveDrawn | Writing | Wrote | Failed | Done


def plain(event: Event) -> dict[str, Any]:
    return {"event": event.name, **vars(event)}
