"""What methods say of themselves is true, and nobody else has to know their names."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenlight
import tokenlight as tl
from tests import models
from tokenlight.common.progress import on_forward_pass
from tokenlight.methods import METHODS, NO_RUNS, method
from tokenlight.model.instrumented import InstrumentedModel

WITHOUT_PASSES = [name for name, entry in METHODS.items() if entry.runs_model]
DRAWN_AGAIN = ("lime",)  # its random sets may be equal, and equal sets run once
PACKAGE = Path(tokenlight.__file__).parent


@pytest.mark.parametrize(("texts", "tokens"), [(1, 5), (1, 39), (3, 39), (40, 5)])
@pytest.mark.parametrize("name", WITHOUT_PASSES)
def test_methods_ask_as_often_as_they_say(name, texts, tokens, monkeypatch):
    entry, seen, run = METHODS[name], [], InstrumentedModel.run
    options: dict[str, Any] = {"steps": 35} if "steps" in entry.options else {}
    options |= {"units": "tokens"} if "units" in entry.options else {}
    model = models.model("bert")
    model = model if entry.fits(model) else models.model("gpt2", "text-generation")

    def watched(self: InstrumentedModel, batch: Any, capture: Any, *more: Any, **settings: Any) -> Any:
        seen.append((len(batch.input_ids), capture.spec.differentiable))
        return run(self, batch, capture, *more, **settings)

    monkeypatch.setattr(InstrumentedModel, "run", watched)
    count = 0

    def ring() -> None:
        nonlocal count
        count += 1

    with on_forward_pass(ring):
        tl.attribute(model, models.ids(texts, tokens), method=name, target=1, **options)
    full = {**entry.options, **options}
    if texts == 1:
        foreseen = 1 + entry.model_runs.passes(full, tokens)  # one pass for the prediction
        assert count == foreseen or (name in DRAWN_AGAIN and foreseen * 0.8 < count < foreseen)
    most, together = max(rows for rows, _ in seen), entry.model_runs.at_once(full, texts, tokens)
    assert most == together or ("ablations" in full and together / 4 < most < together)  # random sets may be the same
    assert any(differentiable for _, differentiable in seen) == entry.model_runs.gradient


def test_recorded_methods_do_not_ask_again():
    assert all(entry.model_runs is NO_RUNS for entry in METHODS.values() if entry.passes)
    assert [name for name, entry in METHODS.items() if entry.runs_on_changed_texts] == [
        *("integrated_gradients", "smooth_grad", "expected_gradients", "erasure", "shapley_sampling", "kernel_shap"),
        *("lime", "atman", "leave_one_out", "contextcite"),
    ]


def test_a_method_without_a_pass_has_to_say_how_it_asks():
    with pytest.raises(TypeError, match=r"Silent records no pass: state how it runs the model \(model_runs=ModelRuns"):
        method(title="Silent", paper="none", signed=True)(lambda probe: torch.zeros(1))
    assert "Silent" not in [entry.title for entry in METHODS.values()]


def test_controls_say_what_they_are():
    assert {name for name, entry in METHODS.items() if entry.control} == {"random", "erasure"}


def compared_names(path: Path) -> list[str]:
    """Names of methods that a file compares something with."""
    compares = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Compare)]
    constants = [leaf.value for node in compares for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
    return [value for value in constants if isinstance(value, str) and value in METHODS]


def test_nobody_asks_for_a_method_by_name():
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "methods"]
    assert {path.name: names for path in files if (names := compared_names(path))} == {}
