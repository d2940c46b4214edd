"""Classification of errors: refusals, bugs of tokenlight, and errors in the caller's own code."""

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
DOWNLOADED = "transformers_modules"  # the package into which transformers puts a checkpoint's own code
UNEXPECTED = "unexpected error, please report it: "  # prefix of the reason for a row that a bug excluded
OWN_CODE = "error in your own code, "  # prefix of the reason where the caller's metric or method fails
RAISED = " raised "  # between the location and the error
ENVIRONMENT_ERRORS = (OSError, ImportError)  # a disk, a network, a package: not caused by a row of data


def is_refusal(error: BaseException) -> bool:
    """Whether tokenlight raised it on purpose."""
    return isinstance(error, Refusal)


def is_own_bug(error: BaseException) -> bool:
    """Whether a line of tokenlight failed, and not by calling a function that it was given, such as a model's."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        is_ours(frames)
        and not is_refusal(error)
        and called_name(failed_expression(frames[-1])) not in local_variables(error)
    )


def is_ours(frames: traceback.StackSummary) -> bool:
    return bool(frames) and frames[-1].filename.startswith(OURS)


def own_code(error: BaseException) -> str | None:
    """Location of an error in the caller's own code: "FILE:LINE in FUNCTION"; None if it is elsewhere.

    It is the last frame of the traceback in a file that is neither of this package nor installed. None for a bug of
    this package below that frame, and for a refused model.
    """
    if isinstance(error, UnsupportedModelError):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame.f_code, line) for frame, line in frames if is_own(frame.f_code, frame.f_globals)]
    if not own:
        own = [(code, code.co_firstlineno) for code in functions_called_wrongly(error)]
    elif is_own_bug(error):
        return None
    if not own:
        return None
    code, line = own[-1]
    return f"{code.co_filename}:{line} in {code.co_name}"


def is_own(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether code is the caller's own; `names` are the globals of its module.

    Compiled extensions name their sources, as in pyarrow/error.pxi, so the file of the module counts as well.
    """
    module = str(names.get("__name__"))
    if code.co_filename.startswith("<"):  # generated, or typed in: "<stdin>"
        return module == "__main__"
    files = (code.co_filename, str(names.get("__file__")))
    return not any(map(is_installed, files)) and module.partition(".")[0] != DOWNLOADED


def is_installed(file: str) -> bool:
    """Whether a file belongs to this package, to Python or to another installed package."""
    return file.startswith((OURS, *LIBRARIES)) or bool(INSTALLED & set(Path(file).parts))


def functions_called_wrongly(error: BaseException) -> list[CodeType]:
    """The caller's own function that tokenlight called with wrong arguments; empty for other errors.

    Such a function has no frame in the traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, TypeError) or not is_ours(frames):
        return []
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    function = inspect.unwrap(lookup_value(called_expression(failed_expression(frames[-1])), frame))
    fits = inspect.isfunction(function) and is_own(function.__code__, function.__globals__)
    return [function.__code__] if fits else []


def called_expression(expression: str) -> ast.expr | None:
    """The called expression: `entry.function` in `entry.function(x)`."""
    try:
        call = ast.parse(f"({expression})", mode="eval").body
    except SyntaxError:
        return None
    return call.func if isinstance(call, ast.Call) else None


def lookup_value(name: ast.expr | None, frame: FrameType) -> Any:
    """Value of a variable or an attribute in this frame; None if it is undefined."""
    if isinstance(name, ast.Name):
        return frame.f_locals.get(name.id, frame.f_globals.get(name.id))
    return getattr(lookup_value(name.value, frame), name.attr, None) if isinstance(name, ast.Attribute) else None


def failed_expression(frame: traceback.FrameSummary) -> str:
    """Source of the expression that failed; "" if the source file is missing."""
    first, last = frame.lineno or 0, frame.end_lineno or frame.lineno or 0
    lines = [linecache.getline(frame.filename, number).encode() for number in range(first, last + 1)]
    if not lines or frame.colno is None or frame.end_colno is None:
        return b"".join(lines).decode().strip()
    lines[-1] = lines[-1][: frame.end_colno]
    lines[0] = lines[0][frame.colno :]
    return b"".join(lines).decode()


def called_name(expression: str) -> str:
    """Name of the called function: `function` in `function(x)`; "" for other expressions."""
    name = called_expression(expression)
    return name.id if isinstance(name, ast.Name) else ""


def local_variables(error: BaseException) -> set[str]:
    """Local variables of the function that raised the error: global functions are not among them."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return {*frame.f_code.co_varnames, *frame.f_code.co_freevars}


def message_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def describe_error(error: BaseException) -> str:
    """The error with its location and the last line of tokenlight before it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(OURS)]
    locations = dict.fromkeys(f"{Path(frame.filename).name}:{frame.lineno}" for frame in (*own[-1:], frames[-1]))
    return f"{type(error).__name__}: {message_line(error)[:200]} at {', '.join(locations)}"


def is_unforeseen(error: Exception) -> bool:
    """Whether the cause is neither the data nor memory, but a bug or an unsupported model."""
    if is_out_of_memory(error):
        return False
    return (
        isinstance(error, UnsupportedModelError) or not isinstance(error, ValueError | TypeError) or is_own_bug(error)
    )


def reason_to_skip(error: Exception, strict: bool = False) -> str:
    """The reason for which a row of data is excluded after this error.

    Errors that are not caused by a row are raised again; with `strict`, also unforeseen errors and those in the
    caller's own code.
    """
    if is_out_of_memory(error):
        return "it does not fit in memory"
    if isinstance(error, ENVIRONMENT_ERRORS) or "CUDA error" in str(error):  # the device is unusable from then on
        raise error
    location = own_code(error)
    if location is None and not is_unforeseen(error):
        return str(error)
    if strict:
        raise error
    if location is not None:
        return f"{OWN_CODE}{location}{RAISED}{type(error).__name__}: {message_line(error)[:200]}"
    return str(error) if isinstance(error, UnsupportedModelError) else f"{UNEXPECTED}{describe_error(error)}"


def in_own_code(reasons: Iterable[str]) -> list[str]:
    """The reasons that are errors in the caller's own code."""
    return [reason for reason in reasons if OWN_CODE in reason]


def describe_own_code(reasons: Iterable[str]) -> str:
    """Locations in the caller's own code with their numbers of rows, and the first error."""
    own_reasons = in_own_code(reasons)
    counts = Counter(reason.partition(OWN_CODE)[2].partition(RAISED)[0] for reason in own_reasons)
    listed = "; ".join(f"{location} ({count} rows)" for location, count in counts.most_common(5))
    return f"{listed}. The first error: {own_reasons[0].partition(OWN_CODE)[2].partition(RAISED)[2]}"


def refuse_own_code(reasons: Iterable[str]) -> ValueError:
    """The error that ends a run in which the caller's own code failed on all rows so far."""
    return RefusedValue(
        f"your own code fails on every row so far: {describe_own_code(reasons)}. Correct it and run again"
    )
