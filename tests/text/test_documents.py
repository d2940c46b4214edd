"""Sources of a prompt, and scores that add up to theirs."""

import json

import numpy as np
import pytest
import torch

from tests.tokenizers_ import explainer_for
from tokenlight.text.documents import Document, find_documents
from tokenlight.text.tokenized_text import Chat

PROMPT = "The keys are here. It is a good movie.\n\nwho wrote the book ?"
CHAT = Chat(("system", "user"), ("be good", PROMPT))


def test_documents_are_given_by_text_span_or_division():
    keys, movie = Document("document 2", 0, (0, 18)), Document("document 1", 0, (19, 38))
    assert find_documents(PROMPT, ["It is a good movie.\n", "The keys are here."]) == (keys, movie)
    assert find_documents(CHAT, {"movie": "It is a good movie."}) == (Document("movie", 1, (19, 38)),)
    assert find_documents(PROMPT, [(0, 18)]) == (Document("document 1", 0, (0, 18)),)
    assert find_documents(CHAT, [(1, 0, 18)]) == (Document("document 1", 1, (0, 18)),)
    assert find_documents(PROMPT, lambda text: [(0, 3)]) == (Document("part 1", 0, (0, 3)),)
    assert [one.span for one in find_documents(PROMPT, "paragraphs")] == [(0, 40), (40, 60)]
    assert [one.name for one in find_documents(CHAT, "turns")] == ["system 1", "user 2"]
    assert len(find_documents(CHAT, "sentences")) == 4
    assert find_documents(PROMPT, None) == ()


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["nowhere"], "document 1, 'nowhere', occurs 0 times"),
        (["e"], "occurs 8 times"),
        ([""], "occurs 0 times"),
        ("words", "expected a division .sentences, paragraphs, turns"),
        ([(5, 100)], "not a span of characters"),
        ([(0, 5), (3, 8)], "overlap"),
        ([], "found none"),
    ],
)
def test_invalid_documents_are_refused(documents, message):
    with pytest.raises(ValueError, match=message):
        find_documents(PROMPT, documents)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (5, "found int"),
        (b"The keys", "found bytes"),
        ({"The keys are here.", "It is"}, "found set"),  # in no order
        ([5], "document 1: expected a text .* found 5"),
        ([(0.5, 3)], r"whole numbers; found \(0.5, 3\)"),
        ([(False, True)], r"whole numbers; found \(False, True\)"),
        ([(3,)], r"whole numbers; found \(3,\)"),
        ([(0, 0, 3, 4)], "whole numbers; found"),
        ({"a": None}, "a: expected a text"),
        ({1: "The keys"}, "must be a text; found int: 1"),
        (lambda text: 5, "must return spans .* found int"),
        (lambda text: ["ab"], "must return spans .* found 'ab'"),
    ],
)
def test_errors_of_invalid_documents_say_what_was_found(documents, message):
    with pytest.raises(TypeError, match=message):
        find_documents(PROMPT, documents)


def test_spans_of_any_integer_type_can_be_saved():
    (source,) = find_documents(PROMPT, [np.array([0, 3])])  # type: ignore[list-item]
    assert json.dumps(source.span) == "[0, 3]"


def test_documents_and_the_other_tokens_add_up_to_all_scores():
    explainer = explainer_for("llama", "text-generation", dtype=torch.float64)
    documents = {"keys": "The keys are here.", "movie": "It is a good movie."}
    answer = explainer.explain_answer(PROMPT, "a young author. The key", documents=documents, progress=False)
    table = answer.by_document()
    names = ["keys", "movie", "rest of the prompt", "beginning of the text", "the answer itself"]
    assert [one.name for one in table.documents] == names
    assert [part.text for part in table.parts] == ["a young author.", "The key"]
    torch.testing.assert_close(table.scores.sum(), answer.matrix.sum())
    second = answer.of(sentence=1)
    keys = [i for i, (start, _) in enumerate(second.spans) if i and start < 18]
    assert float(table.scores[1, 0]) == pytest.approx(float(second.scores[keys].sum()))
    assert table.strongest(1).score == pytest.approx(float(table.scores[1, :2].max()))
    assert [one.name for one in answer.by_document("paragraphs").documents][:2] == ["paragraph 1", "paragraph 2"]
    explained = explainer.explain(PROMPT, documents="sentences")
    assert sum(one.score for one in explained.by_document()) == pytest.approx(float(explained.scores.sum()))


def test_each_text_of_a_list_has_its_own_documents():
    explainer = explainer_for("llama", "text-generation")
    both = explainer.explain([PROMPT, "the key is here"], documents=[["The keys are here."], ["the key"]])
    assert [one.documents[0].span for one in both] == [(0, 18), (0, 7)]
    several = explainer.explain_all("the key is here", ["lrp", "attn_lrp"], documents=["the key"])
    assert [one.documents[0].span for one in several.values()] == [(0, 7), (0, 7)]
    with pytest.raises(ValueError, match="documents for 1 texts"):
        explainer.explain([PROMPT, "the key is here"], documents=[["the key"]])
