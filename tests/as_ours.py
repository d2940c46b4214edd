"""Functions of tests as if they were lines of the package: their errors are then the package's, not a caller's own."""

import linecache
from pathlib import Path
from types import CodeType
from typing import Any

from tokenlight.common.error_location import OURS

FILE = str(Path(OURS) / "simulated.py")


def as_ours(function: Any) -> Any:
    """The function, in a file of the package with the lines of the file that it is in."""
    lines = linecache.getlines(function.__code__.co_filename)
    linecache.cache[FILE] = (0, None, lines, FILE)  # without a time, it is not compared with a file
    function.__code__ = moved(function.__code__)
    return function


def moved(code: CodeType) -> CodeType:
    """With all that is inside, such as generators."""
    inside = tuple(moved(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=FILE, co_consts=inside)
