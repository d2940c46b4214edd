"""What can be explained in each task, how people name it, and what they are told when they name it wrongly."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near, tolerance
from tests.tokenizers_ import LABELS, byte_bpe, explainer_for, metaspace_bpe, model_for, unigram, wordpiece
from tokenlight.tasks.labels import read_labels
from tokenlight.tasks.question_answering import answer_span, best_span
from tokenlight.tasks.targets import ResolvedTarget
from tokenlight.tasks.vocabulary import token_index

NEAR = tolerance(torch.float32, 5.0, operations=200)  # between two forward passes; logits are numbers up to 5
TEXT = "it is a good movie"
QUESTION, CONTEXT = "who wrote the book ?", "the book was written by a young author in Paris"


def logits_of(explainer: tl.Explainer, text: Any) -> Any:
    parts = text if isinstance(text, tuple) else (text,)
    with torch.no_grad():
        return explainer.model(**explainer.tokenizer(*parts, return_tensors="pt"))


# --- Sequence classification ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta", "gpt2", "llama"])
def test_the_predicted_label_is_explained_by_default(family):
    explainer = explainer_for(family)
    logits = logits_of(explainer, TEXT).logits[0]
    e = explainer.explain(TEXT)
    best = int(logits.argmax())
    assert e.target == e.prediction == LABELS[best]
    assert e.score == pytest.approx(float(logits[best]), abs=NEAR)
    assert e.probability == pytest.approx(float(logits.softmax(0)[best]), abs=NEAR)
    assert e.foil is None


@pytest.mark.parametrize("name", [2, "positive", "Positive", "POSITIVE", np.int64(2), "2"])
def test_a_label_by_index_or_by_name_in_any_case(name):
    explainer = explainer_for("bert")
    e = explainer.explain(TEXT, target=name)
    assert e.target == "positive"
    assert e.score == pytest.approx(float(logits_of(explainer, TEXT).logits[0, 2]), abs=NEAR)


@pytest.mark.parametrize("name", [3, -1, "3", "-1", "happy", "", True, 1.0, ("positive",)])
def test_an_unknown_label_is_named_and_the_known_are_listed(name):
    with pytest.raises(ValueError, match=r"0 \('negative'\), 1 \('neutral'\), 2 \('positive'\)") as caught:
        explainer_for("bert").explain(TEXT, target=name)
    assert repr(name) in str(caught.value)


def test_labels_that_differ_in_case_only_are_told_apart():
    explainer = explainer_for_labels({0: "US", 1: "us", 2: "Us"})
    assert explainer.explain(TEXT, target="us").target == "us"
    with pytest.raises(ValueError, match="no label 'uS'"):
        explainer.explain(TEXT, target="uS")


def explainer_for_labels(labels: dict[int, str]) -> tl.Explainer:
    model = copy.deepcopy(model_for("bert"))
    model.config.id2label = labels
    return tl.Explainer(model, wordpiece())


def test_a_foil_is_subtracted():
    explainer = explainer_for("bert")
    logits = logits_of(explainer, TEXT).logits[0]
    e = explainer.explain(TEXT, target="positive", foil="negative")
    assert (e.target, e.foil) == ("positive", "negative")
    assert e.score == pytest.approx(float(logits[2] - logits[0]), abs=NEAR)
    one, two = (explainer.explain(TEXT, target=t).scores for t in ("positive", "negative"))
    assert_near(e.scores, one - two)


@pytest.mark.parametrize("task", ["text-classification", "text-generation"])
def test_target_and_foil_must_differ(task):
    explainer = explainer_for("gpt2", task)
    same = "positive" if task == "text-classification" else " are"
    with pytest.raises(ValueError, match=f"both '{same}': there is nothing to compare"):
        explainer.explain(TEXT, target=same, foil=same)


def test_a_foil_that_the_model_predicts_is_noted():
    explainer = explainer_for("bert")
    predicted = explainer.explain(TEXT).prediction
    e = explainer.explain(TEXT, foil=predicted)
    assert e.score == 0
    assert any("predicts the foil" in note for note in e.notes)
    assert not any("predicts the foil" in note for note in explainer.explain(TEXT, foil=other(predicted)).notes)


def other(label: str) -> str:
    return next(name for name in LABELS.values() if name != label)


def test_a_regression_head_explains_its_number():
    explainer = explainer_for("bert", num_labels=1, problem_type="regression")
    value = float(logits_of(explainer, TEXT).logits[0, 0])
    e = explainer.explain(TEXT)
    assert e.score == pytest.approx(value, abs=NEAR)
    assert e.target == "LABEL_0"
    assert float(e.prediction) == pytest.approx(value, rel=1e-3)
    assert e.probability is None


def test_a_multi_label_head_explains_one_label():
    explainer = explainer_for("bert", problem_type="multi_label_classification")
    logits = logits_of(explainer, TEXT).logits[0]
    e = explainer.explain(TEXT, target="neutral")
    assert e.score == pytest.approx(float(logits[1]), abs=NEAR)
    assert e.probability == pytest.approx(float(logits.sigmoid().max()), abs=NEAR)


def test_names_for_only_some_outputs_are_refused():
    """`config.num_labels` counts names: with one name, three classes looked like the single number of a regression."""
    with pytest.raises(ValueError, match=r"3 outputs, and config.id2label has no name for 1, 2: name every output"):
        explainer_for_labels({0: "negative"})
    with pytest.raises(ValueError, match="no name for 1"):
        explainer_for_labels({0: "negative", 2: "positive", 3: "other"})


def test_names_that_changed_after_loading_are_refused_when_they_are_read():
    explainer = explainer_for_labels(dict(LABELS))
    explainer.model.config.id2label = {0: "negative"}
    with pytest.raises(ValueError, match="no name for 1, 2"):
        explainer.explain(TEXT)


def test_names_that_are_numbers_are_read_as_text_and_others_refused():
    explainer = explainer_for_labels({0: 1, 1: 2, 2: 3})  # type: ignore[dict-item]
    assert explainer.explain(TEXT, target="3").target == "3"
    assert explainer.task.index("3") == 2
    for labels in ({0: None, 1: "b", 2: "c"}, {"x": "a", 0: "a", 1: "b", 2: "c"}):
        with pytest.raises(ValueError, match="expected the index of an output and the name of its label"):
            explainer_for_labels(labels)  # type: ignore[arg-type]


def test_a_model_without_names_has_default_ones():
    explainer = explainer_for_labels({})
    assert explainer.explain(TEXT, target=2).target == "LABEL_2"


def test_numeric_names_win_over_indices_in_data_and_a_number_in_python_is_an_index():
    task = explainer_for_labels({0: "1", 1: "2", 2: "3"}).task
    assert [task.read_target(value) for value in (1, "1", 3, "3")] == [0, 0, 2, 2]
    assert [task.gold(value, ResolvedTarget()) for value in (1, "1")] == [0, 0]
    assert [task.index(value) for value in (1, "1", 2)] == [1, 0, 2]
    assert task.read_target(0) == task.read_target("0") == 0  # no label has this name
    with pytest.raises(ValueError, match="no label '4'"):
        task.read_target(4)


def test_minus_one_is_a_gold_label_only_where_a_label_has_this_name():
    signs = explainer_for_labels({0: "-1", 1: "0", 2: "1"}).task
    assert [signs.gold(value, ResolvedTarget()) for value in (-1, "-1", 0, 1)] == [0, 0, 1, 2]
    assert [explainer_for("bert").task.gold(value, ResolvedTarget()) for value in (-1, "-1", None)] == [None] * 3


@pytest.mark.parametrize("task", ["fill-mask", "text-generation", "question-answering"])
def test_a_number_in_data_is_the_text_that_it_is_written_as(task):
    found = explainer_for("gpt2" if task == "text-generation" else "bert", task).task
    assert (found.read_target(7), found.read_target("7"), found.read_target(None)) == ("7", "7", None)


def test_a_regression_with_several_outputs_has_no_softmax():
    explainer = explainer_for("bert", problem_type="regression")
    values = logits_of(explainer, TEXT).logits[0]
    e = explainer.explain(TEXT, target="positive")
    assert e.score == pytest.approx(float(values[2]), abs=NEAR)
    assert e.probability is None
    assert e.prediction == ", ".join(f"{name} {value:.4g}" for name, value in zip(LABELS.values(), values, strict=True))
    tokenized_text = explainer.encode([TEXT])[0]
    candidates = explainer.task.candidates(tokenized_text, {"logits": values[None].detach()}, ResolvedTarget())
    assert [(one.name, one.probability) for one in candidates] == [(name, None) for name in LABELS.values()]
    assert [one.value for one in candidates] == pytest.approx(values.tolist())
    with pytest.raises(ValueError, match="no probability to measure"):
        explainer.explain(TEXT).evaluate(["aopc"])


# --- Functions of the output ----------------------------------------------------------------------------------------


def certainty(output: Any) -> torch.Tensor:
    return output.logits.log_softmax(-1).amax(-1)


def test_a_function_of_the_output_is_explained():
    explainer = explainer_for("bert")
    e = explainer.explain(TEXT, target=certainty, method="gradient_x_input")
    assert e.target == "certainty"
    assert e.score == pytest.approx(float(certainty(logits_of(explainer, TEXT))[0]), abs=NEAR)
    assert e.prediction == explainer.explain(TEXT).prediction
    assert not torch.allclose(e.scores, explainer.explain(TEXT, method="gradient_x_input").scores)


FUNCTIONS = {
    "token-classification": (TEXT, lambda output: output.logits[:, 2, 1]),
    "fill-mask": ("it is [MASK] .", lambda output: output.logits[:, 2, 7]),
    "question-answering": ((QUESTION, CONTEXT), lambda output: output.start_logits[:, 8] * 2),
}


@pytest.mark.parametrize("task", FUNCTIONS)
def test_functions_work_in_every_task(task):
    text, function = FUNCTIONS[task]
    explainer = explainer_for("bert", task)
    e = explainer.explain(text, target=function, method="gradient_x_input")
    assert e.score == pytest.approx(float(function(logits_of(explainer, text))[0]), abs=NEAR)


def test_functions_work_on_token_ids_in_every_task():
    for task in ("token-classification", "fill-mask", "question-answering", "text-classification"):
        field = "start_logits" if task == "question-answering" else "logits"
        scores = tl.attribute(
            models.model("bert", task), models.ids(), method="attcat", target=lambda o, f=field: o[f].flatten(1)[:, -1]
        )
        assert scores.abs().max() > 0


def test_a_masked_text_without_a_mask_can_have_a_function():
    e = explainer_for("bert", "fill-mask").explain(TEXT, target=lambda output: output.logits[:, 2, 7])
    assert e.scores.abs().max() > 0


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda output: output.logits, r"\(1, 3\)"),
        (lambda output: output.logits.sum(), r"\(\)"),
        (lambda output: 3.0, "float"),
        (lambda output: None, "NoneType"),
    ],
)
def test_a_function_must_return_one_number_per_text(function, found):
    with pytest.raises(ValueError, match=rf"one number per text, shape \(1,\); found {found}"):
        explainer_for("bert").explain(TEXT, target=function)


def test_a_function_takes_the_foil_itself():
    with pytest.raises(ValueError, match="difference to a foil itself"):
        explainer_for("bert").explain(TEXT, target=certainty, foil="negative")


def test_one_function_for_all_texts():
    explainer = explainer_for("bert")
    assert len(explainer.explain([TEXT, TEXT + " ok"], target=[certainty, certainty])) == 2
    with pytest.raises(ValueError, match="for all texts at once"):
        explainer.explain([TEXT, TEXT], target=[certainty, "positive"])


def test_a_foil_cannot_be_a_function():
    with pytest.raises((ValueError, TypeError), match=r"foil|label"):
        explainer_for("bert").explain(TEXT, target="positive", foil=certainty)


# --- Lists of targets -----------------------------------------------------------------------------------------------


def test_each_text_has_its_own_target_and_foil():
    explainer = explainer_for("bert")
    texts = [TEXT, "they are not bad", "a book"]
    targets, foils = ["positive", 0, None], ["neutral", "positive", "neutral"]
    together = explainer.explain(texts, target=targets, foil=foils)
    for text, target, foil, e in zip(texts, targets, foils, together, strict=True):
        alone = explainer.explain(text, target=target, foil=foil)
        assert (e.target, e.foil) == (alone.target, alone.foil)
        assert_near(e.scores, alone.scores)


def test_some_texts_may_have_a_foil_and_others_none():
    explainer = explainer_for("bert")
    texts = [TEXT, "they are not bad"]
    with_foil, without = explainer.explain(texts, target="positive", foil=["neutral", None])
    assert (with_foil.foil, without.foil) == ("neutral", None)
    alone = explainer.explain(texts[0], target="positive", foil="neutral")
    assert with_foil.score == pytest.approx(alone.score, abs=NEAR)
    assert_near(with_foil.scores, alone.scores)
    plain = explainer.explain(texts[1], target="positive")
    assert without.score == pytest.approx(plain.score, abs=NEAR)
    assert_near(without.scores, plain.scores)


@pytest.mark.parametrize("name", ["target", "foil"])
def test_a_list_of_the_wrong_length_is_an_error(name):
    wrong: dict[str, Any] = {name: ["positive"] * 3}
    with pytest.raises(ValueError, match=f"{name} is a list of 3 for 2 texts"):
        explainer_for("bert").explain([TEXT, TEXT], **wrong)


# --- Next and masked tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_next_token_by_its_text(family):
    explainer = explainer_for(family, "text-generation")
    logits = logits_of(explainer, "The keys to the cabinet").logits[0, -1]
    e = explainer.explain("The keys to the cabinet", target=" are", foil=" is")
    are, is_ = (e_id(explainer, word) for word in ("are", "is"))
    assert e.score == pytest.approx(float(logits[are] - logits[is_]), abs=NEAR)
    assert (e.target.strip(), str(e.foil).strip()) == ("are", "is")


def e_id(explainer: tl.Explainer, word: str) -> int:
    vocabulary = explainer.tokenizer.get_vocab()
    return vocabulary.get("Ġ" + word, vocabulary.get("▁" + word))


def test_the_next_token_is_predicted_at_the_last_real_token_of_each_row():
    explainer = explainer_for("gpt2", "text-generation")
    texts = ["The keys to the cabinet", "they"]
    for e, text in zip(explainer.explain(texts), texts, strict=True):
        logits = logits_of(explainer, text).logits[0, -1]
        assert e.score == pytest.approx(float(logits.max()), abs=NEAR)
        assert e.prediction == explainer.tokenizer.decode([int(logits.argmax())])


@pytest.mark.parametrize(
    ("tokenizer", "text", "entry"),
    [
        (byte_bpe, " are", "Ġare"),
        (byte_bpe, "are", "are"),
        (byte_bpe, "Ġare", "Ġare"),
        (unigram, " are", "▁are"),
        (unigram, "are", "▁are"),
        (unigram, "▁are", "▁are"),
        (metaspace_bpe, " are", "▁are"),
        (wordpiece, "are", "are"),
        (wordpiece, " are", "are"),
        (wordpiece, "##able", "##able"),
        (wordpiece, "[UNK]", "[UNK]"),
    ],
)
def test_a_token_by_text_or_vocabulary_entry(tokenizer, text, entry):
    known = tokenizer()
    assert known.convert_ids_to_tokens(token_index(text, known, len(known))) == entry


@pytest.mark.parametrize("tokenizer", [byte_bpe, unigram, wordpiece])
def test_a_token_by_id(tokenizer):
    assert token_index(9, tokenizer(), len(tokenizer())) == 9
    assert token_index(np.int64(9), tokenizer(), len(tokenizer())) == 9


@pytest.mark.parametrize("token", ["zebra", "are is"])
def test_several_pieces_are_shown(token):
    with pytest.raises(ValueError, match=rf"'{token}' is not one token but \d+: \[.*Name a single token$"):
        explainer_for("bert", "fill-mask").explain("it is [MASK]", target=token)


def test_a_word_that_is_one_token_only_behind_a_blank_gets_a_hint():
    known = byte_bpe()
    assert len(known.encode(" cabinet")) == 1 < len(known.encode("cabinet"))
    with pytest.raises(ValueError, match="' cabinet' with a leading blank"):
        token_index("cabinet", known, len(known))
    with pytest.raises(ValueError, match=r"Name a single token$"):  # 'zebra' is several with a blank, too
        token_index("zebra", known, len(known))


@pytest.mark.parametrize("token", ["😀", ""])
def test_a_token_that_the_vocabulary_does_not_have_is_an_error(token):
    with pytest.raises(ValueError, match=r"not one token|not in the vocabulary"):
        explainer_for("bert", "fill-mask").explain("it is [MASK]", target=token)


@pytest.mark.parametrize("token", [-1, 10_000])
def test_a_token_id_outside_the_vocabulary(token):
    with pytest.raises(ValueError, match=f"token id {token} is outside the vocabulary of 355"):
        explainer_for("gpt2", "text-generation").explain(TEXT, target=token)


def test_a_masked_token():
    explainer = explainer_for("bert", "fill-mask")
    logits = logits_of(explainer, "it is [MASK] movie").logits[0, 3]
    e = explainer.explain("it is [MASK] movie", target="good", foil="bad")
    vocabulary = explainer.tokenizer.get_vocab()
    assert e.position == 3
    assert e.score == pytest.approx(float(logits[vocabulary["good"]] - logits[vocabulary["bad"]]), abs=NEAR)
    best = explainer.explain("it is [MASK] movie")
    assert best.score == pytest.approx(float(logits.max()), abs=NEAR)
    assert bool(e.special[3])


@pytest.mark.parametrize(("family", "mask"), [("bert", "[MASK]"), ("roberta", "<mask>"), ("xlm_roberta", "<mask>")])
def test_several_masks_need_a_position(family, mask):
    explainer = explainer_for(family, "fill-mask")
    text = f"{mask} is {mask}"
    with pytest.raises(ValueError, match=r"found 2 of them, at \[\d+, \d+\]: name one with target=\(position, token\)"):
        explainer.explain(text)
    masks = [i for i, token in enumerate(explainer.tokenizer(text)["input_ids"]) if token == mask_id(explainer)]
    e = explainer.explain(text, target=(masks[1], None))
    assert e.position == masks[1]
    assert e.score == pytest.approx(float(logits_of(explainer, text).logits[0, masks[1]].max()), abs=NEAR)


def mask_id(explainer: tl.Explainer) -> int:
    return explainer.tokenizer.mask_token_id


def test_no_mask_is_an_error_that_names_the_mask():
    with pytest.raises(ValueError, match=r"expected one \[MASK\] in the text, found none"):
        explainer_for("bert", "fill-mask").explain(TEXT)


# --- Token classification -------------------------------------------------------------------------------------------


def test_a_token_by_position_or_by_word():
    explainer = explainer_for("bert", "token-classification")
    logits = logits_of(explainer, TEXT).logits[0]
    by_position = explainer.explain(TEXT, target=(4, "neutral"))
    by_word = explainer.explain(TEXT, target=("good", "neutral"))
    assert by_position == by_word
    assert by_position.score == pytest.approx(float(logits[4, 1]), abs=NEAR)
    predicted = explainer.explain(TEXT, target=("good", None))
    assert predicted.score == pytest.approx(float(logits[4].max()), abs=NEAR)
    assert predicted.prediction == LABELS[int(logits[4].argmax())]


@pytest.mark.parametrize("word", ["unbelievable", "films"])
def test_the_first_piece_of_a_word_stands_for_it(word):
    explainer = explainer_for("roberta", "token-classification")
    e = explainer.explain("these unbelievable films", target=(word, 1))
    assert e.position is not None
    start = "these unbelievable films".index(word)
    assert e.spans[e.position][0] == start


@pytest.mark.parametrize(("word", "times"), [("movie", 2), ("zebra", 0), ("", 0)])
def test_a_word_must_stand_in_the_text_once(word, times):
    with pytest.raises(ValueError, match=f"'{word}' occurs {times} times in the text"):
        explainer_for("bert", "token-classification").explain("a movie is a movie", target=(word, 1))


def test_a_word_is_not_found_inside_another():
    explainer = explainer_for("bert", "token-classification")
    e = explainer.explain("this is good", target=("is", 1))
    assert e.tokens[e.position or 0] == "is"


@pytest.mark.parametrize("position", [99, -1, 2.5, True])
def test_a_position_outside_the_text(position):
    with pytest.raises(ValueError, match="tokens 0 to 6"):
        explainer_for("bert", "token-classification").explain(TEXT, target=(position, 1))


@pytest.mark.parametrize("target", [None, 1, "neutral", (1, 2, 3)])
def test_token_classification_needs_a_position(target):
    with pytest.raises(ValueError, match=r"has an output for every token: target=\(position, label\)"):
        explainer_for("bert", "token-classification").explain(TEXT, target=target)


# --- Extractive answers ---------------------------------------------------------------------------------------------


def qa() -> tl.Explainer:
    return explainer_for("bert", "question-answering")


def brute_force_span(start: torch.Tensor, end: torch.Tensor, first: int, last: int) -> tuple[int, int]:
    pairs = [(i, j) for i in range(first, last + 1) for j in range(i, min(last, i + 29) + 1)]
    return max(pairs, key=lambda pair: float(start[pair[0]] + end[pair[1]]))


def test_the_predicted_answer_lies_in_the_context():
    explainer = qa()
    output = logits_of(explainer, (QUESTION, CONTEXT))
    e = explainer.explain((QUESTION, CONTEXT))
    inside = [i for i, segment in enumerate(e.segments) if segment == 1]
    first, last = brute_force_span(output.start_logits[0], output.end_logits[0], inside[0], inside[-1])
    assert e.target == e.prediction == CONTEXT[e.spans[first][0] : e.spans[last][1]]
    assert e.score == pytest.approx(float(output.start_logits[0, first] + output.end_logits[0, last]), abs=NEAR)


@pytest.mark.parametrize("seed", range(20))
def test_best_span_equals_brute_force(seed):
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, 50, generator=generator)
    first, last = brute_force_span(start, end, 4, 47)
    assert best_span(start, end, (4, 48)) == (first, last + 1)


@pytest.mark.parametrize(("answer", "tokens"), [("a young author", 3), ("Paris", 1), ("the book", 2)])
def test_a_named_answer(answer, tokens):
    explainer = qa()
    e = explainer.explain((QUESTION, CONTEXT), target=answer)
    words = CONTEXT[: CONTEXT.index(answer)].split(" ")
    first = e.tokens.index("[SEP]") + len(words)
    output = logits_of(explainer, (QUESTION, CONTEXT))
    assert e.score == pytest.approx(
        float(output.start_logits[0, first] + output.end_logits[0, first + tokens - 1]), abs=NEAR
    )
    assert answer in e.target


def test_an_answer_by_token_indices():
    e = qa().explain((QUESTION, CONTEXT), target=(8, 10))
    assert e.target == "book was"


def test_an_answer_with_a_foil():
    explainer = qa()
    both = explainer.explain((QUESTION, CONTEXT), target="a young author", foil="Paris", method="gradient_x_input")
    one, two = (
        explainer.explain((QUESTION, CONTEXT), target=t, method="gradient_x_input") for t in ("a young author", "Paris")
    )
    assert (both.target, both.foil) == ("a young author", "Paris")
    assert both.score == pytest.approx(one.score - two.score, abs=NEAR)
    assert_near(both.scores, one.scores - two.scores)


def test_two_names_for_one_output_are_refused():
    with pytest.raises(ValueError, match="two names for output 0, 'a' and 'b'"):
        read_labels({"0": "a", "00": "b"}, 1)


def test_a_label_beyond_the_outputs_is_refused():
    model = copy.deepcopy(model_for("bert", "text-classification"))
    model.config.id2label = {**LABELS, 3: "more", 4: "most"}
    explainer = tl.Explainer(model, explainer_for("bert").tokenizer)
    task: Any = explainer.task
    assert task.gold(2, ResolvedTarget()) == 2
    for read in (
        lambda: task.gold("most", ResolvedTarget()),
        lambda: task.gold(4, ResolvedTarget()),
        lambda: task.index("most"),
    ):
        with pytest.raises(ValueError, match=r"'most' is output 4 in config.id2label, .* only 3 outputs"):
            read()


@pytest.mark.parametrize("answer", ["London", "paris", ""])
def test_an_answer_that_is_not_in_the_context(answer):
    with pytest.raises(ValueError, match=f"the answer '{answer}' is not in the context exactly as written"):
        qa().explain((QUESTION, CONTEXT), target=answer)


PARTY = "They left the party, part of the art was by art-lovers, and the art's art"


@pytest.mark.parametrize(
    ("answer", "context", "start"),
    [
        ("art", PARTY, PARTY.index("art was")),  # neither in 'party' nor in 'part'
        ("part", PARTY, PARTY.index("part of")),
        ("the art", "bathe artists, the art", 15),
        ("lovers", PARTY, PARTY.index("lovers")),  # behind a hyphen
        ("京", "東京 is good", 1),  # no blanks between words
        (" art ", "the party, the art is", 14),
    ],
)
def test_an_answer_is_found_as_a_whole_word(answer, context, start):
    explainer = qa()
    tokenized_text = explainer.encode([(QUESTION, context)])[0]
    first, stop = answer_span(tokenized_text, answer)
    words = (start, start + len(answer))
    assert words[0] <= tokenized_text.spans[first][0] <= words[0] + 1
    assert words[1] - 1 <= tokenized_text.spans[stop - 1][1] <= words[1]


@pytest.mark.parametrize("answer", ["art", "oung auth", "e book"])
def test_an_answer_only_inside_a_word_is_refused(answer):
    context = CONTEXT + " at the party"
    with pytest.raises(
        ValueError, match=rf"the answer '{answer}' is in the context only inside .*token after the last"
    ):
        qa().explain((QUESTION, context), target=answer)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((9, 8), ValueError, "ends after its first token"),
        ((9, 9), ValueError, "ends after its first token"),
        ((0, 99), ValueError, "99 does not follow a token of this text"),
        ((-1, 3), ValueError, "position -1 is not a token of this text"),
        (7, TypeError, "as text or as"),
    ],
)
def test_answers_that_cannot_be(answer, error, message):
    with pytest.raises(error, match=message):
        qa().explain((QUESTION, CONTEXT), target=answer)


def test_an_answer_that_was_cut_off():
    long = CONTEXT + " and the book" * 150 + " in London"
    with pytest.raises(ValueError, match="in a part of the context that did not fit"):
        qa().explain((QUESTION, long), target="London")


def test_target_and_foil_answers_must_differ():
    with pytest.raises(ValueError, match="nothing to compare"):
        qa().explain((QUESTION, CONTEXT), target="Paris", foil="Paris")


def test_question_answering_needs_a_pair():
    with pytest.raises(ValueError, match=r"explain\(\(question, context\)\)"):
        qa().explain(QUESTION)


def test_a_question_that_leaves_no_room():
    with pytest.raises(ValueError, match="shorten the question"):
        qa().explain(("the book " * 200, CONTEXT))


# --- Token ids without a tokenizer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "target", "message"),
    [
        ("text-classification", 3, "3 outputs, found 3"),
        ("text-classification", -1, "3 outputs, found -1"),
        ("text-classification", "positive", "index"),
        ("token-classification", (3, 5), "3 outputs, found 5"),
        ("token-classification", (9, 1), "position 9.*9 tokens"),
        ("token-classification", (-1, 1), "position -1.*9 tokens"),
        ("token-classification", 1, r"target=\(position, index\)"),
        ("question-answering", (2, 13), "position 12 in rows of 9 tokens"),
        ("question-answering", (4, 2), "ends after its first token"),
        ("question-answering", 2, "first token, token after the last"),
        ("question-answering", ("a", "b"), "first token, token after the last"),
        ("fill-mask", (3, 60), "60 outputs, found 60"),
    ],
)
def test_indices_that_do_not_exist(task, target, message):
    with pytest.raises(ValueError, match=message):
        tl.attribute(models.model("bert", task), models.ids(), method="attcat", target=target)


def test_a_foil_index_that_does_not_exist():
    with pytest.raises(ValueError, match="3 outputs, found 7"):
        tl.attribute(models.model("bert"), models.ids(), method="attcat", target=1, foil=7)


def test_a_position_on_padding_is_refused():
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 4:] = 0
    with pytest.raises(ValueError, match="position 5 of row 1 is padding"):
        tl.attribute(models.model("bert", "token-classification"), models.ids(), mask, method="attcat", target=(5, 1))


def test_targets_as_a_tensor_or_list():
    model, ids = models.model("bert"), models.ids()
    one = tl.attribute(model, ids, method="attcat", target=[0, 2, 1])
    assert torch.equal(one, tl.attribute(model, ids, method="attcat", target=torch.tensor([0, 2, 1])))
    for i, label in enumerate((0, 2, 1)):
        torch.testing.assert_close(one[i], tl.attribute(model, ids, method="attcat", target=label)[i])


def test_without_a_target_the_prediction_is_explained():
    model, ids = models.model("bert"), models.ids()
    best = model(ids).logits.argmax(-1)
    assert torch.equal(
        tl.attribute(model, ids, method="attcat"), tl.attribute(model, ids, method="attcat", target=best)
    )


def test_a_predicted_answer_never_lies_in_padding():
    model, ids = models.model("bert", "question-answering", torch.float64), models.ids(20, 4)
    padded = torch.cat([torch.ones(20, 30, dtype=torch.long), ids], 1)
    mask = (torch.arange(34) >= 30).long().expand(20, 34)
    alone = tl.attribute(model, ids, method="attcat")
    together = tl.attribute(model, padded, mask, method="attcat")
    torch.testing.assert_close(together[:, 30:], alone)


def test_some_rows_with_and_some_without_a_foil_are_refused_on_token_ids():
    with pytest.raises(ValueError, match="some rows have a foil"):
        tl.attribute(models.model("bert"), models.ids(), method="attcat", target=1, foil=[0, None, 2])


def test_an_answer_that_is_partly_cut_off_is_refused():
    whole = explainer_for("bert", "question-answering")
    tokenizer = copy.deepcopy(whole.tokenizer)
    tokenizer.model_max_length = 16
    cut = tl.Explainer(whole.model, tokenizer)
    with pytest.raises(ValueError, match="did not fit into the model"):
        cut.explain((QUESTION, CONTEXT), "gradient_x_input", target="a young author in Paris")
    assert cut.explain((QUESTION, CONTEXT), "gradient_x_input", target="the book was").target == "the book was"


def test_a_limit_that_leaves_no_token_of_a_text_is_refused():
    explainer = explainer_for("bert")
    tokenizer = copy.deepcopy(explainer.tokenizer)
    tokenizer.model_max_length = 2
    with pytest.raises(ValueError, match="no token of the text fits"):
        tl.Explainer(explainer.model, tokenizer).explain(TEXT, "gradient_x_input")


def test_minus_one_position_is_no_limit():
    explainer = explainer_for("bert")
    model = copy.deepcopy(explainer.model)
    model.config.max_position_embeddings = -1  # as XLNet writes it
    assert tl.Explainer(model, explainer.tokenizer).task.max_length != -1


def test_the_note_on_a_chat_that_is_cut_names_its_oldest_words():
    explainer = explainer_for("bert")
    tokenizer = copy.deepcopy(explainer.tokenizer)
    tokenizer.model_max_length = 12
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    chat = [{"role": "user", "content": "it is a good movie and they are not bad"}] * 2
    e = tl.Explainer(explainer.model, tokenizer).explain(chat, "gradient_x_input")
    assert any("its oldest" in note for note in e.notes)


# --- Resolved targets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "target", "message"),
    [
        ("text-classification", ResolvedTarget((1, 2), kind="continuation"), "have the kind 'index', found 'cont"),
        ("text-classification", ResolvedTarget((1, 2)), r"holds 0 or 1 numbers, found \(1, 2\)"),
        ("text-classification", ResolvedTarget((1,), (0, 2)), r"foil of .* found \(0, 2\)"),
        ("text-classification", ResolvedTarget((1,), (1,)), r"target and foil are both \(1,\)"),
        ("text-classification", ResolvedTarget((3,)), "3 outputs, found 3"),
        ("text-classification", ResolvedTarget((1,), position=2), "has no position, found 2"),
        ("text-classification", ResolvedTarget((1,), given=(5,)), r"has no given, found \(5,\)"),
        ("text-classification", ResolvedTarget((1,), parts=(0,)), r"has no parts, found \(0,\)"),
        ("text-classification", ResolvedTarget((1,), quantity=cast(Any, "probability")), "quantity must be one of"),
        ("text-classification", ResolvedTarget(kind="function", function=torch.sum), "pass a target function itself"),
        ("text-classification", ResolvedTarget((1,), function=torch.sum), "pass a target function itself"),
        ("token-classification", ResolvedTarget((1,)), "position None is not a token"),
        ("token-classification", ResolvedTarget((1,), position=99), "position 99 is not a token"),
        ("fill-mask", ResolvedTarget((5,), position=-1), "position -1 is not a token"),
        ("question-answering", ResolvedTarget((8, 9)), "have the kind 'span', found 'index'"),
        ("question-answering", ResolvedTarget((8,), kind="span"), r"holds 0 or 2 numbers, found \(8,\)"),
        ("question-answering", ResolvedTarget((8, 99), kind="span"), "position 99 is not a token"),
        ("question-answering", ResolvedTarget(kind="span", passage=(3, 99)), "position 98 is not a token"),
        ("text-generation", ResolvedTarget(kind="continuation"), r"holds 1 or more numbers, found \(\)"),
        ("text-generation", ResolvedTarget((5, 10**6), kind="continuation"), "found 1000000"),
        ("text-generation", ResolvedTarget((5,), given=(-1,)), "found -1"),
        ("text-generation", ResolvedTarget((5,) * 10_000, kind="continuation"), "shorten the prompt"),
    ],
)
def test_resolved_targets_that_do_not_fit_are_refused(task, target, message):
    explainer = explainer_for("gpt2" if task == "text-generation" else "bert", task)
    text = (QUESTION, CONTEXT) if task == "question-answering" else TEXT
    with pytest.raises(ValueError, match=message):
        explainer.explain(text, target=target)


@pytest.mark.parametrize(
    ("task", "name", "resolved"),
    [
        ("text-classification", "positive", ResolvedTarget((2,))),
        ("token-classification", (2, 1), ResolvedTarget((1,), position=2)),
        ("question-answering", (8, 10), ResolvedTarget((8, 9), kind="span")),
        ("text-generation", (5, 6), ResolvedTarget((5, 6), kind="continuation", quantity="log_probability")),
    ],
)
def test_a_resolved_target_is_explained_as_its_name_is(task, name, resolved):
    explainer = explainer_for("gpt2" if task == "text-generation" else "bert", task)
    text = (QUESTION, CONTEXT) if task == "question-answering" else TEXT
    by_name, by_index = (explainer.explain(text, target=target) for target in (name, resolved))
    assert by_index.score == by_name.score
    assert torch.equal(by_index.scores, by_name.scores)
