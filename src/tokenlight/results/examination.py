"""What a model and its methods will cost, foreseen from the model's shape and found by trying."""

from dataclasses import dataclass

from tokenlight.results.model_check import ModelCheck


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
