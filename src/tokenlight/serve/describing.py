"""What the page needs to know of the model before anything is asked."""

from typing import Any

from tokenlight.demo import SENTENCES
from tokenlight.embedded import NAME
from tokenlight.explainer import DEFAULT_METHOD
from tokenlight.explanation import library_versions
from tokenlight.heads.choose import model_name
from tokenlight.methods import METHODS, Method
from tokenlight.serve.explaining import has_layers, takes_heads
from tokenlight.serve.masks import head_map, lacks_mask, presets
from tokenlight.serve.questions import CHARACTERS
from tokenlight.serve.session import Session

SCHOOLS = {
    "attention": "Attention",
    "attention_gradients": "Attention with gradients",
    "gradients": "Gradients",
    "decomposition": "Decomposition",
    "relevance": "Relevance",
    "perturbation": "Perturbation and control",
}
FIRST_SHOWN = ("calibrated_lrp", DEFAULT_METHOD, "mask_lrp", "attcat")
Field = dict[str, str]


def describe(session: Session) -> dict[str, Any]:
    """Everything that stays as it is while the server runs."""
    methods = [describe_method(session, method) for method in METHODS.values()]
    usable = {one["name"] for one in methods if one["available"] and not one["needs_heads"]}
    layers, heads = session.shape
    first, second, required = fields(session)
    return {
        "name": model_name(session.names.model),
        "task": session.explainer.task,
        "layers": layers,
        "heads": heads,
        "labels": labels(session),
        "fields": {"text": first, "second": second, "second_required": required},
        "examples": examples(session),
        "methods": methods,
        "default_methods": [name for name in FIRST_SHOWN if name in usable],
        "masks": presets(session),
        "map": head_map(session),
        "limits": {"characters": CHARACTERS},
        "versions": library_versions(),
    }


def describe_method(session: Session, method: Method) -> dict[str, Any]:
    available = method.fits(session.names.model)
    needs_heads = lacks_mask(session, method)
    reason = None if available else f"{method.title} is not defined for {type(session.names.model).__name__}"
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
        "slow": method.asks_often,
        "heads": takes_heads(method),
        "layers": has_layers(method),
        "available": available,
        "needs_heads": needs_heads,
        "reason": reason,
    }


def labels(session: Session) -> list[str] | None:
    if session.explainer.task not in ("text-classification", "token-classification"):
        return None
    return [name for _, name in sorted(session.names.labels.items())]


def fields(session: Session) -> tuple[Field, Field | None, bool]:
    """The two places to write in, and whether the second must not stay empty."""
    match session.explainer.task:
        case "question-answering":
            context = {"label": "Context", "placeholder": "The text that holds the answer"}
            return {"label": "Question", "placeholder": "What do you want to know?"}, context, True
        case "fill-mask":
            gap = session.explainer.tokenizer.mask_token
            return {"label": f"Text with a gap ({gap})", "placeholder": f"The keys {gap} on the table."}, None, False
        case "text-generation":
            return (
                {"label": "Prompt", "placeholder": "The beginning of a text: the next token is explained"},
                None,
                False,
            )
        case "token-classification":
            return {"label": "Text", "placeholder": "Type or paste a text"}, None, False
    text = {"label": "Text", "placeholder": "Type or paste a text"}
    if session.names.model.config._name_or_path == NAME:  # reads single sentences
        return text, None, False
    return text, {"label": "Second text (for models of pairs)", "placeholder": "Leave empty for a single text"}, False


def examples(session: Session) -> list[Field]:
    match session.explainer.task:
        case "question-answering":
            context = "The book was written by a young author in Paris, who later moved to London."
            return [{"text": "Who wrote the book?", "second": context}]
        case "fill-mask":
            gap = session.explainer.tokenizer.mask_token
            return [{"text": f"The keys to the cabinet {gap} on the table."}]
        case "text-generation":
            return [{"text": "The keys to the cabinet"}]
        case "token-classification":
            return [{"text": "Ada Lovelace was born in London."}]
    return [{"text": sentence} for sentence in SENTENCES]
