"""Errors out of a model's code: the model's own, or of the way in which it is recorded, which is then refused.

A slip in our own lines is neither, and stays what it is: refused, it would look as if nothing were wrong with us.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from tokenlight.foundation.blame import is_slip
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.torch_internals import is_out_of_memory

KINDS = (RuntimeError, AttributeError, LookupError, TypeError)


@contextmanager
def refusing_what_we_break(model: nn.Module, plainly: Callable[[], Any] | None = None) -> Iterator[None]:
    """Refuse a model that stops here, but not where it is called `plainly`. None: it has already run that far."""
    try:
        yield
    except KINDS as error:
        if is_out_of_memory(error) or is_slip(error) or (plainly is not None and not runs(plainly)):
            raise
        raise UnsupportedModelError(
            f"{type(model).__name__} runs, but not as this method runs it ({type(error).__name__}: {error})"
        ) from error


def runs(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:  # whatever it is, it is the model's own
        return False
    return True
