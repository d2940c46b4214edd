"""Exception classes of tokenlight, and errors that name the extra which installs a missing package."""

from collections.abc import Iterator
from contextlib import contextmanager


class UnsupportedModelError(ValueError):
    """The model cannot be recorded exactly, so tokenlight refuses instead of returning a wrong number."""


class NothingToRead(UnsupportedModelError):
    """The model has none of what a method reads, or not one for each block: the method is not defined for it."""


@contextmanager
def from_extra(extra: str, what: str) -> Iterator[None]:
    """Inside, packages of an extra are imported; `what` needs them."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "tokenlight"):  # no extra brings that
            raise
        raise ImportError(f'{what} needs {missing}: pip install "tokenlight[{extra}]"') from error
