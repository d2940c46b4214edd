"""Settings for explaining a corpus, stored with the results."""

from dataclasses import dataclass
from typing import Literal, get_args

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import DEFAULT_QUANTITY, Quantity, check_flag, check_quantity

ScoreType = Literal["float32", "float16"]
Each = Literal["answer", "sentence", "token"]
TOKENS = {"cpu": 512, "cuda": 8192}  # on CPUs, larger batches need more memory without being faster


@dataclass(frozen=True)
class CorpusSettings:
    """How the texts of a corpus are read, explained and written."""

    chunk_rows: int = 1000  # rows per chunk; a run that is resumed repeats unfinished chunks
    tokens: int | None = None  # tokens in a batch, padding included; None: the default of the device
    window: int | None = None  # tokens; longer texts are split into windows. None: they are truncated
    overlap: int | None = None  # tokens that windows share; None: a quarter of them
    dtype: ScoreType = "float32"  # of the scores that are written
    keep_text: bool = True
    target: str | int | None = None  # for all texts; None: the prediction
    foil: str | int | None = None
    low_memory: bool = False
    each: Each = "sentence"  # the part of an answer that is explained separately; each part takes a backward pass
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
        check_flag("keep_text", self.keep_text)
        check_flag("low_memory", self.low_memory)
        check_flag("fused", self.fused, or_none=True)
        if self.window is None and self.overlap is not None:
            raise RefusedValue("overlap applies to windows: set window, the number of tokens in one")
        if self.window is not None and not 0 <= self.shared_tokens < self.window:
            raise RefusedValue(
                f"windows of {self.window} tokens overlap by 0 to {self.window - 1}, found {self.overlap}"
            )

    @property
    def shared_tokens(self) -> int:
        """The tokens that neighboring windows share."""
        return (self.window or 0) // 4 if self.overlap is None else self.overlap

    def tokens_on(self, device: str) -> int:
        """The tokens in a batch on this device, padding included."""
        return TOKENS.get(device, TOKENS["cpu"]) if self.tokens is None else self.tokens


DEFAULT_SETTINGS = CorpusSettings()
