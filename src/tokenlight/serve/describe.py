"""Facts of the model that the page shows before any request."""

from dataclasses import asdict
from typing import Any

from tokenlight.common.versions import library_versions
from tokenlight.explain.explainer import DEFAULT_METHOD
from tokenlight.heads.mask import model_name
from tokenlight.methods import METHODS, Method
from tokenlight.serve.explain import has_layers, takes_heads
from tokenlight.serve.requests import ANSWER, CHARACTERS
from tokenlight.serve.session import Session, head_map, lacks_mask, presets
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import Text, parts

SCHOOLS = {
    "attention": "Attention",
    "attention_gradients": "Attention with gradients",
    "gradients": "Gradients",
    "averaged_gradients": "Gradients",
    "decomposition": "Decomposition",
    "relevance": "Relevance",
    "perturbation": "Perturbation and control",
    "shapley": "Perturbation and control",
    "lime": "Perturbation and control",
    "suppression": "Perturbation and control",
    "unit_ablation": "Perturbation and control",
}
PASSAGES: dict[str, Any] = {  # to ask a language model about
    "text": "Who designed the bridge?",
    "passages": [
        "The library in Oakfield was built in 1904. It burned down in 1952 and was never rebuilt.",
        "The bridge over the river Lune was designed by the engineer Clara Voss. It opened in 1931 and is made of red "
        "steel.",
        "The market of Oakfield takes place on Saturdays. Farmers sell apples, cheese and honey there.",
    ],
}
FIRST_SHOWN = ("context_lrp", "calibrated_lrp", DEFAULT_METHOD, "mask_lrp", "attcat")


def describe(session: Session) -> dict[str, Any]:
    """Everything that stays as it is while the server runs."""
    methods = [describe_method(session, method) for method in METHODS.values()]
    usable = {one["name"] for one in methods if one["available"] and not one["needs_heads"]}
    layers, heads = session.shape
    task = session.explainer.task
    return {
        "name": model_name(session.explainer.inner),
        "task": task.name,
        "asks": {
            "position": task.names_position,  # a question says which token it is about
            "any_position": task.needs_position,  # ... and that may be every word
            "same_labels": task.compares_classes,  # a label that was picked for one text has a meaning for the next
        },
        "layers": layers,
        "heads": heads,
        "labels": [name for _, name in sorted(task.labels.items())] or None,
        "fields": asdict(task.fields),
        "examples": [*([PASSAGES] if task.reads_on else []), *(example(text) for text in task.examples)],
        "writes": task.reads_on,
        "chats": task.reads_on and bool(getattr(session.explainer.tokenizer, "chat_template", None)),
        "methods": methods,
        "default_methods": [name for name in first_shown(task) if name in usable],
        "masks": presets(session),
        "map": head_map(session),
        "limits": {"characters": CHARACTERS, "answer": ANSWER},
        "versions": library_versions(),
    }


def first_shown(task: Task) -> tuple[str, ...]:
    """An answer takes a backward pass for each of its tokens, in every method."""
    return (DEFAULT_METHOD,) if task.reads_on else FIRST_SHOWN


def describe_method(session: Session, method: Method) -> dict[str, Any]:
    available = method.fits(session.explainer.inner)
    needs_heads = lacks_mask(session, method)
    reason = None if available else f"{method.title} is not defined for {type(session.explainer.inner).__name__}"
    if available and needs_heads:
        reason = "this model comes without such a head mask: light heads on the map, or start with --heads FILE"
    return {
        "name": method.name,
        "title": method.title,
        "paper": method.paper,
        "summary": method.summary,
        "school": SCHOOLS.get(method.function.__module__.rsplit(".", 1)[-1], "Others"),
        "signed": method.signed,
        "class_specific": method.class_specific,
        "cost": method.cost,
        "slow": method.takes_long,
        "heads": takes_heads(method),
        "layers": has_layers(method),
        "available": available,
        "needs_heads": needs_heads,
        "reason": reason,
    }


def example(text: Text) -> dict[str, str]:
    return dict(zip(("text", "second"), parts(text), strict=False))
