"""Settings of explaining a corpus; saved with the results."""

from dataclasses import dataclass
from typing import Literal, get_args

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import DEFAULT_QUANTITY, Quantity, check_quantity

ScoreType = Literal["float32", "float16"]
Each = Literal["answer", "sentence", "token"]
TOKENS = {"cpu": 512, "cuda": 8192}  # more do not make a processor faster, but take more memory


@dataclass(frozen=True)
class CorpusSettings:
    """How the texts of a corpus are read, explained and written."""

    chunk_rows: int = 1000  # rows in a part; an unfinished part is done again when a run is resumed
    tokens: int | None = None  # that run together, padding included; None: what suits the device
    window: int | None = None  # tokens; longer texts are read in windows. None: they are cut off
    overlap: int | None = None  # tokens that windows share; None: a quarter of them
    dtype: ScoreType = "float32"  # of the scores that are written
    keep_text: bool = True
    target: str | int | None = None  # the same for every text; None: what the model predicts
    foil: str | int | None = None
    low_memory: bool = False
    each: Each = "sentence"  # for answers: what is explained separately, each at the cost of a backward pass
    quantity: Quantity = DEFAULT_QUANTITY  # what is explained of each token of an answer
    fused: bool | None = None  # attention as one operation; None: wherever no method needs its weights

    def __post_init__(self) -> None:
        for name in ("chunk_rows", "tokens", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RefusedValue(f"{name} is a positive number, found {value}")
        if self.dtype not in get_args(ScoreType):
            raise RefusedValue(f"dtype is 'float32' or 'float16', found {self.dtype!r}")
        if self.each not in get_args(Each):
            raise RefusedValue(f"each is 'answer', 'sentence' or 'token', found {self.each!r}")
        check_quantity(self.quantity)
        if self.window is None and self.overlap is not None:
            raise RefusedValue("an overlap is one of windows: say how many tokens a window has")
        if self.window is not None and not 0 <= self.shared_tokens < self.window:
            raise RefusedValue(
                f"windows of {self.window} tokens overlap by 0 to {self.window - 1}, found {self.overlap}"
            )

    @property
    def shared_tokens(self) -> int:
        """Of neighboring windows."""
        return (self.window or 0) // 4 if self.overlap is None else self.overlap

    def tokens_on(self, device: str) -> int:
        """That run together."""
        return TOKENS.get(device, TOKENS["cpu"]) if self.tokens is None else self.tokens


DEFAULT_SETTINGS = CorpusSettings()
