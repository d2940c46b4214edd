"""Explaining one text, and what can be known before."""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenlight.cli.answers import check_output, explain_answer, write_answer
from tokenlight.cli.app import ModelOption, app, readable_errors, say, wide_console
from tokenlight.cli.loading import DEFAULT, load_model
from tokenlight.cli.prompts import DocumentsOption, MessagesOption, read_documents, read_prompt
from tokenlight.cli.shared_options import (
    DeviceOption,
    Format,
    FusedOption,
    MethodSpecsOption,
    QuantityOption,
    TaskOption,
    TrustOption,
)
from tokenlight.cli.writing import check_folder_of, confirm, format_for, print_document
from tokenlight.explain.numbers import DEFAULT_QUANTITY
from tokenlight.foundation.files import write_whole

if TYPE_CHECKING:
    from tokenlight.explain.jobs import MethodConfig
    from tokenlight.results.explanation import Explanation
    from tokenlight.runs.method_specs import MethodSpec
    from tokenlight.text.sources import Document


@app.command()
def explain(
    text: Annotated[
        str | None,
        typer.Argument(help="The text to explain, or the prompt of an answer; - reads it from standard input."),
    ] = None,
    model: ModelOption = DEFAULT,
    method: MethodSpecsOption = None,
    target: Annotated[str | None, typer.Option(help="Label or token; default: what the model predicts.")] = None,
    foil: Annotated[str | None, typer.Option(help="Explain target minus this.")] = None,
    context: Annotated[str | None, typer.Option(help="The second text of a pair: a question's context.")] = None,
    messages: MessagesOption = None,
    answer: Annotated[
        str | None,
        typer.Option(help="What a language model answered; default: the assistant's message that ends the chat."),
    ] = None,
    documents: DocumentsOption = None,
    quantity: QuantityOption = DEFAULT_QUANTITY,
    position: Annotated[
        int | None, typer.Option(help="The token to explain, where the model answers for each.")
    ] = None,
    heads: Annotated[str | None, typer.Option(help="A head mask: see `tokenlight heads`.")] = None,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    low_memory: Annotated[bool, typer.Option("--low-memory", help="Less memory, more time, the same scores.")] = False,
    fused: FusedOption = None,
    format: Annotated[
        Format | None, typer.Option(help="How to show the result; default: as the file's name ends, or terminal.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, such as x.html or x.json.")
    ] = None,
) -> None:
    """Explain what a model says about a text, or why a language model gave an answer."""
    from tokenlight.data.answers import split_reply
    from tokenlight.explain.explainer import DEFAULT_METHOD
    from tokenlight.explain.running import RunOptions
    from tokenlight.runs.method_specs import MethodSpec
    from tokenlight.text.documents import named_spans, with_documents

    with readable_errors():
        specs = [MethodSpec.parse(one) for one in method or [DEFAULT_METHOD]]  # before the model: loading is slow
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
            found = explain_answer(
                load_model(model, task, trust_remote_code, device), prompt, answer, specs[0].name, **options
            )
            write_answer(found, output, format)
            return
        shape = format_for(output, format)
        check_folder_of(output)
        explainer = load_model(model, task, trust_remote_code, device)
        measured_target = explainer.task.compose(target, position)
        words = prompt if context is None else (prompt, context)
        method_configs = configs_of(specs, explainer.inner, heads)
        running = RunOptions(low_memory=low_memory, fused=fused)
        results = explainer.explain_configs(
            words, method_configs, target=measured_target, foil=foil, run_options=running
        )
        write([named(one, label, placed_documents) for label, one in results.items()], shape, output)


def configs_of(specs: "Sequence[MethodSpec]", model: Any, heads: str | None) -> "dict[str, MethodConfig]":
    """By label; `heads` is for the methods that take some and do not name their own."""
    if heads is not None and not any("heads" in spec.entry.options for spec in specs):
        raise ValueError(f"{', '.join(spec.label for spec in specs)} cannot use a head mask: leave --heads out")
    return {spec.label: spec.method_config(model, heads) for spec in specs}


def named(found: "Explanation", label: str, documents: "Sequence[Document]") -> "Explanation":
    """Under the label that the command line gave: a method may be there twice, with other options."""
    return replace(found, method=label, documents=tuple(documents))


def refuse_with_answer(specs: "Sequence[MethodSpec]", **others: Any) -> None:
    """An answer is explained by itself."""
    if named := [name for name, value in others.items() if value is not None]:
        raise ValueError(f"an answer is explained by itself: leave --{named[0]} out")
    if len(specs) > 1:
        found = ", ".join(spec.label for spec in specs)
        raise ValueError(f"an answer is explained by one method at a time; found {found}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the same goes as HTML.")] = Path("demo.html"),
) -> None:
    """Explain three sentences with several methods: the first thing to look at."""
    from tokenlight.foundation.console import SafeConsole
    from tokenlight.foundation.first_look import DEMO_METHODS, SENTENCES
    from tokenlight.views.html import page
    from tokenlight.views.layout import by_text
    from tokenlight.views.terminal import show

    with readable_errors():
        check_folder_of(output)
        explainer, console = load_model(DEFAULT, None), SafeConsole()
        by_method = explainer.explain_all(SENTENCES, DEMO_METHODS)
        show(by_method, console)
        write_whole(output, page(by_text(by_method)))
        say(f"The same as a page: {output.resolve()}")


@app.command()
def methods() -> None:
    """List all methods."""
    from tokenlight.cli.catalogue import read_catalog
    from tokenlight.views.method_table import method_table

    console = wide_console()
    console.print(method_table(read_catalog().methods, console.width))


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Checkpoint name or path; 'default' is the one inside.")] = DEFAULT,
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Length of texts for the estimate; default: the longest, at most 512.")
    ] = None,
) -> None:
    """How much memory methods need on this model, which of them work, and what they cost on a short input."""
    from tokenlight.explain.doctor import examine, foresee
    from tokenlight.views.doctor import examination_table, outlook_table

    with readable_errors():
        explainer = load_model(model, task, trust_remote_code, device)
        wide_console().print(outlook_table(foresee(explainer, tokens)))
        wide_console().print(examination_table(examine(explainer)))


def write(explanations: "list[Explanation]", shape: Format, output: Path | None) -> None:
    """One document, to a file or to standard output."""
    if output is None and shape is Format.terminal:
        from tokenlight.foundation.console import SafeConsole
        from tokenlight.views.terminal import show

        show(explanations, SafeConsole())
        return
    document = as_document(explanations, shape)
    if output is None:
        print_document(document, shape)
        return
    write_whole(output, document)
    confirm(output)


def as_document(explanations: "list[Explanation]", shape: Format) -> str:
    if shape is Format.json:
        return json.dumps([e.to_dict() for e in explanations], ensure_ascii=False, indent=1) + "\n"
    if shape is Format.html:
        from tokenlight.views.html import page

        return page([explanations])
    from tokenlight.foundation.console import SafeConsole
    from tokenlight.views.terminal import print_explanations

    file = StringIO()
    print_explanations(explanations, SafeConsole(file=file, width=100_000))
    return file.getvalue()
