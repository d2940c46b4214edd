"""The local page."""

from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import DEFAULT, TaskOption, app, load_model, readable_errors


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="Checkpoint name or path; 'default' is the one inside.")] = DEFAULT,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: 8765, or the next that is free; 0: any.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    heads: Annotated[
        Path | None, typer.Option(help="The mask that the head map is drawn from: see `tokenlight heads`.")
    ] = None,
    task: TaskOption = None,
) -> None:
    """Open a page on this machine on which to explore explanations; Ctrl-C stops it."""
    with readable_errors():
        try:
            from tokenlight.serve.server import HOST, listen, run
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            if missing == "tokenlight":
                raise
            raise ImportError(f"the page needs {missing}: install it with `pip install 'tokenlight[serve]'`") from error
        from tokenlight.masks.choosing import choose_heads

        with listen(port) as sock:  # before the model: loading is slow
            explainer = load_model(model, task)
            mask = choose_heads(heads, explainer.task.model)
            typer.echo(f"The page is at http://{HOST}:{sock.getsockname()[1]}/ (Ctrl-C stops it)")
            run(explainer, sock, browser, mask)
