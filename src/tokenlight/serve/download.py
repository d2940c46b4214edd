"""Explanations as files to download."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenlight.serve.explain import explain_answers, explain_methods
from tokenlight.serve.requests import DownloadRequest, Refused
from tokenlight.serve.session import Session, place
from tokenlight.serve.worker import Say
from tokenlight.views import interactive, latex
from tokenlight.views.answer_page import answer_page


@dataclass(frozen=True)
class File:
    """What the browser saves."""

    name: str
    kind: str
    text: str


def answer_download(session: Session, asked: DownloadRequest, say: Say) -> File:
    """All methods or no file: one that lacks some would be taken for the whole."""
    if asked.answer is not None and asked.target is None and asked.foil is None and asked.format != "latex":
        return download_answers(session, asked, say)
    found = {one.method: one for one in explain_methods(session, asked, place(session, asked), say)}
    explanations = []
    for name in asked.methods:
        explanation = found[name].explanation
        if explanation is None:
            raise Refused(f"{name}: {found[name].error}")
        explanations.append(explanation)
    if asked.format == "html":
        return html_file(interactive.report(explanations))
    if asked.format == "latex":
        return File("tokenlight.tex", "application/x-tex; charset=utf-8", latex.heatmaps(explanations))
    return json_file(explanations)


def download_answers(session: Session, asked: DownloadRequest, say: Say) -> File:
    """The answer with the reasons of all its tokens: every part of it can be chosen in the file, too."""
    answers = []
    for one in explain_answers(session, asked, say):
        if one.answer is None:
            raise Refused(f"{one.method}: {one.error}")
        answers.append(one.answer)
    return html_file(answer_page(answers[0])) if asked.format == "html" else json_file(answers)


def html_file(text: str) -> File:
    return File("tokenlight.html", "text/html; charset=utf-8", text)


def json_file(results: Sequence[Any]) -> File:
    written = json.dumps([one.to_dict() for one in results], ensure_ascii=False, indent=1)
    return File("tokenlight.json", "application/json", written + "\n")
