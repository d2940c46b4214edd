"""What depends on the model or the batch alone is done once for each explanation."""

import copy
from typing import Any

import pytest
from torch import Tensor

import tokenlight as tl
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks import labels
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

TEXT = "it is a good movie"


def named(names: dict[Any, Any]) -> tl.Explainer:
    model = copy.deepcopy(model_for("bert"))
    explainer = tl.Explainer(model, tokenizer_for("bert"))
    model.config.id2label = names
    return explainer


def test_labels_are_looked_up_one_by_one(monkeypatch):
    explainer = named({0: "bad", 1: "so so", 2: "good"})
    monkeypatch.setattr(labels, "read_labels", None)  # all names are not read
    found = explainer.explain([TEXT, "they are not bad"], "gradient_x_input")
    assert all(e.target == e.prediction and e.target in ("bad", "so so", "good") for e in found)
    assert explainer.task.name_of(2) == "good"


def test_names_in_other_spellings_are_read_as_before():
    assert [named({"0": "a", "1": "b", "2": "c"}).task.name_of(i) for i in range(3)] == ["a", "b", "c"]
    assert [named({0: 7, 1: 8, 2: 9}).task.name_of(i) for i in range(3)] == ["7", "8", "9"]
    assert [named({}).task.name_of(i) for i in range(3)] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    with pytest.raises(ValueError, match="two names for output 1"):
        named({0: "a", 1: "b", 2: "c", "1": "d"}).task.name_of(1)
    with pytest.raises(ValueError, match="no name for 1"):
        named({0: "a", 2: "c"}).task.name_of(1)


@pytest.mark.parametrize("options", [{}, {"contexts": 4}])
def test_a_batch_is_copied_once(options, monkeypatch):
    """So that tensors of the caller's, which may be made in inference mode, are never part of a graph."""
    copied: list[Batch] = []
    real = Batch.map

    def counting(self: Batch, change: Any) -> Batch:
        if change is Tensor.clone:
            copied.append(self)
        return real(self, change)

    explainer = explainer_for("bert")
    explainer.explain(TEXT, "attn_lrp", **options)
    monkeypatch.setattr(Batch, "map", counting)
    explainer.explain(TEXT, "attn_lrp", **options)
    assert len(copied) == 1


def test_a_plan_without_methods_gives_the_models_answer():
    """As the page asks before anything is explained."""
    explainer = explainer_for("bert")
    (tokenized_text,) = explainer.encode([TEXT])
    plan = plan_passes(BatchTarget(explainer.task, (ResolvedTarget(),)), [])
    answer, found = execute_plan(InstrumentedModel(explainer.model), explainer.collate([tokenized_text]), plan)
    assert found == []
    assert float(answer.score[0]) == explainer.explain(TEXT, "gradient_x_input").score
