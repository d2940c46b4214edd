"""The command that starts the local page."""

from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import app, readable_errors, say
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.cli.options import DeviceOption, ModelArgument, TaskOption, TrustOption
from tokenlight.common.errors import from_extra


@app.command()
def serve(
    model: ModelArgument = DEFAULT,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: 8765, or the next free port; 0: any free port.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    heads: Annotated[
        Path | None, typer.Option(help="The mask that the head map is drawn from: see `tokenlight heads`.")
    ] = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
) -> None:
    """Start a local page for exploring explanations; Ctrl-C stops it."""
    with readable_errors():
        with from_extra("serve", "the page"):
            from tokenlight.serve.server import HOST, listen, run
        from tokenlight.heads.mask import choose_heads

        with listen(port) as sock:  # before the model: loading is slow
            explainer = load_model(model, task, trust_remote_code, device)
            mask = choose_heads(heads, explainer.inner)
            say(f"The page is at http://{HOST}:{sock.getsockname()[1]}/ (Ctrl-C stops it)")
            run(explainer, sock, browser, mask)
