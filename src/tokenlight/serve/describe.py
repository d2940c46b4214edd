"""The description of the model that the page loads first: its text fields, examples and methods."""

from dataclasses import asdict, dataclass
from typing import Any

from tokenlight.common.samples import EMBEDDED, SENTENCES
from tokenlight.common.versions import library_versions
from tokenlight.explain.explainer import DEFAULT_METHOD
from tokenlight.heads.mask import model_name
from tokenlight.methods import METHODS, Method
from tokenlight.serve.explain import has_layers, takes_heads
from tokenlight.serve.requests import ANSWER, CHARACTERS
from tokenlight.serve.session import Session, head_map, lacks_mask, presets
from tokenlight.tasks.positions import Positioned
from tokenlight.tasks.task import Task
from tokenlight.text.tokenized_text import Text, parts

METHOD_GROUPS = {
    "attention": "Attention",
    "attention_gradients": "Attention with gradients",
    "gradients": "Gradients",
    "averaged_gradients": "Gradients",
    "decomposition": "Decomposition",
    "relevance": "Relevance",
    "erasure": "Perturbation and control",
    "shapley": "Perturbation and control",
    "lime": "Perturbation and control",
    "suppression": "Perturbation and control",
    "unit_ablation": "Perturbation and control",
}
Example = dict[str, Any]  # fields of the page, by name
QUESTION_ABOUT_PASSAGES: Example = {
    "text": "Who designed the bridge?",
    "passages": [
        "The library in Oakfield was built in 1904. It burned down in 1952 and was never rebuilt.",
        "The bridge over the river Lune was designed by the engineer Clara Voss. It opened in 1931 and is made of red "
        "steel.",
        "The market of Oakfield takes place on Saturdays. Farmers sell apples, cheese and honey there.",
    ],
}


@dataclass(frozen=True)
class Field:
    """One text field of the page."""

    label: str
    placeholder: str


@dataclass(frozen=True)
class Form:
    """The text fields of the page, and examples that fill them."""

    text: Field
    second: Field | None = None
    second_required: bool = False
    examples: tuple[Example, ...] = ()


TEXT = Field("Text", "Type or paste a text")
SECOND = Field("Second text (for models of pairs)", "Leave empty for a single text")
DEFAULT_METHODS = ("context_lrp", "calibrated_lrp", DEFAULT_METHOD, "mask_lrp", "attcat")


def describe(session: Session) -> dict[str, Any]:
    """Everything about the model that does not change while the server runs."""
    methods = [describe_method(session, method) for method in METHODS.values()]
    usable = {method["name"] for method in methods if method["available"] and not method["needs_heads"]}
    layers, heads = session.shape
    task = session.explainer.task
    form = form_of(task)
    return {
        "name": model_name(session.explainer.inner),
        "task": task.name,
        "asks": {
            "position": isinstance(task, Positioned),  # targets have a position
            "any_position": task.needs_position,  # ... which may be any word of the text
            "same_labels": task.compares_classes,  # a label that is selected for a text is kept for the next text
        },
        "layers": layers,
        "heads": heads,
        "labels": [name for _, name in sorted(task.labels.items())] or None,
        "form": asdict(form),
        "writes": task.generates,
        "chats": task.generates and bool(getattr(session.explainer.tokenizer, "chat_template", None)),
        "methods": methods,
        "default_methods": [name for name in default_methods(task) if name in usable],
        "masks": presets(session),
        "map": head_map(session),
        "limits": {"characters": CHARACTERS, "answer": ANSWER},
        "versions": library_versions(),
    }


def default_methods(task: Task) -> tuple[str, ...]:
    """Only one method for language models, where each method takes a backward pass for each token of an answer."""
    return (DEFAULT_METHOD,) if task.generates else DEFAULT_METHODS


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
        "group": METHOD_GROUPS.get(method.function.__module__.rsplit(".", 1)[-1], "Others"),
        "signed": method.signed,
        "class_specific": method.class_specific,
        "cost": method.cost,
        "slow": method.is_slow,
        "heads": takes_heads(method),
        "layers": has_layers(method),
        "available": available,
        "needs_heads": needs_heads,
        "reason": reason,
    }


def form_of(task: Task) -> Form:
    """The text fields of a task. They depend only on attributes of the task, so every registered task has a form."""
    sample, _ = task.sample
    if task.names_spans:
        example = ("Who wrote the book?", "The book was written by a young author in Paris, who later moved to London.")
        question, passage = Field("Question", "What do you want to know?"), Field("Context", "The text with the answer")
        return Form(question, passage, second_required=True, examples=(as_example(example),))
    if isinstance(sample, tuple):  # the model reads only pairs
        first, second = Field("First text", TEXT.placeholder), Field("Second text", TEXT.placeholder)
        return Form(first, second, second_required=True, examples=(as_example(sample),))
    if task.gap == "inside":
        mask = task.tokenizer.mask_token
        field = Field(f"Text with a gap ({mask})", f"The keys {mask} on the table.")
        return Form(field, examples=(as_example(f"The keys to the cabinet {mask} on the table."),))
    if task.generates:
        field = Field("Prompt", "The beginning of a text: the next token is explained")
        return Form(field, examples=(QUESTION_ABOUT_PASSAGES, as_example("The keys to the cabinet")))
    if task.needs_position:
        return Form(TEXT, examples=(as_example("Ada Lovelace was born in London."),))
    takes_second = task.reads_pairs and task.model.config.name_or_path != EMBEDDED  # which reads sentences
    examples = map(as_example, SENTENCES if task.compares_classes else [sample])
    return Form(TEXT, SECOND if takes_second else None, examples=tuple(examples))


def as_example(text: Text) -> Example:
    """The fields of the page for a text or pair."""
    return dict(zip(("text", "second"), parts(text), strict=False))
