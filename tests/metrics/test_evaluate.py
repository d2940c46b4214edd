"""The entry point: every metric from a list of explanations, what was explained found again, helpful errors."""

import ast
import copy
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import LABELS, explainer_for
from tokenlight.explain.external_scores import from_scores
from tokenlight.metrics import METRICS, curves, find_metric, metrics_between, probability
from tokenlight.metrics.evaluate import DEFAULT_METRICS, Measure, draw_curves, evaluate
from tokenlight.metrics.perturbation import BINS, TENTHS, Perturbation

TEXTS = ["it is a good movie and they are not bad at all", "the key is here", "unbelievable films are rarely bad"]
QUESTION = ("who wrote the book ?", "the book was written by a young author in Paris and the book is good")


def double() -> tl.Explainer:
    """Precise enough that numbers from different batches can be compared."""
    explainer = explainer_for("bert")
    return tl.Explainer(copy.deepcopy(explainer.model).double(), explainer.tokenizer)


def test_every_entry_says_what_it_is():
    assert set(DEFAULT_METRICS) <= set(METRICS)
    for name, entry in METRICS.items():
        assert entry.name == name
        assert entry.title
        assert entry.paper
        assert entry.summary.endswith(".")
        assert entry.direction in ("higher", "lower")
        assert entry.kind in ("perturbation", "evidence", "agreement")
        assert (entry.perturbation.keep == "top") is (entry.needs == "kept")
        assert find_metric(entry.title.upper()) is find_metric(name) is entry
    assert {n for n, e in METRICS.items() if e.direction == "lower"} == {
        *("log_odds", "sufficiency", "deletion", "kendall_confidence", "rise", "mas"),
    }


@pytest.mark.parametrize("name", ["aopc", "log_odds", "comprehensiveness", "sufficiency"])
def test_a_metric_is_the_mean_of_its_points(name):
    curve = torch.tensor([0.9, 0.7, 0.4, 0.0], dtype=torch.float64)
    entry = METRICS[name]
    axis, points = entry.at_points(curve.expand(2, 3, 4), {})
    points = points if entry.needs == "kept" else points[..., 1:]  # where the whole input is the first point
    assert axis == ("ln(p_k / p)" if name == "log_odds" else "p − p_k")
    assert points.shape == (2, 3, 3)
    assert points.mean(-1).flatten().tolist() == pytest.approx([entry.function(curve)] * 6)


def test_points_take_the_options_that_concern_them():
    curve = torch.tensor([0.5, 0.0], dtype=torch.float64)
    assert METRICS["log_odds"].at_points(curve, {"floor": 0.25})[1].tolist() == pytest.approx([0.0, -log(2)])
    assert METRICS["comprehensiveness"].at_points(curve, {"envelope": True})[1].tolist() == [0.0, 0.5]
    grown = torch.tensor([0.9, 0.1, 0.5], dtype=torch.float64)
    assert METRICS["insertion"].at_points(grown, {}) == ("probability", pytest.approx([0.1, 0.5]))


def test_titles_hold_the_number_that_belongs_to_them():
    resolved = {"recall_at_k": "Recall@20", "precision_at_k": "Precision@20", "pointing_game": "PG-2"}
    assert {name: METRICS[name].title_with({}) for name in resolved} == resolved
    assert METRICS["pointing_game"].title_with({"k": 1, "ties": "first"}) == "PG-1"
    assert METRICS["jaccard_top"].title_with({}) == METRICS["jaccard_top"].title
    assert METRICS["jaccard_top"].title_with({"share": 0.5}) == "Jaccard-50%"
    assert METRICS["aopc"].title_with({"absolute": True}) == "AOPC"


def test_an_entry_without_its_facts_is_refused():
    assert metrics_between("models") == ("jaccard_top", "spearman")
    assert metrics_between("classes") == ("kendall_confidence",)
    with pytest.raises(TypeError, match=r"every perturbation metric needs points=.* aopc \(perturbation\) has none"):
        replace(METRICS["aopc"], points=None)
    with pytest.raises(TypeError, match=r"every agreement metric needs compares=.* aopc .* has 'models'"):
        replace(METRICS["aopc"], compares="models")


def test_only_metrics_know_metrics_by_name():
    """Whoever wants to know something about a metric asks its entry."""
    package = Path(tl.__file__).parent
    outside = [path for path in package.rglob("*.py") if path.parent.name != "metrics"]
    assert len(outside) > 50
    comparisons = [
        (path.name, node.value)
        for path in outside
        for compare in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(compare, ast.Compare)
        for node in ast.walk(compare)
        if isinstance(node, ast.Constant) and node.value in METRICS
    ]
    assert comparisons == []


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(ValueError, match=r"no metric 'aopcc'\. Did you mean 'aopc'\? Metrics: .*spearman"):
        find_metric("aopcc")
    with pytest.raises(TypeError, match="name of a metric"):
        find_metric(3)  # type: ignore[arg-type]


