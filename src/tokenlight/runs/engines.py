"""Where long work runs: in this process, or spread by Ray."""

from typing import Literal

Engine = Literal["local", "ray"]


def check_local(engine: Engine, workers: int | None) -> None:
    """Refuse what is neither Ray nor one process."""
    if engine != "local":
        raise ValueError(f"engine is 'local' or 'ray', found {engine!r}")
    if workers is not None:
        raise ValueError("the local engine is one process: leave workers out, or choose engine='ray'")
