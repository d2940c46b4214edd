"""The gallery: a page for each method, made from METHODS, docs/methods.md and the model inside the package."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import tokenlight as tl
from tokenlight.common.samples import SENTENCES
from tokenlight.methods import METHODS, Method
from tokenlight.serve.describe import METHOD_GROUPS
from website.heatmaps import explainer, heatmap

SECTIONS = re.compile(r"^### (?P<title>.+)\n(?P<body>(?:(?!^##).*\n?)*)", re.MULTILINE)
CODE = re.compile(r"`(\w+)`")
LINK = re.compile(r"\]\((?![a-z]+:)(?P<target>[^)]+)\)")
CONTROL = "random"
TEXT = "A charming, often affecting journey."
PROGRAM = """import tokenlight as tl

explainer = {load}
explainer.explain({text}, "{name}"{more}).show()"""
FOR_LANGUAGE_MODELS = (
    "It measures the probability of an answer while parts of the prompt are deleted, so it needs a language model. The "
    "model inside the package is a classifier: "
    "[the tour](../tour/index.md#5-a-language-models-answer) shows it on a language model."
)
FOR_RELUS = (
    "It is defined at ReLUs, so it needs a model whose activations are ReLUs, such as OPT. The model "
    "inside the package has others."
)


def gallery_pages(docs: Path) -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    formulas = sections((docs / "methods.md").read_text(encoding="utf-8"))
    fitting = [name for name, method in METHODS.items() if method.fits(explainer().inner)]
    explanations = explainer().explain_all(SENTENCES, fitting, progress=False)
    pages = {f"gallery/{name}.md": page(METHODS[name], explanations.get(name), formulas) for name in METHODS}
    return {"gallery/index.md": overview(explanations), **pages}


def kind_of(method: Method) -> str:
    return METHOD_GROUPS[method.function.__module__.rsplit(".", 1)[-1]]


def methods_by_kind() -> Iterator[tuple[str, list[Method]]]:
    """Methods by kind, in the order of METHOD_GROUPS."""
    order = list(dict.fromkeys(METHOD_GROUPS.values()))
    ordered = sorted(METHODS.values(), key=lambda method: order.index(kind_of(method)))
    for kind, members in groupby(ordered, kind_of):
        yield kind, list(members)


def sections(methods_page: str) -> dict[str, str]:
    """Method -> its section of docs/methods.md. A heading may name two methods."""
    bodies = {}
    for section in SECTIONS.finditer(methods_page):
        body = LINK.sub(lambda link: f"]({from_gallery(link['target'])})", section["body"]).strip()
        bodies |= dict.fromkeys(CODE.findall(section["title"]), body)
    return bodies


def from_gallery(target: str) -> str:
    return f"../methods.md{target}" if target.startswith("#") else f"../{target}"


def overview(explanations: Mapping[str, Sequence[tl.Explanation]]) -> str:
    lines = [
        "# Gallery of methods",
        "",
        f"{len(METHODS)} methods. Each has a page of its own with its formula, its options, and its scores on three "
        "texts. Every heatmap was computed when this site was built, by the "
        "small sentiment model inside the package.",
        "",
        "How to choose among them: [Which method?](../how-to/which-method.md)",
        "",
    ]
    for kind, members in methods_by_kind():
        lines += [f"## {kind}", ""]
        for method in members:
            lines += [f"### [{method.title}]({method.name}.md)", "", f"`{method.name}` · {method.summary}", ""]
            if method.name in explanations:
                lines += [heatmap([explanations[method.name][-1]], names=False), ""]
    return "\n".join(lines)


def page(method: Method, explained: Sequence[tl.Explanation] | None, formulas: Mapping[str, str]) -> str:
    return "\n\n".join(
        [
            f"# {method.title}",
            f"{method.summary}",
            facts(method),
            "## On three texts",
            examples(explained) if explained else why_none(method),
            "## Call it",
            call(method),
            "## Options",
            options(method),
            "## Formula, sources and limits",
            formulas.get(method.name) or inspect.getdoc(method.function) or method.summary,
            "Signs and symbols are explained under [Notation](../methods.md#notation); full references are under "
            "[Papers](../methods.md#papers).",
        ]
    )


def facts(method: Method) -> str:
    signed = "yes: words can support or oppose the target" if method.signed else "no: scores are sizes, at least 0"
    specific = "yes" if method.class_specific else "no: every label of a text gets the same scores"
    rows = {
        "Name in code": f"`{method.name}`",
        "Kind": kind_of(method),
        "Paper": method.paper if method.name != CONTROL else "none: it is the control for all others",
        "Signed": signed,
        "Depends on the target": specific,
        "Cost": method.cost,
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def examples(explained: Sequence[tl.Explanation]) -> str:
    notes = dict.fromkeys(note for explanation in explained for note in explanation.notes)
    return "\n\n".join(
        [
            *(heatmap([explanation], names=False) for explanation in explained),
            "Blue words support the target, orange words oppose it. Shades are relative to the strongest word of "
            "each text; point at a word to see its score.",
            *(f"*Note of the library:* {note}" for note in notes),
        ]
    )


def why_none(method: Method) -> str:
    """Why the model inside the package has no example."""
    return FOR_LANGUAGE_MODELS if method.runs_model else FOR_RELUS


def call(method: Method) -> str:
    return f"```python\n{program(method)}\n```"


def program(method: Method) -> str:
    """A program that calls the method."""
    if method.fits(explainer().inner):
        return PROGRAM.format(load="tl.load()  # or your own model", text=f'"{TEXT}"', name=method.name, more="")
    if not method.runs_model:
        load = 'tl.load("path/to/a/model/with/relus")'
        return PROGRAM.format(load=load, text=f'"{TEXT}"', name=method.name, more="")
    load = 'tl.load("path/to/a/language/model")'
    return PROGRAM.format(load=load, text="prompt", name=method.name, more=", target=answer")


def options(method: Method) -> str:
    if not method.options:
        return "None."
    rows = [f"| `{name}` | `{default!r}` |" for name, default in method.options.items()]
    return "\n".join(["| option | default |", "|---|---|", *rows]) + "\n\nThey are explained below."
