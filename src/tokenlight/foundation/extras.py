"""Packages that only some of the work needs: where one is missing, the error says what brings it."""

from collections.abc import Iterator
from contextlib import contextmanager


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
