"""Commands that explain one text, or an answer that the model generates."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenlight.cli.app import ModelOption, app, readable_errors, say, wide_console
from tokenlight.cli.catalog import complete_method
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.cli.options import (
    DeviceOption,
    DocumentsOption,
    Format,
    FusedOption,
    MessagesOption,
    MethodSpecsOption,
    ModelArgument,
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
    from tokenlight.text.tokenized_text import Document


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
    from tokenlight.data.columns import split_reply
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
        raise RefusedValue(f"{', '.join(spec.label for spec in specs)} cannot use a head mask: leave --heads out")
    return {spec.label: spec.method_config(model, heads) for spec in specs}


def named(found: "Explanation", label: str, documents: "Sequence[Document]") -> "Explanation":
    """Under the label that the command line gave: a method may be there twice, with other options."""
    return replace(found, method=label, documents=tuple(documents))


def refuse_with_answer(specs: "Sequence[MethodSpec]", **others: Any) -> None:
    """An answer is explained by itself."""
    if named := [name for name, value in others.items() if value is not None]:
        raise RefusedValue(f"an answer is explained by itself: leave --{named[0]} out")
    if len(specs) > 1:
        found = ", ".join(spec.label for spec in specs)
        raise RefusedValue(f"an answer is explained by one method at a time; found {found}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the same goes as HTML.")] = Path("demo.html"),
) -> None:
    """Explain three sentences with several methods: the first thing to look at."""
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
        say(f"The same as a page: {output.resolve()}")


@app.command()
def methods() -> None:
    """List all methods."""
    from tokenlight.cli.catalog import method_table, read_catalog

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
    from tokenlight.diagnostics.doctor import examine, foresee
    from tokenlight.views.model_report import examination_table, outlook_table

    with readable_errors():
        explainer = load_model(model, task, trust_remote_code, device)
        wide_console().print(outlook_table(foresee(explainer, tokens)))
        wide_console().print(examination_table(examine(explainer)))


def write(explanations: "list[Explanation]", shape: Format, output: Path | None) -> None:
    """One document, to a file or to standard output."""
    if output is None and shape is Format.terminal:
        from tokenlight.common.console import SafeConsole
        from tokenlight.views.terminal import show

        show(explanations, SafeConsole())
        return
    document = as_document(explanations, shape)
    if output is None:
        print_document(document, shape)
        return
    write_atomically(output, document)
    confirm(output)


def as_document(explanations: "list[Explanation]", shape: Format) -> str:
    if shape is Format.json:
        return json.dumps([e.to_dict() for e in explanations], ensure_ascii=False, indent=1) + "\n"
    if shape is Format.html:
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
    prompt: Annotated[str | None, typer.Argument(help="What the model reads before it writes.")] = None,
    messages: MessagesOption = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Continue the prompt as it stands. Otherwise it is a user's message, if the model knows chats.",
        ),
    ] = False,
    documents: DocumentsOption = None,
    explain: Annotated[str, typer.Option(help="The method.", autocompletion=complete_method)] = "attn_lrp",
    answer: Annotated[str | None, typer.Option(help="An answer that you have already; default: the model's.")] = None,
    quantity: QuantityOption = DEFAULT_QUANTITY,
    tokens: Annotated[int, typer.Option(min=1, help="The most that it writes.")] = 60,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Draw tokens by chance; default: the likeliest ones.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For tokens that are drawn.")] = 0,
    through: Annotated[bool, typer.Option("--through", help="Hand on what the answer itself took.")] = False,
    low_memory: Annotated[bool, typer.Option("--low-memory", help="Less memory, more time, the same scores.")] = False,
    fused: FusedOption = None,
    trust_remote_code: TrustOption = False,
    device: DeviceOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write everything to this file: .html, .json or .parquet.")
    ] = None,
) -> None:
    """Let a language model answer a prompt or a chat, and say which parts of it made the model write each sentence."""
    from tokenlight.methods import find_method
    from tokenlight.text.documents import USER, named_spans, with_documents
    from tokenlight.text.tokenized_text import Chat

    with readable_errors():
        check_output(output)  # everything before the model: loading is slow
        method = find_method(explain).name
        asked, passages = read_prompt(prompt, messages), read_documents(documents or ())
        explainer = load_model(model, None, trust_remote_code, device)
        if isinstance(asked, str) and not plain and explainer.tokenizer.chat_template:
            asked = Chat((USER,), (asked,))
        text, placed_documents = with_documents(asked, passages)
        if answer is None:
            drawing = {"do_sample": False} if not temperature else {"do_sample": True, "temperature": temperature}
            written = explainer.generate(text, seed=seed, max_new_tokens=tokens, **drawing, **streaming(explainer))
        else:
            written = answer
        settings = {
            "quantity": quantity,
            "documents": named_spans(placed_documents) or None,
            "low_memory": low_memory,
            "fused": fused,
        }
        found = explain_answer(explainer, text, written, method, through=through, **settings)
        write_answer(found, output)


def streaming(explainer: Any) -> dict[str, Any]:
    """The setting by which transformers shows the answer while it is written, where somebody looks."""
    if not sys.stdout.isatty():
        return {}
    from transformers import TextStreamer

    class Shown(TextStreamer):
        """Without characters that would control the terminal."""

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            safe = "".join(one for one in text if one.isprintable() or one in "\n\t")
            print(safe, end="\n\n" if stream_end else "", flush=True)

    return {"streamer": Shown(explainer.tokenizer, skip_prompt=True, skip_special_tokens=True)}
