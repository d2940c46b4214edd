"""Errors in the caller's own metrics and methods: they are named with file and line, and no rows are lost silently."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight import methods, metrics
from tokenlight.bench import benchmark
from tokenlight.common.error_location import OWN_CODE, UNEXPECTED, own_code, reason_to_skip
from tokenlight.common.errors import UnsupportedModelError

TEXTS = [f"it is a good movie {'good ' * i}" for i in range(4)]
LONG = 9  # tokens: two of the texts have as many or more
METHOD = "gradient_x_input"
METRIC = """
from tokenlight.metrics import metric
from tokenlight.metrics.curves import PROBABILITY


@metric(title="Own", paper="", direction="higher", needs="removed", points=PROBABILITY)
def own_metric(curve{more}):
    {body}
    return float(curve.mean())
"""
SCORES = """
import torch
from tokenlight.methods import method


@method(title="Own scores", paper="", signed=True, needs=("embeddings",))
def own_scores(trace{more}):
    {body}
    return trace.embeddings.value.sum(-1)
"""
LINE = {METRIC: 8, SCORES: 8}  # of the body
# What a body may do wrong, with what its error is.
BUGS = {
    "raise ValueError('wrong size')": "ValueError: wrong size",
    "{}['missing']": "KeyError: 'missing'",
}


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    known: list[dict[str, Any]] = [metrics.METRICS, metrics.ALIASES, methods.METHODS, methods.ALIASES]
    before = [dict(one) for one in known]
    yield
    for one, entries in zip(known, before, strict=True):
        one.clear()
        one.update(entries)


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path) -> Write:
    """A module of the caller's own with this body, imported; its path."""

    def write(source: str, body: str, more: str = "") -> Path:
        path = tmp_path / "own.py"
        path.write_text(source.format(body=body, more=more))
        load(path)
        return path

    return write


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("own", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bench(
    folder: Path | None = None, texts: Any = TEXTS, method: str = METHOD, metric: str = "aopc", **more: Any
) -> Any:
    settings: dict[str, Any] = {"output": folder, "progress": False, "erasure": False, **more}
    return tl.benchmark(explainer_for("bert"), texts, [method], [metric], **settings)


@pytest.mark.parametrize("bug", BUGS)
def test_a_metric_that_fails_on_all_first_rows_ends_the_benchmark(bug, write, tmp_path):
    path = write(METRIC, bug)
    with pytest.raises(ValueError, match="your own code fails") as caught:
        bench(tmp_path / "out", metric="own_metric")
    message = str(caught.value)
    assert f"your own code fails on every row so far: {path}:{LINE[METRIC]} in own_metric (4 rows)" in message
    assert BUGS[bug] in message
    assert UNEXPECTED not in message
    assert caught.value.__cause__ is not None
    assert not (tmp_path / "out" / "results-00000.jsonl").exists()


def test_a_method_that_fails_on_all_first_rows_ends_every_run(write, tmp_path):
    path = write(SCORES, "torch.zeros(2) @ torch.zeros(3)")  # the last frame of the caller's own is the method's
    message = rf"your own code fails on every row so far: {path}:{LINE[SCORES]} in own_scores .*RuntimeError"
    with pytest.raises(ValueError, match=message):
        bench(method="own_scores")
    with pytest.raises(ValueError, match=message):
        tl.explain_dataset(explainer_for("bert"), TEXTS, tmp_path / "out", ["own_scores"], progress=False)
    assert not (tmp_path / "out").exists()


def test_rows_on_which_a_metric_fails_are_set_aside_and_counted(write, tmp_path):
    chances = [e.probability or 0.0 for e in explainer_for("bert").explain(TEXTS, METHOD)]
    third, second = sorted(chances)[-3:-1]
    path = write(METRIC, f"if float(curve[0]) > {(second + third) / 2}: raise ValueError('no')")
    with pytest.warns(RuntimeWarning) as caught:
        table = bench(tmp_path / "out", metric="own_metric")
    assert table.run.examples == 2
    assert table.run.ended
    assert [record["row"] for record in table.run.bad] == [i for i, one in enumerate(chances) if one > third]
    assert all(record["bad"].startswith(f"{OWN_CODE}{path}:") for record in table.run.bad)
    (message,) = {str(one.message) for one in caught if "own code" in str(one.message)}
    assert message.startswith("2 rows were set aside because your own code failed on them, 2 are measured: ")
    assert f"{path}:{LINE[METRIC]} in own_metric (2 rows). The first error: ValueError: no" in message


def failing_on_long_texts(write: Write) -> Path:
    return write(SCORES, f"if trace.mask.sum(1).max() >= {LONG}: raise ValueError('too long for me')")


def test_rows_on_which_a_method_fails_are_set_aside_and_counted(write, tmp_path):
    path = failing_on_long_texts(write)
    place = f"{path}:{LINE[SCORES]} in own_scores (2 rows). The first error: ValueError: too long for me"
    with pytest.warns(
        RuntimeWarning, match="2 rows were set aside because your own code failed on them, 2 are"
    ) as message:
        table = bench(method="own_scores")
    assert place in str(message[0].message)
    assert [record["row"] for record in table.run.bad] == [2, 3]
    with pytest.warns(
        RuntimeWarning, match="2 of 4 rows were set aside because your own code failed on them"
    ) as message:
        done = tl.explain_dataset(explainer_for("bert"), TEXTS, tmp_path / "out", ["own_scores"], progress=False)
    assert place in str(message[0].message)
    assert (done.explained, done.bad, done.in_own_code, done.unexpected) == (2, 2, 2, 0)
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out" / "bad_rows.jsonl").read_text().splitlines()]
    assert all(reason.startswith(f"{OWN_CODE}{path}:{LINE[SCORES]} in own_scores raised ") for reason in reasons)


def test_bad_rows_can_be_refused(write):
    failing_on_long_texts(write)
    with pytest.raises(ValueError, match=r"text 3: error in your own code, .* Correct your code, or skip bad rows"):
        bench(method="own_scores", bad_rows="refuse")


def test_the_first_call_may_be_in_a_later_part(write, monkeypatch, tmp_path):
    """Rows that are bad by themselves come first: the metric is not called for them."""
    monkeypatch.setattr(benchmark, "CHUNK_ROWS", 2)
    path = write(METRIC, "raise ValueError('no')")
    texts = ["", "", *TEXTS[:2]]
    with pytest.raises(
        ValueError, match=rf"your own code fails on every row so far: {path}:{LINE[METRIC]} in own_metric"
    ):
        bench(tmp_path / "out", texts=texts, metric="own_metric")


def test_a_run_that_goes_on_after_a_correction(write, tmp_path):
    write(METRIC, "raise ValueError('no')")
    with pytest.raises(ValueError, match="your own code"):
        bench(tmp_path / "out", metric="own_metric")
    write(METRIC, "pass")
    assert bench(tmp_path / "out", metric="own_metric").run.examples == len(TEXTS)


def test_a_metric_that_takes_other_arguments_is_named(write):
    """It fails before its first line, in a line of ours."""
    path = write(METRIC, "pass", ", and_more")
    with pytest.raises(ValueError, match=rf"{path}:6 in own_metric \(4 rows\).*own_metric\(\) missing 1 required"):
        bench(metric="own_metric")


def test_a_method_that_takes_other_arguments_is_named(write):
    path = write(SCORES, "pass", ", and_more")
    with pytest.raises(ValueError, match=rf"{path}:6 in own_scores \(4 rows\).*own_scores\(\) missing 1 required"):
        bench(method="own_scores")


def test_a_run_that_begins_with_results_and_has_none_of_its_own(write, tmp_path, monkeypatch):
    """As after a restart with a method that has changed."""
    from tokenlight.corpus import explain_dataset

    path = write(SCORES, "raise ValueError('no')")
    monkeypatch.setattr(explain_dataset, "explain_trial_rows", lambda plan, source: None)
    with pytest.raises(RuntimeError, match=rf"none of 4 rows could be explained: {OWN_CODE}{path}:{LINE[SCORES]}"):
        tl.explain_dataset(explainer_for("bert"), TEXTS, tmp_path / "out", ["own_scores"], progress=False)


# --- whose error it is -------------------------------------------------------------------------------------------


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("no error")


def test_errors_of_the_package_and_of_installed_packages_are_not_the_callers():
    import torch

    from tokenlight.common.samples import SAMPLE
    from tokenlight.text.segmentation import find_whole

    def reached(call: Callable[[], object]) -> Exception:
        """As a run of ours catches it: without the frames of this file."""
        error = error_of(call)
        assert error.__traceback__ is not None
        trace = error.__traceback__
        while trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        return error.with_traceback(trace)

    slip = reached(lambda: find_whole(SAMPLE, 7))  # type: ignore[arg-type]
    assert own_code(slip) is None
    assert reason_to_skip(slip).startswith(UNEXPECTED)
    assert own_code(reached(lambda: torch.nn.Linear(2, 2)(torch.zeros(3)))) is None
    assert own_code(reached(lambda: json.loads("{"))) is None
    # the package's own error, below a function of the caller's own: ours
    assert own_code(error_of(lambda: find_whole(SAMPLE, 7))) is None  # type: ignore[arg-type]


def refuse_model() -> None:
    raise UnsupportedModelError("no")


def test_a_refused_model_is_no_error_of_code():
    assert own_code(error_of(refuse_model)) is None
    assert own_code(error_of(lambda: tl.load("/no/such", task="no such task"))) is not None  # a wrong call


def test_where_code_is_the_callers(tmp_path):
    file = tmp_path / "site-packages" / "plugin.py"
    file.parent.mkdir()
    file.write_text("def fail():\n    raise ValueError('no')\n")
    error = error_of(load(file).fail)
    assert error.__traceback__ is not None
    assert own_code(error.with_traceback(error.__traceback__.tb_next)) is None
    for name, module, own in (("<stdin>", "__main__", True), ("<string>", "dataclasses", False), ("x.py", "x", True)):
        names: dict[str, Any] = {"__name__": module}
        exec(compile("def fail():\n    raise ValueError('no')\n", name, "exec"), names)
        error = error_of(names["fail"])
        assert error.__traceback__ is not None
        found = own_code(error.with_traceback(error.__traceback__.tb_next))
        assert found == (f"{name}:2 in fail" if own else None)


def test_a_neighbor_with_a_longer_name_is_not_the_package():
    from tokenlight.common import error_location

    neighbor = error_location.OURS.rstrip(os.sep) + "_metrics" + os.sep + "own.py"
    assert not neighbor.startswith(error_location.OURS)
