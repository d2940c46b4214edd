"""The batched evaluator against the model itself, one changed input at a time, in double precision."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import LABELS, explainer_for, tokenizer_for
from tokenlight.explain.external_scores import from_scores
from tokenlight.metrics import probability
from tokenlight.metrics.evaluate import draw_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import EvaluationOptions, log_probabilities
from tokenlight.tasks.targets import REMOVED, ChangedInput, ResolvedTarget, clip_ends

TEXTS = ["it is a good movie and they are not bad at all", "the key is here", "ok", "unbelievable films are rarely bad"]
PAIRS = [("the key is here", "it is a good movie"), ("who wrote the book ?", "the book was written by a young author")]
EACH = Perturbation(removal="delete", grid=None)  # token by token
TOKENS: dict[str, Any] = {"[PAD]": "pad", "<|endoftext|>": "pad", "[MASK]": "mask", "<mask>": "mask"}


def double(family: str, task: str = "text-classification", **settings: Any) -> tl.Explainer:
    explainer = explainer_for(family, task, **settings)
    return tl.Explainer(copy.deepcopy(explainer.model).double(), explainer.tokenizer)


def made(explainer: tl.Explainer, texts: Any, target: Any = None, foil: Any = None) -> list[tl.Explanation]:
    """Random scores, so that tokens are removed in a random order."""
    scores = [
        torch.rand(len(tokenized_text), generator=torch.Generator().manual_seed(len(tokenized_text)))
        for tokenized_text in explainer.encode(texts)
    ]
    return from_scores(explainer, texts, scores, target=target, foil=foil)


def one_at_a_time(
    explainer: tl.Explainer, e: tl.Explanation, removal: str, keep: str, read: Any, protected=()
) -> list[Any]:
    """For each number of tokens the model's own answer to the input that is left; `read(output, places)`, where
    places are the tokens that are left."""
    parts = e.text if isinstance(e.text, tuple) else (e.text,)
    encoded = {name: values[0] for name, values in explainer.tokenizer(*parts, return_tensors="pt").items()}
    free = [i for i in range(len(e.tokens)) if not e.special[i] and i not in protected]
    ranking = sorted(free, key=lambda i: -float(e.scores[i]))
    sets = [[]] + [ranking[:k] if keep == "rest" else ranking[k:] for k in range(1, len(ranking) + 1)]
    values = []
    for gone in sets:
        places = [i for i in range(len(e.tokens)) if removal != "delete" or i not in gone]
        inputs = {name: row[places][None] for name, row in encoded.items()}
        if removal != "delete":
            inputs["input_ids"][0, gone] = explainer.tokenizer.convert_tokens_to_ids(removal)
            if "roberta" in type(explainer.model).__name__.lower():  # or the padding token would move the others
                first = explainer.model.config.pad_token_id + 1
                inputs["position_ids"] = torch.arange(first, first + len(places))[None]
        if not places:  # what stands for nothing
            inputs = {"input_ids": torch.tensor([[explainer.tokenizer.eos_token_id]])}
        with torch.no_grad():
            values.append(float(read(explainer.model(**inputs), places)))
    return values


def check(explainer, texts, removal, keep, reader, protected=lambda e: (), **asked) -> None:
    perturbation = replace(EACH, removal=TOKENS.get(removal, "delete"), keep=keep)
    explanations = made(explainer, texts, **asked)
    found = draw_curves(explainer, explanations, perturbation, options=EvaluationOptions(tokens=40))
    for e, curve in zip(explanations, found, strict=True):
        expected = one_at_a_time(explainer, e, removal, keep, reader(e), protected(e))
        torch.testing.assert_close(curve.probabilities, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
        assert len(set(expected)) > 1 or len(expected) < 3


@pytest.mark.parametrize("keep", ["rest", "top"])
@pytest.mark.parametrize(
    ("family", "removal"),
    [
        *(("bert", "delete"), ("bert", "[PAD]"), ("bert", "[MASK]"), ("distilbert", "[PAD]"), ("electra", "delete")),
        *(("roberta", "delete"), ("roberta", "<|endoftext|>"), ("roberta", "<mask>")),
        *(("gpt2", "delete"), ("gpt2", "<mask>")),
    ],
)
def test_classification(family, removal, keep):
    explainer = double(family)
    check(explainer, TEXTS, removal, keep, lambda e: lambda out, places: out.logits[0].softmax(-1)[label(e)])


@pytest.mark.parametrize("removal", ["delete", "[MASK]"])
def test_another_class_than_the_predicted(removal):
    check(
        double("bert"), TEXTS, removal, "rest", lambda e: lambda out, p: out.logits[0].softmax(-1)[1], target="neutral"
    )


def test_a_foil_leaves_two_possibilities():
    def reader(e):
        return lambda out, places: out.logits[0, [2, 0]].softmax(-1)[0]

    check(double("bert"), TEXTS, "delete", "rest", reader, target="positive", foil="negative")


def test_several_labels_at_once():
    explainer = double("bert", problem_type="multi_label_classification", num_labels=3)
    check(explainer, TEXTS, "delete", "rest", lambda e: lambda out, p: out.logits[0, 1].sigmoid(), target=1)


@pytest.mark.parametrize("keep", ["rest", "top"])
@pytest.mark.parametrize("removal", ["delete", "[PAD]"])
def test_pairs_keep_their_types(removal, keep):
    explainer = double("bert")
    assert set(explainer.encode(PAIRS)[0].token_type_ids or ()) == {0, 1}
    check(explainer, PAIRS, removal, keep, lambda e: lambda out, places: out.logits[0].softmax(-1)[label(e)])


@pytest.mark.parametrize("keep", ["rest", "top"])
@pytest.mark.parametrize("removal", ["delete", "[MASK]"])
def test_a_masked_word_moves(removal, keep):
    explainer = double("bert", "fill-mask")
    texts = ["they are not bad at all and [MASK] is here", "[MASK] ok"]
    where = [e.tokens.index("[MASK]") for e in made(explainer, texts)]
    assert where == [8, 1]

    def reader(e):
        token = explainer.tokenizer.convert_tokens_to_ids("key")
        return lambda out, places: out.logits[0, places.index(e.position)].softmax(-1)[token]

    check(explainer, texts, removal, keep, reader, target="key")


@pytest.mark.parametrize("removal", ["delete", "[MASK]"])
def test_the_labeled_token_stays(removal):
    explainer = double("bert", "token-classification")

    def reader(e):
        return lambda out, places: out.logits[0, places.index(2)].softmax(-1)[1]

    check(explainer, TEXTS[:2], removal, "rest", reader, lambda e: (2,), target=(2, 1))


@pytest.mark.parametrize("keep", ["rest", "top"])
def test_the_next_word(keep):
    explainer = double("gpt2", "text-generation")
    token = explainer.tokenizer.encode(" are")[0]
    check(
        explainer, TEXTS, "delete", keep, lambda e: lambda out, places: out.logits[0, -1].softmax(-1)[token],
        target=" are",
    )  # fmt: skip


def test_a_continuation_of_several_tokens():
    explainer = double("gpt2", "text-generation")
    ids = explainer.tokenizer.encode(" is here and")
    assert len(ids) > 2
    explanations = made(explainer, TEXTS)
    curves = draw_curves(explainer, explanations, EACH, target=" is here and")
    again = draw_curves(explainer, explanations, EACH, target=tuple(ids))
    for e, curve, same in zip(explanations, curves, again, strict=True):
        whole = explainer.tokenizer.encode(e.text)
        ranking = sorted(range(len(whole)), key=lambda i: -float(e.scores[i]))
        expected = []
        for k in range(len(whole) + 1):
            left = [whole[i] for i in sorted(ranking[k:])] or [explainer.tokenizer.eos_token_id]
            with torch.no_grad():
                logits = explainer.model(torch.tensor([left + ids])).logits[0]
            chances = logits.softmax(-1)
            product = torch.stack([chances[len(left) - 1 + j, token] for j, token in enumerate(ids)]).prod()
            expected.append(float(product))
        products = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(curve.log_probabilities.exp(), products, rtol=1e-9, atol=0)
        torch.testing.assert_close(curve.probabilities, products ** (1 / len(ids)), rtol=1e-9, atol=0)
        torch.testing.assert_close(curve.probabilities, same.probabilities)


@pytest.mark.parametrize("keep", ["rest", "top"])
@pytest.mark.parametrize("removal", ["delete", "[MASK]"])
def test_an_answer_moves_shrinks_and_is_lost(removal, keep):
    explainer = double("bert", "question-answering")
    answer = "a young author"
    first, last = 12, 14

    def reader(e):
        assert e.tokens[first : last + 1] == answer.split()

        def read(out, places):
            left = [new for new, old in enumerate(places) if first <= old <= last]
            if not left:
                return 0.0
            return out.start_logits[0].softmax(-1)[left[0]] * out.end_logits[0].softmax(-1)[left[-1]]

        return read

    check(explainer, PAIRS[1:], removal, keep, reader, target=answer)


def label(e: tl.Explanation) -> int:
    return {name: i for i, name in LABELS.items()}[e.target]


def test_ends_of_a_span_without_some_tokens():
    assert clip_ends((2, 4), (0, 1, 2, 3, 4, 5)) == (2, 4)
    assert clip_ends((2, 4), (0, 3, 5)) == (1, 1)
    assert clip_ends((2, 4), (0, 5)) == REMOVED


# --- One at a time or together, with padding or without -------------------------------------------------------------

FAMILIES = ["bert", "roberta", "xlm_roberta", "distilbert", "electra", "gpt2", "opt", "llama", "gpt_neox", "qwen2"]


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_inputs_are_what_the_model_says(family):
    task = "text-classification" if family in FAMILIES[:5] else "text-generation"
    explainer = explainer_for(family, task)
    explanations = explainer.explain(TEXTS, "random")
    for e, curve in zip(explanations, draw_curves(explainer, explanations), strict=True):
        assert float(curve.probabilities[0]) == pytest.approx(e.probability, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("pad", [True, False])
def test_a_decoder_classifier_with_and_without_padding(pad):
    explainer = double("gpt2")
    if not pad:
        explainer.model.config.pad_token_id = None
    explanations = made(explainer, TEXTS)
    together, alone = (draw_curves(explainer, explanations, options=EvaluationOptions(tokens)) for tokens in (4096, 1))
    for one, two in zip(together, alone, strict=True):
        torch.testing.assert_close(one.probabilities, two.probabilities, rtol=0, atol=1e-12)


def test_equal_inputs_are_asked_once(monkeypatch):
    explainer = explainer_for("bert")
    seen: list[ChangedInput] = []
    make_batch = probability.make_batch
    monkeypatch.setattr(
        probability,
        "make_batch",
        lambda ex, instrumented, some: seen.extend(some) or make_batch(ex, instrumented, some),
    )
    e = explainer.explain(TEXTS[0], "raw_attention")
    same = explainer.explain(TEXTS[0], "rollout")
    draw_curves(explainer, [e, e, same])
    assert len(seen) == len(set(seen)) <= 1 + 10 + 10 - 1  # the whole input and the empty one are shared


def test_batches_keep_to_their_budget(monkeypatch):
    explainer = explainer_for("bert")
    sizes: list[tuple[int, int]] = []
    make = probability.make_batch

    def spy(*args: Any) -> Any:
        batch = make(*args)
        rows, width = batch.input_ids.shape
        sizes.append((rows, width))
        return batch

    monkeypatch.setattr(probability, "make_batch", spy)
    draw_curves(explainer, made(explainer, TEXTS), Perturbation(removal="delete"), options=EvaluationOptions(tokens=50))
    assert all(rows * width <= 50 for rows, width in sizes)
    assert max(rows for rows, width in sizes) > 3
    assert [width for rows, width in sizes] == sorted(width for rows, width in sizes)


def test_modes_of_the_caller_change_nothing():
    explainer = double("bert")
    explanations = made(explainer, TEXTS)
    expected = [curve.probabilities for curve in draw_curves(explainer, explanations)]
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        again = [curve.probabilities for curve in draw_curves(explainer, explanations)]
    for one, two in zip(expected, again, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


def test_a_number_has_no_probability():
    explainer = explainer_for("bert", num_labels=1, problem_type="regression")
    with pytest.raises(tl.UnsupportedModelError, match="no probability"):
        draw_curves(explainer, explainer.explain(TEXTS, "random"))


def test_nothing_can_stand_for_an_empty_text():
    tokenizer = copy.deepcopy(tokenizer_for("gpt2"))
    tokenizer.eos_token = None
    explainer = tl.Explainer(explainer_for("gpt2", "text-generation").model, tokenizer)
    with pytest.raises(ValueError, match="no token for an empty text"):
        draw_curves(explainer, explainer.explain(TEXTS, "random"))


def test_broken_weights_are_named():
    explainer = double("bert")
    model: Any = explainer.model
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    question = ChangedInput((2, 10, 3), (2, 10, 3), None, ResolvedTarget((0,)))
    with pytest.raises(ValueError, match="not finite"):
        log_probabilities(explainer, [question])
    with pytest.raises(ValueError, match="1 or more"):
        log_probabilities(explainer, [question], EvaluationOptions(tokens=0))
