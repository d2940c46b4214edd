"""The gallery: a page for each method, made from METHODS, docs/methods.md and the model inside the package."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import tokenlight as tl
from tokenlight.common.samples import SENTENCES
from tokenlight.methods import METHODS, Method
from tokenlight.serve.describe import SCHOOLS
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
    "It asks how likely an answer stays while parts of the prompt are deleted, so it needs a language model. The model "
    "inside the package is a classifier and has no answer to ask about: "
    "[the tour](../tour/index.md#5-a-language-models-answer) shows it on a language model."
)
FOR_RELUS = (
    "It is defined by what it does at ReLUs, so it needs a model whose activations are ReLUs, such as OPT. The model "
    "inside the package has others."
)


def gallery_pages(docs: Path) -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    formulas = sections((docs / "methods.md").read_text(encoding="utf-8"))
    fitting = [name for name, method in METHODS.items() if method.fits(explainer().inner)]
    found = explainer().explain_all(SENTENCES, fitting, progress=False)
    pages = {f"gallery/{name}.md": page(METHODS[name], found.get(name), formulas) for name in METHODS}
    return {"gallery/index.md": overview(found), **pages}


def school_of(method: Method) -> str:
    return SCHOOLS[method.function.__module__.rsplit(".", 1)[-1]]


def schools() -> Iterator[tuple[str, list[Method]]]:
    """Methods by school, in the order of SCHOOLS."""
    order = list(dict.fromkeys(SCHOOLS.values()))
    ordered = sorted(METHODS.values(), key=lambda method: order.index(school_of(method)))
    for school, members in groupby(ordered, school_of):
        yield school, list(members)


def sections(methods_page: str) -> dict[str, str]:
    """Method -> what docs/methods.md says about it. A heading may name two methods."""
    found = {}
    for section in SECTIONS.finditer(methods_page):
        body = LINK.sub(lambda link: f"]({from_gallery(link['target'])})", section["body"]).strip()
        found |= dict.fromkeys(CODE.findall(section["title"]), body)
    return found


def from_gallery(target: str) -> str:
    return f"../methods.md{target}" if target.startswith("#") else f"../{target}"


def overview(found: Mapping[str, Sequence[tl.Explanation]]) -> str:
    lines = [
        "# Gallery of methods",
        "",
        f"{len(METHODS)} ways of asking which tokens mattered. Each has a page of its own with its formula, its "
        "options, and what it says about three texts. Every heatmap was computed when this site was built, by the "
        "small sentiment model inside the package.",
        "",
        "How to choose among them: [Which method?](../how-to/which-method.md)",
        "",
    ]
    for school, members in schools():
        lines += [f"## {school}", ""]
        for method in members:
            lines += [f"### [{method.title}]({method.name}.md)", "", f"`{method.name}` · {method.summary}", ""]
            if method.name in found:
                lines += [heatmap([found[method.name][-1]], names=False), ""]
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
        "School": school_of(method),
        "Paper": method.paper if method.name != CONTROL else "none: it is the control for all others",
        "Signed": signed,
        "Depends on the target": specific,
        "Cost": method.cost,
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def examples(explained: Sequence[tl.Explanation]) -> str:
    notes = dict.fromkeys(note for one in explained for note in one.notes)
    return "\n\n".join(
        [
            *(heatmap([one], names=False) for one in explained),
            "Blue supports what the model says, orange speaks against it. Shades are relative to the strongest word of "
            "each text; point at a word to see its score.",
            *(f"*Note of the library:* {note}" for note in notes),
        ]
    )


def why_none(method: Method) -> str:
    """Why the model inside the package has no example."""
    return FOR_LANGUAGE_MODELS if method.asks_model else FOR_RELUS


def call(method: Method) -> str:
    return f"```python\n{program(method)}\n```"


def program(method: Method) -> str:
    """How to call it, in a few lines that run."""
    if method.fits(explainer().inner):
        return PROGRAM.format(load="tl.load()  # or your own model", text=f'"{TEXT}"', name=method.name, more="")
    if not method.asks_model:
        load = 'tl.load("path/to/a/model/with/relus")'
        return PROGRAM.format(load=load, text=f'"{TEXT}"', name=method.name, more="")
    load = 'tl.load("path/to/a/language/model")'
    return PROGRAM.format(load=load, text="prompt", name=method.name, more=", target=answer")


def options(method: Method) -> str:
    if not method.options:
        return "None."
    rows = [f"| `{name}` | `{default!r}` |" for name, default in method.options.items()]
    return "\n".join(["| option | default |", "|---|---|", *rows]) + "\n\nWhat they mean is said below."
