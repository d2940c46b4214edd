"""What comes out is known before anything runs: one text gives one result, a list gives a list.

`assert_type` does nothing here; it is pyright that fails where a type is another one.
"""

from typing import Any, assert_type, get_overloads, get_type_hints

import pytest

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.explain.external_scores import from_scores
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.results.explanation import Explanation

ONE, PAIR = "the key is here", ("the key", "is here")


def test_explain():
    explainer = explainer_for("bert")
    assert isinstance(assert_type(explainer.explain(ONE), Explanation), Explanation)
    assert isinstance(
        assert_type(explainer.explain(PAIR, target=1, steps=3, method="integrated_gradients"), Explanation), Explanation
    )
    assert len(assert_type(explainer.explain([ONE, ONE], target=["negative", None]), list[Explanation])) == 2
    assert len(assert_type(explainer.explain([PAIR]), list[Explanation])) == 1
    assert len(assert_type(explainer.explain([ONE, PAIR]), list[Explanation])) == 2


def test_explain_all():
    explainer = explainer_for("bert")
    single = assert_type(explainer.explain_all(ONE, ["attcat"]), dict[str, Explanation])
    several = assert_type(explainer.explain_all([ONE], ["attcat"]), dict[str, list[Explanation]])
    assert several == {"attcat": [single["attcat"]]}


def test_explain_jobs():
    explainer, method_configs = explainer_for("bert"), {"it": MethodConfig(METHODS["attcat"], {})}
    single = assert_type(explainer.explain_configs(ONE, method_configs), dict[str, Explanation])
    several = assert_type(explainer.explain_configs([ONE], method_configs), dict[str, list[Explanation]])
    assert several == {"it": [single["it"]]}


def test_from_scores():
    explainer = explainer_for("bert")
    scores = [0.1] * len(explainer.encode([ONE])[0])
    single = assert_type(from_scores(explainer, ONE, scores), Explanation)
    assert assert_type(from_scores(explainer, [ONE], [scores]), list[Explanation]) == [single]


@pytest.mark.parametrize(
    "function", [tl.Explainer.explain, tl.Explainer.explain_all, tl.Explainer.explain_configs, from_scores]
)
def test_nothing_is_anything(function):
    assert len(get_overloads(function)) == 2
    for one in (*get_overloads(function), function, tl.Explainer.__init__, tl.attribute, tl.evaluate):
        hints = get_type_hints(one)
        assert "return" in hints
        assert Any not in hints.values()
