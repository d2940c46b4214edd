"""The choice of where a long run is done: in this process, or by several under Ray."""

from dataclasses import dataclass
from typing import Literal, get_args

from tokenlight.common.errors import RefusedValue

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """Where a run is done: in this process, or by `count` processes under Ray, each with a copy of the model."""

    engine: Engine = "local"
    count: int | None = None  # None: one for each GPU, or for each processor where there is none
    threads: int | None = None  # torch's, in each process; None: as many as there are

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise RefusedValue(f"engine is 'local' or 'ray', found {self.engine!r}")
        if self.engine == "local" and self.count is not None:
            raise RefusedValue("the local engine is one process: leave the number of workers out, or choose 'ray'")


THIS_PROCESS = Workers()
