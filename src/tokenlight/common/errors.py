"""Exception classes of tokenlight, and errors that name the extra which installs a missing package."""

from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(Exception):
    """Base of the errors that tokenlight raises on purpose: what was found, what was expected and what to do.

    Any other error from a line of tokenlight is a bug of tokenlight.
    """


class RefusedValue(Refusal, ValueError):
    """An argument, file or model that tokenlight does not accept."""


class RefusedType(Refusal, TypeError):
    """An argument of a type that tokenlight does not accept."""


class UnsupportedModelError(RefusedValue):
    """The model cannot be recorded exactly, so tokenlight refuses instead of returning a wrong number."""


class NothingToRead(UnsupportedModelError):
    """A method is not defined for the model: what it reads is absent, or there is not one of it per block."""


@contextmanager
def from_extra(extra: str, what: str) -> Iterator[None]:
    """Around imports of packages that an extra installs, for `what`: name the extra if one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "tokenlight"):  # installed by no extra
            raise
        raise ImportError(f'{what} needs {missing}: pip install "tokenlight[{extra}]"') from error
