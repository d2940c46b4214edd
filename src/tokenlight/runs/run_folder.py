"""The folder of a run: for one writer at a time, and for one run, which its run.json describes."""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenlight.data.source import DataSource
from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.files import write_whole
from tokenlight.foundation.versions import library_versions
from tokenlight.results.saved import expect
from tokenlight.runs.model_hash import describe_model

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows, where nobody can delete or replace a file that is being written anyway
    fcntl = None

RUN_FILE = "run.json"
WHERE = re.compile(r"(model|seed_models\.\d+)\.name|data\.source")  # these are compared by what they hold, by hash


def describe_run(
    form: tuple[str, int],
    explainer: Explainer,
    data: Mapping[str, Any],
    methods: Mapping[str, Any],
    more: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that results depend on; `form` is the name and the version of the folder's format."""
    return {
        "format": form[0],
        "version": form[1],
        "model": {**describe_model(explainer), "task": explainer.task.name},
        "data": dict(data),
        "methods": dict(methods),
        **more,
        "versions": {**library_versions(), **{name: metadata.version(name) for name in libraries}},
    }


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """The folder for this process alone; the system lets go of it when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(
            f"cannot write to {folder}: expected a folder, or a name that is free; found a file"
        ) from error
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(f"another process is writing to {folder}: wait for it, or use another one") from error
        yield


def refuse_folder_of_data(folder: Path, source: DataSource) -> None:
    """All files of a folder of data are read as data: results among them would be, too."""
    if isinstance(source.data, str | Path) and not source.on_hub and folder.resolve() == Path(source.data).resolve():
        raise ValueError(f"{folder} holds the data: name another folder for the results, such as {folder}-results")


def check_settings(folder: Path, settings: Mapping[str, Any], written: Sequence[str] = ()) -> None:
    """Store what is run, or make sure that it is what the folder already holds.

    `written` are the names of files that the run will write: without a stored run, files of that name are not ours.
    """
    path = folder / RUN_FILE
    if not path.exists():
        strangers = [p.name for pattern in ("results-*.jsonl", *written) for p in sorted(folder.glob(pattern))]
        if strangers:
            raise ValueError(
                f"{folder} holds {strangers[0]} but no {RUN_FILE}: it is not of a run, which would overwrite it. Use "
                "another folder"
            )
        write_whole(path, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")
        return
    found = list(differences(read_run(folder), json.loads(json.dumps(settings))))
    if found:
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise ValueError(f"{folder} holds another run: {'; '.join(found[:5])}{more}. Use another folder")


def warn_of_changed_data(folder: Path, source: DataSource) -> None:
    """After the data was read: say so if it is no longer what it was when its hash was stored."""
    if source.hash() != read_run(folder)["data"]["sha256"]:
        warnings.warn(
            f"{source.name} was changed while it was read: {folder} holds results of rows from before and after that, "
            "and cannot be continued. Run again in another folder, with a file that stays as it is",
            RuntimeWarning,
            stacklevel=3,
        )


def read_run(folder: Path) -> dict[str, Any]:
    path = folder / RUN_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no results: there is no {RUN_FILE}")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        expect(isinstance(settings, dict), "settings", "an object", settings)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged ({error}). Without it nobody knows what the results here are of: restore it from a "
            "copy, or run again in another folder"
        ) from error
    return settings


def differences(there: Any, here: Any, key: str = "") -> Iterator[str]:
    """In words; what a run has and another has not is named once, whatever is in it."""
    if isinstance(there, dict | list) and isinstance(here, dict | list):
        stored, given = (one if isinstance(one, dict) else dict(enumerate(one)) for one in (there, here))
        for name in {**stored, **given}:
            inner = f"{key}.{name}" if key else str(name)
            if name in stored and name in given:
                yield from differences(stored[name], given[name], inner)
            elif not WHERE.fullmatch(inner):
                yield f"{inner} is only {'there' if name in stored else 'here'}"
    elif there != here and not WHERE.fullmatch(key):
        yield f"{key} is {there!r} there and {here!r} here"
