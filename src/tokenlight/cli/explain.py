"""Commands that explain one text or an answer, list the methods, and check a model."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenlight.cli.app import app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_method
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.cli.options import (
    DeviceOption,
    DocumentsOption,
    Format,
    FusedOption,
    HeadsOption,
    MessagesOption,
    MethodSpecsOption,
    ModelArgument,
    ModelOption,
    QuantityOption,
    TaskOption,
    TrustOption,
    read_documents,
    read_prompt,
)
from tokenlight.cli.output import (
    check_folder_of,
    check_output,
    confirm,
    explain_answer,
    format_for,
    print_document,
    write_answer,
)
from tokenlight.common.errors import RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.option_values import DEFAULT_QUANTITY

if TYPE_CHECKING:
    from tokenlight.methods.config import MethodConfig
    from tokenlight.results.explanation import Explanation
    from tokenlight.runs.method_specs import MethodSpec


@app.command()
def explain(
    text: Annotated[
        str | None,
        typer.Argument(help="The text to explain, or the prompt of an answer; - reads it from standard input."),
    ] = None,
    model: ModelOption = DEFAULT,
    method: MethodSpecsOption = None,
    target: Annotated[
        str | None, typer.Option(help="The label or token to explain; default: the predicted one.")
    ] = None,
    foil: Annotated[str | None, typer.Option(help="Explain the target minus this label or token.")] = None,
    context: Annotated[
        str | None, typer.Option(help="The second text of a pair, such as the context of a question.")
    ] = None,
    messages: MessagesOption = None,
    answer: Annotated[
        str | None,
        typer.Option(
            help="A language model's answer; default: the last message of the chat, if it is the assistant's."
        ),
    ] = None,
    documents: DocumentsOption = None,
    quantity: QuantityOption = DEFAULT_QUANTITY,
    position: Annotated[
        int | None, typer.Option(help="Index of the token to explain, for models with an output at every token.")
    ] = None,
    heads: HeadsOption = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    low_memory: Annotated[
        bool, typer.Option("--low-memory", help="Use less memory and more time, with the same scores.")
    ] = False,
    fused: FusedOption = None,
    format: Annotated[
        Format | None, typer.Option(help="Format of the result; default: from the file's ending, or terminal.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, such as x.html or x.json.")
    ] = None,
) -> None:
    """Explain a model's output for a text, or a language model's answer."""
    from tokenlight.data.columns import split_reply
    from tokenlight.explain.explainer import DEFAULT_METHOD
    from tokenlight.explain.options import RunOptions
    from tokenlight.runs.method_specs import MethodSpec
    from tokenlight.text.documents import named_spans, with_documents

    with readable_errors():
        specs = [MethodSpec.parse(name) for name in method or [DEFAULT_METHOD]]  # before the model: loading is slow
        prompt = read_prompt(text, messages)
        if answer is None and target is None:
            prompt, answer = split_reply(prompt)
        prompt, placed_documents = with_documents(prompt, read_documents(documents or ()))
        if answer is not None:
            refuse_with_answer(specs, target=target, foil=foil, context=context, position=position)
            check_output(output, format)
            options: dict[str, Any] = {} if heads is None else {"heads": heads}
            options |= {"low_memory": low_memory, "fused": fused, **specs[0].options}
            options |= {"quantity": quantity, "documents": named_spans(placed_documents) or None}
            explainer = load_model(model, task, trust_remote_code, device)
            write_answer(explain_answer(explainer, prompt, answer, specs[0].name, **options), output, format)
            return
        format = format_for(output, format)
        check_folder_of(output)
        explainer = load_model(model, task, trust_remote_code, device)
        results = explainer.explain_configs(
            prompt if context is None else (prompt, context),
            configs_of(specs, explainer.inner, heads),
            target=explainer.task.compose(target, position),
            foil=foil,
            run_options=RunOptions(low_memory=low_memory, fused=fused),
        )
        in_text = tuple(placed_documents)
        write([replace(result, method=label, documents=in_text) for label, result in results.items()], format, output)


def configs_of(specs: "Sequence[MethodSpec]", model: Any, heads: str | None) -> "dict[str, MethodConfig]":
    """Method configs by label. `heads` is for the methods that take a head mask and have none among their options."""
    if heads is not None and not any("heads" in spec.entry.options for spec in specs):
        raise RefusedValue(f"{', '.join(spec.label for spec in specs)} cannot use a head mask: leave --heads out")
    return {spec.label: spec.method_config(model, heads) for spec in specs}


def refuse_with_answer(specs: "Sequence[MethodSpec]", **options: Any) -> None:
    """Refuse options that do not apply to an answer, and more than one method."""
    if given := [name for name, value in options.items() if value is not None]:
        raise RefusedValue(f"the tokens of an answer are its targets: leave --{given[0]} out")
    if len(specs) > 1:
        labels = ", ".join(spec.label for spec in specs)
        raise RefusedValue(f"an answer is explained by one method at a time; found {labels}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file with the same results.")] = Path(
        "demo.html"
    ),
) -> None:
    """Explain three sentences with several methods, as a first try."""
    from tokenlight.common.console import SafeConsole
    from tokenlight.common.samples import DEMO_METHODS, SENTENCES
    from tokenlight.views.html import page
    from tokenlight.views.layout import by_text
    from tokenlight.views.terminal import show

    with readable_errors():
        check_folder_of(output)
        explainer, console = load_model(DEFAULT, None), SafeConsole()
        by_method = explainer.explain_all(SENTENCES, DEMO_METHODS)
        show(by_method, console)
        write_atomically(output, page(by_text(by_method)))
        say(f"The same results as a page: {output.resolve()}")


@app.command()
def methods() -> None:
    """List all methods."""
    from tokenlight.cli.catalog import method_table, read_catalog

    console = wide_console()
    console.print(method_table(read_catalog().methods, console.width))


@app.command()
def doctor(
    model: ModelArgument = DEFAULT,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Text length for the estimate; default: the model's maximum, at most 512.")
    ] = None,
) -> None:
    """Show how much memory methods need on a model, which of them work, and what they cost on a short input."""
    from tokenlight.diagnostics.doctor import examine, foresee
    from tokenlight.views.model_report import examination_table, outlook_table

    with readable_errors():
        explainer = load_model(model, task, trust_remote_code, device)
        wide_console().print(outlook_table(foresee(explainer, tokens)))
        wide_console().print(examination_table(examine(explainer)))


def write(explanations: "list[Explanation]", format: Format, output: Path | None) -> None:
    """Write explanations as one document, to a file or to standard output."""
    if output is None and format is Format.terminal:
        from tokenlight.common.console import SafeConsole
        from tokenlight.views.terminal import show

        show(explanations, SafeConsole())
        return
    document = as_document(explanations, format)
    if output is None:
        print_document(document, format)
        return
    write_atomically(output, document)
    confirm(output)


def as_document(explanations: "list[Explanation]", format: Format) -> str:
    """Explanations as the text of one file."""
    if format is Format.json:
        return json.dumps([e.to_dict() for e in explanations], ensure_ascii=False, indent=1) + "\n"
    if format is Format.html:
        from tokenlight.views.html import page

        return page([explanations])
    from tokenlight.common.console import SafeConsole
    from tokenlight.views.terminal import print_explanations

    file = StringIO()
    print_explanations(explanations, SafeConsole(file=file, width=100_000))
    return file.getvalue()


@app.command()
def generate(
    model: ModelArgument,
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads it from standard input.")] = None,
    messages: MessagesOption = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Continue the prompt as it is. By default, it is a user's message if the model has a chat template.",
        ),
    ] = False,
    documents: DocumentsOption = None,
    explain: Annotated[
        str, typer.Option(help="The method that explains the answer.", autocompletion=complete_method)
    ] = "attn_lrp",
    answer: Annotated[str | None, typer.Option(help="Explain this answer; default: the model generates one.")] = None,
    quantity: QuantityOption = DEFAULT_QUANTITY,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum length of the answer in tokens.")] = 60,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Sample tokens at this temperature; default: always the most likely token."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    through: Annotated[
        bool, typer.Option("--through", help="Pass the scores of earlier answer tokens on to the prompt.")
    ] = False,
    low_memory: Annotated[
        bool, typer.Option("--low-memory", help="Use less memory and more time, with the same scores.")
    ] = False,
    fused: FusedOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the result to this .html, .json or .parquet file.")
    ] = None,
) -> None:
    """Let a language model answer a prompt or a chat, and explain each sentence of the answer."""
    from tokenlight.methods import find_method
    from tokenlight.text.documents import USER, named_spans, with_documents
    from tokenlight.text.tokenized_text import Chat

    with readable_errors():
        check_output(output)  # all checks before the model: loading is slow
        method = find_method(explain).name
        text, document_texts = read_prompt(prompt, messages), read_documents(documents or ())
        explainer = load_model(model, None, trust_remote_code, device)
        if isinstance(text, str) and not plain and explainer.tokenizer.chat_template:
            text = Chat((USER,), (text,))
        text, placed_documents = with_documents(text, document_texts)
        if answer is None:
            sampling = {"do_sample": False} if not temperature else {"do_sample": True, "temperature": temperature}
            generated = explainer.generate(
                text, seed=seed, max_new_tokens=tokens, **sampling, **streaming_settings(explainer)
            )
        else:
            generated = answer
        settings = {
            "quantity": quantity,
            "documents": named_spans(placed_documents) or None,
            "low_memory": low_memory,
            "fused": fused,
        }
        write_answer(explain_answer(explainer, text, generated, method, through=through, **settings), output)


def streaming_settings(explainer: Any) -> dict[str, Any]:
    """The keyword of `generate` that prints the answer while it is generated; none if the output is no terminal."""
    if not sys.stdout.isatty():
        return {}
    from transformers import TextStreamer

    class SafeStreamer(TextStreamer):
        """Leaves out characters that would control the terminal."""

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            safe = "".join(character for character in text if character.isprintable() or character in "\n\t")
            print(safe, end="\n\n" if stream_end else "", flush=True)

    return {"streamer": SafeStreamer(explainer.tokenizer, skip_prompt=True, skip_special_tokens=True)}
