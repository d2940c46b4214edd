"""What an Explainer shows of its model: a line, and a table for notebooks."""

from html import escape

from tokenlight.model.config import layers_and_heads
from tokenlight.tasks.task import Task

SHOWN_LABELS = 5


def describe_in_a_line(task: Task) -> str:
    labels = labels_of(task)
    return f"<Explainer of {type(task.model).__name__}, {task.name}{': ' + labels if labels else ''}>"


def describe_in_html(task: Task) -> str:
    """HTML; its colors are those of the notebook, light or dark."""
    rows = "".join(
        f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{escape(fact)}</td></tr>'
        for name, fact in facts_about(task).items()
    )
    call = "<code>.explain(text)</code>, <code>.explain_all(text)</code>"
    if task.generates:
        call += ", <code>.generate(prompt)</code>"
    return f"<table><caption>tokenlight.Explainer: {call}</caption>{rows}</table>"


def facts_about(task: Task) -> dict[str, str]:
    layers, heads = layers_and_heads(task.model)
    weights = sum(weight.numel() for weight in task.model.parameters())
    size = f"{weights / 1e6:,.1f} million weights, {layers} layers"
    longest = task.max_length
    return {
        "model": type(task.model).__name__,
        "task": task.name,
        **({"labels": labels_of(task)} if task.labels else {}),
        "size": f"{size} of {heads} heads" if heads else size,
        "longest text": "no limit" if longest is None else f"{longest:,} tokens",
    }


def labels_of(task: Task) -> str:
    labels = list(task.labels.values())
    return ", ".join(labels[:SHOWN_LABELS]) + (" …" if len(labels) > SHOWN_LABELS else "")