# --- Numbers -----------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_curves():
    explainer = double()
    explanations = explainer.explain(TEXTS, "attn_lrp")
    found = evaluate(explainer, explanations, (*DEFAULT_METRICS, "deletion", "insertion"))
    removed, binned, top, grown = (
        draw_curves(explainer, explanations, perturbation)
        for perturbation in (
            Perturbation(grid=TENTHS),
            Perturbation(grid=BINS),
            Perturbation(grid=BINS, keep="top"),
            Perturbation(grid=TENTHS, keep="top", empty=True),
        )
    )
    for i, values in enumerate(found):
        expected = {
            "aopc": curves.aopc(removed[i].probabilities),
            "log_odds": curves.log_odds(removed[i].probabilities),
            "comprehensiveness": curves.comprehensiveness(binned[i].probabilities),
            "sufficiency": curves.sufficiency(top[i].probabilities),
            "deletion": curves.area(removed[i].probabilities, removed[i].shares),
            "insertion": curves.area(grown[i].probabilities[1:], grown[i].shares[1:]),
        }
        assert values == pytest.approx(expected, abs=1e-12)
        assert len(removed[i].probabilities) == 11
        assert removed[i].perturbation.removal == explainer.tokenizer.mask_token_id
        # Everything gone is nothing kept, and everything kept is the whole input.
        assert float(removed[i].probabilities[-1]) == pytest.approx(float(grown[i].probabilities[1]))
        assert float(removed[i].probabilities[0]) == pytest.approx(float(grown[i].probabilities[-1]))


def test_measures_are_pure_configuration():
    """AttCAT deletes for AOPC and pads for LOdds: two measures of one list."""
    explainer = double()
    explanations = explainer.explain(TEXTS, "attn_lrp")
    delete = Perturbation(removal="delete", rounding="half_even", share_of="all", distinct=True, skip_last=True)
    pad = replace(delete, removal="pad")
    found = evaluate(
        explainer,
        explanations,
        [
            Measure("aopc", delete, {"absolute": True}),
            Measure("aopc", pad, name="aopc_pad"),
            Measure("LOdds", pad),
            Measure("sufficiency", replace(pad, empty=True, keep="top"), {"envelope": True, "plus_one": True}),
        ],
    )
    for i, values in enumerate(found):
        one, two = (draw_curves(explainer, explanations, p)[i].probabilities for p in (delete, pad))
        assert list(values) == ["aopc", "aopc_pad", "log_odds", "sufficiency"]
        assert values["aopc"] == pytest.approx(curves.aopc(one, absolute=True))
        assert values["aopc_pad"] == pytest.approx(curves.aopc(two))
        assert values["log_odds"] == pytest.approx(curves.log_odds(two))
        top = draw_curves(explainer, explanations, replace(pad, empty=True, keep="top"))[i].probabilities
        highest = [max(top[1 : k + 1].tolist()) for k in range(2, len(top))]  # from the empty input on, not counted
        expected = sum(float(top[0]) - value for value in highest) / (len(highest) + 1)
        assert values["sufficiency"] == pytest.approx(expected)


def test_a_perturbation_for_all_is_turned_for_each():
    measure = Measure("insertion", Perturbation(grid=None))
    assert measure.resolved_perturbation == Perturbation(grid=None, keep="top", empty=True)
    assert Measure("aopc", Perturbation(keep="top", empty=True)).resolved_perturbation == Perturbation()
    assert Measure("sufficiency", Perturbation()).resolved_perturbation == Perturbation(keep="top")
    explainer = explainer_for("bert")
    explanations = explainer.explain(TEXTS, "random")
    whole = evaluate(
        explainer, explanations, ["aopc", "comprehensiveness"], perturbation=Perturbation(removal="delete")
    )
    assert all(one["aopc"] == pytest.approx(one["comprehensiveness"]) for one in whole)


def test_model_calls_are_shared(monkeypatch):
    explainer = explainer_for("bert")
    explanations = [e for group in explainer.explain_all(TEXTS, ["attn_lrp", "attcat"]).values() for e in group]
    seen: list[Any] = []
    make_batch = probability.make_batch
    monkeypatch.setattr(
        probability,
        "make_batch",
        lambda ex, instrumented, some: seen.extend(some) or make_batch(ex, instrumented, some),
    )
    evaluate(explainer, explanations, ("aopc", "log_odds", "deletion"))
    shared = len(seen)
    assert shared <= sum(2 * min(10, int((~e.special).sum())) for e in explanations[:3])
    evaluate(explainer, explanations, ("aopc",))
    assert len(seen) == 2 * shared


