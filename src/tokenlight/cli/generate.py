"""Letting a language model write, and asking why."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenlight.cli.answers import check_output, explain_answer, write_answer
from tokenlight.cli.app import app, readable_errors
from tokenlight.cli.completion import complete_method
from tokenlight.cli.loading import load_model
from tokenlight.cli.prompts import DocumentsOption, MessagesOption, read_documents, read_prompt
from tokenlight.cli.shared_options import DeviceOption, FusedOption, ModelArgument, QuantityOption, TrustOption
from tokenlight.explain.numbers import DEFAULT_QUANTITY


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
    from tokenlight.text.rows import Chat

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
