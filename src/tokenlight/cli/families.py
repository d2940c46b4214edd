"""The table of models: every family of transformers, tried and checked."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import app, readable_errors, wide_console


@app.command()
def families(
    types: Annotated[list[str] | None, typer.Argument(help="Model types such as bert; default: all.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    limit: Annotated[float, typer.Option(min=1, help="Seconds for one model.")] = 120,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this .md or .json file.")] = None,
) -> None:
    """Try every method on a tiny model of every family that the installed transformers has."""
    from tokenlight.families.sweep import sweep
    from tokenlight.results.model_check import ModelCheck
    from tokenlight.views.families import families_table

    def say(one: ModelCheck) -> None:
        counts = ", ".join(f"{one.count(v)} {v}" for v in ("works", "refused", "crashed", "wrong") if one.count(v))
        sys.stderr.write(f"{one.kind} {one.task}: {one.problem or counts}\n")

    with readable_errors():
        found = sweep(types or (), jobs=jobs, limit=limit, on_result=say)
        if output is None:
            wide_console().print(families_table(found))
        else:
            output.write_text(json.dumps([one.to_dict() for one in found], indent=1) + "\n", encoding="utf-8")
