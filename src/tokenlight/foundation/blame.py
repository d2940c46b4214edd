"""Whose error it is: said on purpose by a line of ours, a slip of ours, or of what somebody handed to us; and whether a
row of data is set aside for it"""

import ast
import linecache
import traceback
from pathlib import Path

from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.foundation.torch_internals import is_out_of_memory

OURS = str(Path(__file__).parents[1])
UNEXPECTED = "unexpected error, please report it: "  # begins the reason for a row that was set aside by a bug
NO_ROW = (OSError, ImportError)  # a disk, a network, a package: no row of data is at fault


def is_refusal(error: BaseException) -> bool:
    """Ours, or raised on purpose by a line of ours."""
    if isinstance(error, UnsupportedModelError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError | TypeError) and is_ours(frames) and failed(frames[-1]).startswith("raise")


def is_slip(error: BaseException) -> bool:
    """Whether a line of ours failed by itself, not by calling a function that it was handed: a model's, say."""
    frames = traceback.extract_tb(error.__traceback__)
    return is_ours(frames) and not is_refusal(error) and called(failed(frames[-1])) not in variables(error)


def is_ours(frames: traceback.StackSummary) -> bool:
    return bool(frames) and frames[-1].filename.startswith(OURS)


def failed(frame: traceback.FrameSummary) -> str:
    """The expression that failed, as it is written; "" where the source is not there."""
    first, last = frame.lineno or 0, frame.end_lineno or frame.lineno or 0
    lines = [linecache.getline(frame.filename, number).encode() for number in range(first, last + 1)]
    if not lines or frame.colno is None or frame.end_colno is None:
        return b"".join(lines).decode().strip()
    lines[-1] = lines[-1][: frame.end_colno]
    lines[0] = lines[0][frame.colno :]
    return b"".join(lines).decode()


def called(expression: str) -> str:
    """`function` in `function(x)`; "" of anything else."""
    try:
        call = ast.parse(f"({expression})", mode="eval").body
    except SyntaxError:
        return ""
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""


def variables(error: BaseException) -> set[str]:
    """Of the function in which it was raised: functions of our own and of torch have other names there."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return {*frame.f_code.co_varnames, *frame.f_code.co_freevars}


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def located(error: BaseException) -> str:
    """The error, where it was raised, and the last line of ours before."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(OURS)]
    places = dict.fromkeys(f"{Path(one.filename).name}:{one.lineno}" for one in (*own[-1:], frames[-1]))
    return f"{type(error).__name__}: {one_line(error)[:200]} at {', '.join(places)}"


def is_unforeseen(error: Exception) -> bool:
    """Whether an error is neither about the data nor about memory: a slip of ours, or a model that is not supported."""
    if is_out_of_memory(error):
        return False
    return isinstance(error, UnsupportedModelError) or not isinstance(error, ValueError | TypeError) or is_slip(error)


def reason_to_skip(error: Exception, strict: bool = False) -> str:
    """Why a row of data is set aside after this error.

    An error that no row is to blame for is raised again; with `strict`, an unforeseen one as well.
    """
    if is_out_of_memory(error):
        return "it does not fit in memory"
    if isinstance(error, NO_ROW) or "CUDA error" in str(error):  # after that, a device computes nothing more
        raise error
    if not is_unforeseen(error):
        return str(error)
    if strict:
        raise error
    return str(error) if isinstance(error, UnsupportedModelError) else f"{UNEXPECTED}{located(error)}"
