"""Letting a language model write, and asking why."""

from pathlib import Path
from typing import Annotated

import typer

from tokenlight.cli.app import app, load_model, readable_errors
from tokenlight.cli.completion import complete_method
from tokenlight.cli.shared_options import FusedOption, ModelArgument


@app.command()
def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Argument(help="What the model reads before it writes.")],
    explain: Annotated[str, typer.Option(help="The method.", autocompletion=complete_method)] = "attn_lrp",
    answer: Annotated[str | None, typer.Option(help="An answer that you have already; default: the model's.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="The most that it writes.")] = 60,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Draw tokens by chance; default: the likeliest ones.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For tokens that are drawn.")] = 0,
    through: Annotated[bool, typer.Option("--through", help="Hand on what the answer itself took.")] = False,
    low_memory: Annotated[bool, typer.Option("--low-memory", help="Less memory, more time, the same scores.")] = False,
    fused: FusedOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write everything to this JSON file.")] = None,
) -> None:
    """Let a language model answer a prompt, and say which parts of the prompt made it write each sentence."""
    with readable_errors():
        from tokenlight.methods import find_method

        method = find_method(explain).name  # before the model: loading is slow
        explainer = load_model(model, None)
        drawing = {"do_sample": False} if not temperature else {"do_sample": True, "temperature": temperature}
        written = answer or explainer.generate(prompt, seed=seed, max_new_tokens=tokens, **drawing)
        found = explainer.explain_answer(prompt, written, method, low_memory=low_memory, fused=fused, through=through)
        if output is None:
            found.show()
        else:
            found.save(output)
