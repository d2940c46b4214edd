"""Where a long run is computed: in this process, or by several processes under Ray."""

from dataclasses import dataclass
from typing import Literal, get_args

from tokenlight.common.errors import RefusedValue

EngineName = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """Where a run is computed: in this process, or by `count` processes under Ray, each with a copy of the model."""

    engine: EngineName = "local"
    count: int | None = None  # None: one for each GPU; without GPUs, one for each CPU
    threads: int | None = None  # torch threads in each process; None: torch's default, or the CPUs divided by `count`

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise RefusedValue(f"engine is 'local' or 'ray', found {self.engine!r}")
        if self.engine == "local" and self.count is not None:
            raise RefusedValue("the local engine is one process: leave the number of workers out, or choose 'ray'")


THIS_PROCESS = Workers()