def test_evidence_and_agreement_leave_special_tokens_out():
    explainer = explainer_for("bert")
    e, other = explainer.explain("the key is here", "attn_lrp"), explainer.explain("the key is here", "attcat")
    e = replace(e, scores=torch.tensor([9.0, 0.1, 0.5, -0.1, -0.2, 8.0]))
    other = replace(other, scores=torch.tensor([-9.0, 0.1, 0.5, -0.1, -0.2, -8.0]))
    marks = torch.tensor([False, False, True, False, False, False])
    names = ("pointing_game", "mean_reciprocal_rank", "relevance_mass", "per_token_accuracy", "precision_at_k")
    names += ("recall_at_k", "spearman", "kendall_confidence", "jaccard_top")
    (words,) = evaluate(explainer, [e], names, marks=[marks], others=[other])
    assert words["pointing_game"] == words["mean_reciprocal_rank"] == words["precision_at_k"] == 1
    assert words["relevance_mass"] == pytest.approx(0.5 / 0.6)
    assert words["per_token_accuracy"] == 3 / 4
    assert words["spearman"] == words["kendall_confidence"] == words["jaccard_top"] == pytest.approx(1)
    measures = [Measure(name, eligible="all") for name in names]
    (every,) = evaluate(explainer, [e], measures, marks=[marks], others=[other.scores])
    assert every["pointing_game"] == 0
    assert every["mean_reciprocal_rank"] == 1 / 3
    assert every["per_token_accuracy"] == 3 / 6
    assert every["spearman"] < 0


# --- What was explained ------------------------------------------------------------------------------------------


def explained_probability(explainer: tl.Explainer, e: tl.Explanation, **asked: Any) -> float:
    return float(draw_curves(explainer, [e], **asked)[0].probabilities[0])


@pytest.mark.parametrize("label", [None, *LABELS.values()])
def test_the_explained_class_is_measured(label):
    explainer = explainer_for("bert")
    e = explainer.explain(TEXTS[0], "random", target=label)
    logits = logits_of(explainer, TEXTS[0])
    index = int(logits.argmax()) if label is None else list(LABELS.values()).index(label)
    assert explained_probability(explainer, e) == pytest.approx(float(logits.softmax(0)[index]), rel=1e-5)
    assert explained_probability(explainer, e, target="neutral") == pytest.approx(float(logits.softmax(0)[1]), rel=1e-5)


def logits_of(explainer: tl.Explainer, text: str) -> torch.Tensor:
    with torch.no_grad():
        return explainer.model(**explainer.tokenizer(text, return_tensors="pt")).logits[0]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_token_is_found_again_by_its_name(family):
    explainer = explainer_for(family, "text-generation")
    predicted = explainer.explain(TEXTS[0], "random")
    assert explained_probability(explainer, predicted) == pytest.approx(predicted.probability, rel=1e-4)
    e = explainer.explain(TEXTS[0], "random", target=" are", foil=" is")
    logits = logits_of(explainer, TEXTS[0])[-1]
    one, two = (explainer.task.index(name) for name in (" are", " is"))
    expected = float((logits[one] - logits[two]).sigmoid())
    assert explained_probability(explainer, e) == pytest.approx(expected, rel=1e-4)
    assert explained_probability(explainer, e, target=" are", foil=" is") == pytest.approx(expected, rel=1e-4)


def test_what_was_explained_is_measured_even_where_names_collide():
    """'▁a' and 'a' are both written 'a'."""
    explainer = explainer_for("xlm_roberta", "fill-mask")
    text = "it is <mask> good movie"
    e = explainer.explain(text, "random", target="▁a", foil="▁are")
    assert e.target == "a"
    ids = explainer.tokenizer.convert_tokens_to_ids(["▁a", "▁are"])
    expected = float(logits_of(explainer, text)[e.position, ids].softmax(0)[0])
    assert explained_probability(explainer, e) == pytest.approx(expected, rel=1e-4)
    assert explained_probability(explainer, e, target="▁a", foil="▁are") == pytest.approx(expected, rel=1e-4)
    predicted = explainer.explain(text, "random")
    assert explained_probability(explainer, predicted) == pytest.approx(predicted.probability, rel=1e-4)


