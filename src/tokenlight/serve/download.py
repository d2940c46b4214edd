"""Explanations as files to download."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenlight.serve.explain import explain_answers, explain_methods
from tokenlight.serve.requests import DownloadRequest, Refused
from tokenlight.serve.session import Session, place
from tokenlight.serve.worker import SendEvent
from tokenlight.views import interactive, latex
from tokenlight.views.answer_page import answer_page


@dataclass(frozen=True)
class File:
    """A file that the browser saves."""

    name: str
    kind: str
    text: str


def make_download(session: Session, page_request: DownloadRequest, send_event: SendEvent) -> File:
    """A file with the results of all methods; if a method fails, there is no file, since it would be incomplete."""
    has_target = page_request.target is not None or page_request.foil is not None
    if page_request.answer is not None and not has_target and page_request.format != "latex":
        return download_answers(session, page_request, send_event)
    results = explain_methods(session, page_request, place(session, page_request), send_event)
    result_by_method = {result.method: result for result in results}
    explanations = []
    for name in page_request.methods:
        explanation = result_by_method[name].explanation
        if explanation is None:
            raise Refused(f"{name}: {result_by_method[name].error}")
        explanations.append(explanation)
    if page_request.format == "html":
        return html_file(interactive.report(explanations))
    if page_request.format == "latex":
        return File("tokenlight.tex", "application/x-tex; charset=utf-8", latex.heatmaps(explanations))
    return json_file(explanations)


def download_answers(session: Session, page_request: DownloadRequest, send_event: SendEvent) -> File:
    """A file with the explained answers, in which every part of an answer can be selected."""
    answers = []
    for result in explain_answers(session, page_request, send_event):
        if result.answer is None:
            raise Refused(f"{result.method}: {result.error}")
        answers.append(result.answer)
    return html_file(answer_page(answers[0])) if page_request.format == "html" else json_file(answers)


def html_file(text: str) -> File:
    return File("tokenlight.html", "text/html; charset=utf-8", text)


def json_file(results: Sequence[Any]) -> File:
    text = json.dumps([result.to_dict() for result in results], ensure_ascii=False, indent=1)
    return File("tokenlight.json", "application/json", text + "\n")
