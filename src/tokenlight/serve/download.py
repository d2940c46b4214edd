"""Explanations as files."""

import json
from dataclasses import dataclass

from tokenlight.serve.checks import Refused
from tokenlight.serve.explaining import explain_methods
from tokenlight.serve.questions import DownloadAsked
from tokenlight.serve.session import Session, place
from tokenlight.serve.waiting_line import Say
from tokenlight.views import interactive, latex


@dataclass(frozen=True)
class File:
    """What the browser saves."""

    name: str
    kind: str
    text: str


def answer_download(session: Session, asked: DownloadAsked, say: Say) -> File:
    """All methods or no file: one that lacks some would be taken for the whole."""
    found = {one.method: one for one in explain_methods(session, asked, place(session, asked), say)}
    explanations = []
    for name in asked.methods:
        explanation = found[name].explanation
        if explanation is None:
            raise Refused(f"{name}: {found[name].error}")
        explanations.append(explanation)
    if asked.format == "html":
        return File("tokenlight.html", "text/html; charset=utf-8", interactive.report(explanations))
    if asked.format == "latex":
        return File("tokenlight.tex", "application/x-tex; charset=utf-8", latex.heatmaps(explanations))
    written = json.dumps([e.to_dict() for e in explanations], ensure_ascii=False, indent=1)
    return File("tokenlight.json", "application/json", written + "\n")