def test_an_answer_is_measured_where_it_was_explained():
    """Two answers of the same words are two answers."""
    explainer = explainer_for("bert", "question-answering")
    with torch.no_grad():
        output = explainer.model(**explainer.tokenizer(*QUESTION, return_tensors="pt"))
    start, end = output.start_logits[0].softmax(0), output.end_logits[0].softmax(0)
    tokenized_text = explainer.encode([QUESTION])[0]
    places = [i for i, token in enumerate(tokenized_text.tokens) if token == "book" and tokenized_text.segments[i] == 1]
    assert len(places) == 2
    for last in places:
        e = explainer.explain(QUESTION, "random", target=(last - 1, last + 1))
        assert e.target == "the book"
        assert explained_probability(explainer, e) == pytest.approx(float(start[last - 1] * end[last]), rel=1e-4)
    predicted = explainer.explain(QUESTION, "random")
    assert explained_probability(explainer, predicted) == pytest.approx(predicted.probability, rel=1e-4)


def test_a_function_of_the_output_has_no_probability():
    explainer = double()
    e = explainer.explain(TEXTS[0], "random", target=lambda output: output.logits[:, 0])
    with pytest.raises(ValueError, match="was a function of the output"):
        explained_probability(explainer, e)


def test_a_masked_word_is_found_again():
    explainer = explainer_for("bert", "fill-mask")
    e = explainer.explain("the key [MASK] here", "random", target="is")
    logits = logits_of(explainer, "the key [MASK] here")[3]
    token = explainer.tokenizer.convert_tokens_to_ids("is")
    assert explained_probability(explainer, e) == pytest.approx(float(logits.softmax(0)[token]), rel=1e-4)


def test_a_continuation_has_no_foil_and_must_fit():
    explainer = explainer_for("gpt2", "text-generation")
    e = explainer.explain(TEXTS[0], "random")
    with pytest.raises(ValueError, match="leave the foil out"):
        draw_curves(explainer, [e], target=" is here and", foil=" are")
    with pytest.raises(ValueError, match="the model reads 300"):
        draw_curves(explainer, [e], target=" is here and" * 120)
    with pytest.raises(ValueError, match="needs a target"):
        draw_curves(explainer, [e], foil=" are")


# --- Scores from outside -----------------------------------------------------------------------------------------


def test_scores_from_outside_are_evaluated_alike():
    explainer = double()
    own = explainer.explain(TEXTS, "attn_lrp", target="positive")
    outside = from_scores(explainer, TEXTS, [e.scores.numpy() for e in own], target="positive", method="captum")
    for one, two in zip(evaluate(explainer, outside), evaluate(explainer, own), strict=True):
        assert one == pytest.approx(two, abs=1e-12)
    for one, two in zip(outside, own, strict=True):
        assert (one.method, one.options, one.notes, one.signed) == ("captum", {}, (), True)
        assert (one.tokens, one.target, one.prediction) == (two.tokens, two.target, two.prediction)
        assert torch.equal(one.scores, two.scores)
        assert one.score == pytest.approx(two.score)
    single = from_scores(explainer, TEXTS[0], own[0].scores.tolist())
    assert isinstance(single, tl.Explanation)
    assert single.target == explainer.explain(TEXTS[0], "random").target


@pytest.mark.parametrize("scores", [[0.1] * 5, [0.1] * 5 + [float("nan")], [[0.1] * 6]])
def test_scores_that_do_not_fit_are_refused(scores):
    with pytest.raises(ValueError, match=r"expected 6 finite scores, for the tokens \['\[CLS\]', 'the'"):
        from_scores(explainer_for("bert"), "the key is here", scores)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (None, "one for each token of a text; found NoneType"),
        (["a"] * 6, "one for each token of a text; found list"),
        ([None] * 6, "one for each token of a text; found list"),
        ([1j] * 6, "scores are real numbers; found torch.complex64"),
    ],
)
def test_scores_that_are_no_numbers_are_refused(scores, message):
    with pytest.raises(TypeError, match=message):
        from_scores(explainer_for("bert"), "the key is here", scores)


def test_scores_without_a_sign_are_not_negative():
    with pytest.raises(ValueError, match="signed=False says that no score is negative"):
        from_scores(explainer_for("bert"), "the key is here", [-0.1] * 6, signed=False)
    assert not from_scores(explainer_for("bert"), "the key is here", [0.1] * 6, signed=False).signed
    with pytest.raises(TypeError, match="method is a name for these scores, found int"):
        from_scores(explainer_for("bert"), "the key is here", [0.1] * 6, method=3)  # type: ignore[call-overload]


