"""Tells refusals on purpose, bugs of tokenlight and errors of the caller's code apart, by the traceback."""

import ast
import inspect
import linecache
import os
import sysconfig
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.errors import Refusal, RefusedValue, UnsupportedModelError

OURS = str(Path(__file__).parents[1]) + os.sep
LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
INSTALLED = {"site-packages", "dist-packages"}
DOWNLOADED = "transformers_modules"  # the package that transformers puts a checkpoint's own code into
UNEXPECTED = "unexpected error, please report it: "  # begins the reason for a row that was set aside by a bug
OWN_CODE, RAISED = (
    "error in your own code, ",
    " raised ",
)  # begins it where a metric of the user's fails, and what follows
NO_ROW = (OSError, ImportError)  # a disk, a network, a package: no row of data is at fault


def is_refusal(error: BaseException) -> bool:
    """Whether tokenlight raised it on purpose."""
    return isinstance(error, Refusal)


def is_slip(error: BaseException) -> bool:
    """Whether a line of ours failed by itself, not by calling a function that it was handed: a model's, say."""
    frames = traceback.extract_tb(error.__traceback__)
    return is_ours(frames) and not is_refusal(error) and called(failed(frames[-1])) not in variables(error)


def is_ours(frames: traceback.StackSummary) -> bool:
    return bool(frames) and frames[-1].filename.startswith(OURS)


def own_code(error: BaseException) -> str | None:
    """Where code of the caller's own failed, such as a metric or a method: "FILE:LINE in FUNCTION". None: nowhere.

    It is the last frame of the traceback in a file that is neither of this package nor installed. An error that an
    inner line of this package makes by itself is none of the caller's, and a model that is refused is no error of code.
    """
    if isinstance(error, UnsupportedModelError):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame.f_code, line) for frame, line in frames if is_own(frame.f_code, frame.f_globals)]
    if not own:
        own = [(code, code.co_firstlineno) for code in called_wrongly(error)]
    elif is_slip(error):
        return None
    if not own:
        return None
    code, line = own[-1]
    return f"{code.co_filename}:{line} in {code.co_name}"


def is_own(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether code is of the caller's own; `names` are the globals of its module.

    Compiled extensions name their sources, as in pyarrow/error.pxi, so the file of the module counts as well.
    """
    module = str(names.get("__name__"))
    if code.co_filename.startswith("<"):  # generated, or typed in: "<stdin>"
        return module == "__main__"
    files = (code.co_filename, str(names.get("__file__")))
    return not any(map(is_installed, files)) and module.partition(".")[0] != DOWNLOADED


def is_installed(file: str) -> bool:
    """Whether a file is of this package, of Python or of another package."""
    return file.startswith((OURS, *LIBRARIES)) or bool(INSTALLED & set(Path(file).parts))


def called_wrongly(error: BaseException) -> list[CodeType]:
    """The caller's own function, where a line of ours called it with arguments that it does not take; or none.

    Such a function has no frame in the traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, TypeError) or not is_ours(frames):
        return []
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    function = inspect.unwrap(value_of(callee(failed(frames[-1])), frame))
    fits = inspect.isfunction(function) and is_own(function.__code__, function.__globals__)
    return [function.__code__] if fits else []


def callee(expression: str) -> ast.expr | None:
    """`entry.function` in `entry.function(x)`."""
    try:
        call = ast.parse(f"({expression})", mode="eval").body
    except SyntaxError:
        return None
    return call.func if isinstance(call, ast.Call) else None


def value_of(name: ast.expr | None, frame: FrameType) -> Any:
    """Of a variable or of an attribute in this frame; None where it has none."""
    if isinstance(name, ast.Name):
        return frame.f_locals.get(name.id, frame.f_globals.get(name.id))
    return getattr(value_of(name.value, frame), name.attr, None) if isinstance(name, ast.Attribute) else None


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
    name = callee(expression)
    return name.id if isinstance(name, ast.Name) else ""


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

    An error that no row is to blame for is raised again; with `strict`, an unforeseen one and one in the caller's own
    code as well.
    """
    if is_out_of_memory(error):
        return "it does not fit in memory"
    if isinstance(error, NO_ROW) or "CUDA error" in str(error):  # after that, a device computes nothing more
        raise error
    place = own_code(error)
    if place is None and not is_unforeseen(error):
        return str(error)
    if strict:
        raise error
    if place is not None:
        return f"{OWN_CODE}{place}{RAISED}{type(error).__name__}: {one_line(error)[:200]}"
    return str(error) if isinstance(error, UnsupportedModelError) else f"{UNEXPECTED}{located(error)}"


def in_own_code(reasons: Iterable[str]) -> list[str]:
    """Those reasons for which rows were set aside that are errors in the caller's own code."""
    return [reason for reason in reasons if OWN_CODE in reason]


def describe_own_code(reasons: Iterable[str]) -> str:
    """Where the caller's own code failed, each place with its number of rows, and the first error."""
    found = in_own_code(reasons)
    places = Counter(reason.partition(OWN_CODE)[2].partition(RAISED)[0] for reason in found)
    listed = "; ".join(f"{place} ({count} rows)" for place, count in places.most_common(5))
    return f"{listed}. The first error: {found[0].partition(OWN_CODE)[2].partition(RAISED)[2]}"


def refuse_own_code(reasons: Iterable[str]) -> ValueError:
    """The error that ends a run because the caller's own code fails on all rows that it was tried on."""
    return RefusedValue(
        f"your own code fails on every row so far: {describe_own_code(reasons)}. Correct it and run again"
    )
