"""The command that runs every method on a tiny model of every family of transformers."""

from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import app, readable_errors, say, wide_console
from tokenlight.cli.output import check_folder_of
from tokenlight.common.errors import RefusedValue


@app.command()
def families(
    types: Annotated[list[str] | None, typer.Argument(help="Model types such as bert; default: all.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes run at the same time.")] = 1,
    limit: Annotated[float, typer.Option(min=1, help="Time limit for one model in seconds.")] = 120,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this .md or .json file.")] = None,
) -> None:
    """Run and check all methods on a tiny model of every family in the installed transformers."""
    with readable_errors():
        if output is not None and output.suffix not in (".md", ".json"):
            raise RefusedValue(f"the table is written as .md or .json; found {output.name!r}")
        check_folder_of(output)
        from tokenlight.common.files import write_atomically
        from tokenlight.diagnostics.sweep import sweep
        from tokenlight.results.model_report import to_json
        from tokenlight.views.model_report import families_page, families_table, in_short, made_now

        reports = sweep(types or (), jobs=jobs, limit=limit, on_result=lambda report: say(in_short(report), err=True))
        if output is None:
            wide_console().print(families_table(reports))
        else:
            write_atomically(
                output, to_json(reports) if output.suffix == ".json" else families_page(reports, made_now())
            )
