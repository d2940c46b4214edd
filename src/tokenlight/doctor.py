"""Try every method on a short input and say what it costs. Nothing is guessed; what fails is shown with its reason."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.batch import Text as Input
from tokenlight.explainer import Explainer
from tokenlight.methods import METHODS
from tokenlight.progress import track

SENTENCE = "The old man the boat and , quite unexpectedly , it is not bad at all ."


@dataclass(frozen=True)
class Finding:
    """How one method did."""

    method: str
    seconds: float
    held: int  # bytes that autograd held for the backward pass
    error: str | None = None


def examine(explainer: Explainer) -> list[Finding]:
    text, target = sample(explainer)
    explainer.explain(text, target=target, method="gradient_x_input")  # the first pass is always slow
    return [try_method(explainer, name, text, target) for name in track(list(METHODS), "trying methods")]


def sample(explainer: Explainer) -> tuple[Input, Any]:
    """A short input that fits the task."""
    match explainer.task:
        case "question-answering":
            return ("Who is in the boat?", SENTENCE), None
        case "fill-mask":
            return f"{SENTENCE} It is {explainer.tokenizer.mask_token} .", None
        case "token-classification":
            return SENTENCE, ("boat", None)
        case _:
            return SENTENCE, None


def try_method(explainer: Explainer, name: str, text: Input, target: Any) -> Finding:
    storages: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in explainer.model.parameters()}
    began = time.perf_counter()
    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            explainer.explain(text, name, target=target, progress=False)
    except (ValueError, TypeError, RuntimeError) as error:
        return Finding(name, 0.0, 0, str(error))
    seconds = time.perf_counter() - began
    return Finding(name, seconds, sum(size for place, size in storages.items() if place not in weights))


def report(explainer: Explainer, findings: list[Finding]) -> RenderableType:
    inner = explainer.model
    count = sum(parameter.numel() for parameter in inner.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in inner.parameters())
    text, _ = sample(explainer)
    tokens = len(explainer.encode([text])[0])
    header = Text(
        f"{type(inner).__name__}, {explainer.task}, {count / 1e6:.1f} M weights ({size / 1e6:.0f} MB, {inner.dtype}); "
        f"one text of {tokens} tokens on {inner.device}"
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "works", "time", "held for backward"):
        table.add_column(column, style="cyan" if column == "method" else "")
    for finding in findings:
        if finding.error is not None:
            table.add_row(finding.method, Text(f"no: {finding.error}", style="yellow"), "", "")
        else:
            held = f"{finding.held / 1e6:.1f} MB" if finding.held else "nothing"
            table.add_row(finding.method, "yes", f"{finding.seconds * 1e3:.0f} ms", held)
    return Group(header, table)