def test_each_text_needs_its_scores():
    with pytest.raises(ValueError, match="1 rows of scores for 3 texts"):
        from_scores(explainer_for("bert"), TEXTS, [[0.1]])


# --- Errors ------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named():
    explainer = explainer_for("bert")
    explanations = explainer.explain(TEXTS, "random")
    with pytest.raises(ValueError, match="pointing_game, relevance_mass needs marks="):
        evaluate(explainer, explanations, ["pointing_game", "aopc", "relevance_mass"])
    with pytest.raises(ValueError, match="spearman needs others="):
        evaluate(explainer, explanations, ["spearman"])
    with pytest.raises(ValueError, match="1 marks for 3 explanations"):
        evaluate(explainer, explanations, ["pointing_game"], marks=[torch.ones(3)])
    with pytest.raises(ValueError, match="at least one metric"):
        evaluate(explainer, explanations, [])
    with pytest.raises(ValueError, match="aopc is requested twice"):
        evaluate(explainer, explanations, ["aopc", "AOPC"])
    with pytest.raises(ValueError, match="list of at least one explanation"):
        evaluate(explainer, explanations[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="list of at least one explanation"):
        evaluate(explainer, [])


def test_options_are_checked():
    with pytest.raises(TypeError, match="'aopc' has no option k; its options: absolute"):
        Measure("aopc", options={"k": 3})
    with pytest.raises(TypeError, match="'deletion' has no option at; its options: none"):
        Measure("deletion", options={"at": None})
    with pytest.raises(TypeError, match="changes no input"):
        Measure("spearman", Perturbation())
    with pytest.raises(TypeError, match=r"tl.Perturbation, such as Perturbation\(removal='mask'\); found 'mask'"):
        Measure("aopc", "mask")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"set eligible in its perturbation, Perturbation\(eligible='all'\)"):
        Measure("aopc", eligible="all")
    with pytest.raises(ValueError, match="units='words' has no effect"):
        Measure("spearman", eligible="all", units="words")
    with pytest.raises(ValueError, match="found 'special'"):
        Measure("spearman", eligible="special")  # type: ignore[arg-type]


@pytest.mark.parametrize("units", [None, "words"])
def test_marks_are_true_or_false_whatever_is_compared(units):
    explainer = explainer_for("bert")
    e = explainer.explain("the key is here", "random")
    with pytest.raises(ValueError, match="True or False for each of the 6 tokens, found"):
        e.evaluate(["pointing_game"], marks=torch.tensor([0, 0.2, 0, 0, 0, 0]), units=units)


def test_what_is_no_explanation_is_said():
    explainer = explainer_for("bert")
    e = explainer.explain("the key is here", "random")
    with pytest.raises(TypeError, match="expected explanations, found str"):
        evaluate(explainer, {"random": e})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="list of at least one explanation"):
        evaluate(explainer, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="metrics is a list of names"):
        evaluate(explainer, [e], None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="spearman: others has one value for each token; found str"):
        e.evaluate(["spearman"], others="abc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a batch has, 1 or more; found 'a'"):
        evaluate(explainer, [e], tokens="a")  # type: ignore[arg-type]


def test_a_special_token_is_no_evidence_unless_all_count():
    explainer = explainer_for("bert")
    e = explainer.explain("the key is here", "attn_lrp")
    marks = torch.tensor([True] + [False] * 5)
    with pytest.raises(ValueError, match="special token is marked"):
        evaluate(explainer, [e], ["pointing_game"], marks=[marks])
    evaluate(explainer, [e], [Measure("pointing_game", eligible="all")], marks=[marks])


def test_explanations_of_another_model_or_text_are_refused():
    bert, gpt2 = explainer_for("bert"), explainer_for("gpt2")
    e = gpt2.explain(TEXTS[0], "random")
    with pytest.raises(ValueError, match="evaluate it with the model that was explained"):
        evaluate(bert, [e])
    one, two = bert.explain(TEXTS[:2], "random")
    with pytest.raises(ValueError, match="of the same text"):
        evaluate(bert, [one], ["spearman"], others=[two])
    with pytest.raises(ValueError, match="6 values for a text of 14 tokens"):
        evaluate(bert, [one], ["spearman"], others=[two.scores])


def test_the_model_is_untouched():
    explainer = double()
    before = copy.deepcopy(explainer.model.state_dict())
    explainer.model.train()
    explanations = explainer.explain(TEXTS, "random")
    first, second = (evaluate(explainer, explanations)[0] for _ in range(2))
    assert explainer.model.training
    assert first == pytest.approx(second, abs=1e-12)  # no dropout
    after = explainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(module._forward_hooks for module in explainer.model.modules())
