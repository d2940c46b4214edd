"""The walks of docs/how-it-works.md are what runs: functions in this order, in files of that name."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokenlight as tl
from tests.house.plan import PACKAGE, ROOT
from tests.serving import in_process
from tests.tokenizers_ import explainer_for

PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\d+\. `([\w/]+\.py):([\w.]+)`: ", re.MULTILINE)
TEXT = "A charming journey."


def steps(heading: str) -> list[tuple[str, str]]:
    """Files and functions under a heading of the page."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    return STEP.findall(section)


def calls_of(function: Callable[[], object]) -> list[tuple[str, str]]:
    """Files and functions of the package that a call runs, in order, in this thread and in those that it starts."""
    calls: list[tuple[str, str]] = []
    prefix = f"{PACKAGE}/"

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            calls.append((code.co_filename.removeprefix(prefix), code.co_qualname))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return calls


@pytest.fixture(scope="module")
def classifier() -> tl.Explainer:
    return tl.load()


def explain_text(classifier: tl.Explainer, folder: Path) -> None:
    classifier.explain(TEXT, "attn_lrp")


def explain_answer(classifier: tl.Explainer, folder: Path) -> None:
    explainer = explainer_for("gpt2", "text-generation")
    explainer.explain_answer("The keys to the cabinet", " are on the table", "attn_lrp", progress=False)


def benchmark(classifier: tl.Explainer, folder: Path) -> None:
    data = folder / "data.tsv"
    data.write_text(f"sentence\tlabel\n{TEXT}\t1\nA dull film.\t0\n", encoding="utf-8")
    tl.benchmark(classifier, data, methods=["attn_lrp"], metrics=["aopc"], output=folder / "results", progress=False)


def click(classifier: tl.Explainer, folder: Path) -> None:
    with in_process(classifier) as client:
        answered = client.post("/api/explain", json={"text": TEXT, "methods": ["attn_lrp"]})
    assert answered.status_code == 200


def explain_by_steps(classifier: tl.Explainer, folder: Path) -> None:
    classifier.explain(TEXT, "attn_lrp", fused=False)


WALKS = {
    "A text": explain_text,
    "An answer": explain_answer,
    "A benchmark run": benchmark,
    "A click on the page": click,
    "The softmax of AttnLRP": explain_by_steps,
}


@pytest.mark.parametrize("heading", WALKS)
def test_functions_of_a_walk_run_in_its_order(heading, classifier, tmp_path):
    expected = steps(heading)
    assert len(expected) > 5
    calls = iter(calls_of(lambda: WALKS[heading](classifier, tmp_path)))
    first_missing = next((step for step in expected if step not in calls), None)  # `in` consumes calls up to the step
    assert first_missing is None
