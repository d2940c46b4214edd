"""The words of a corpus, counted by hand on scores that are known."""

import dataclasses
import json

import pytest
import torch

from tests.corpus.test_explain_dataset import explain, phrases
from tests.tokenizers_ import explainer_for
from tokenlight.corpus import summary as summary
from tokenlight.corpus.plan import ExplainedChunk, ExplainedText
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.corpus.shards import write_chunk
from tokenlight.corpus.summary import summarize
from tokenlight.data.examples import Example
from tokenlight.results.tables import WordSupport


def write_known(folder, texts, name="model", method="lrp"):
    """A folder with these scores: (text, label, [score of each word])."""
    template = explainer_for("bert").explain("good", "gradient_x_input")
    tokenized_texts = explainer_for("bert").encode([text for text, _, _ in texts])
    explained = []
    for i, (tokenized_text, (text, label, scores)) in enumerate(zip(tokenized_texts, texts, strict=True)):
        found = dataclasses.replace(
            template,
            text=text,
            tokens=tokenized_text.tokens,
            special=torch.tensor(tokenized_text.special),
            segments=tokenized_text.segments,
            spans=tokenized_text.spans,
            scores=torch.tensor([9.0, *scores, 9.0]),
            target=label,
        )
        explained.append(ExplainedText(i, Example(str(i), text), {method: found}, 0, 1))
    folder.mkdir()
    write_chunk(folder, ExplainedChunk(0, explained, []), CorpusSettings(), {})
    about = {
        "format": "tokenlight.corpus",
        "model": {"name": name, "sha256": "0" * 64},
        "methods": {method: {}},
        "settings": {"keep_text": True},
    }
    (folder / "run.json").write_text(json.dumps(about))
    return folder


KNOWN = [
    ("a good movie", "positive", [0.5, 2.0, -1.0]),
    ("Good good key", "positive", [1.0, 4.0, 2.0]),
    ("not a film", "negative", [3.0, 0.0, -3.0]),
    ("a key", "negative", [0.0, 0.0]),
    ("unbelievable", "negative", [1.0, 1.0, 2.0]),
]


@pytest.fixture
def folder(tmp_path):
    return write_known(tmp_path / "one", KNOWN)


def test_words_are_counted_and_weighed(folder):
    (found,) = summarize(folder)
    assert (found.model, found.method) == ("model", "lrp")
    assert [(one.label, one.texts) for one in found.labels] == [("negative", 3), ("positive", 2)]
    positive = {one.word: counts(one) for one in found.labels[1].words}
    assert positive == {"good": (3, 2, 0.75), "key": (1, 0, 0.5), "a": (1, 0, 0.25), "movie": (1, 0, -0.5)}
    assert [one.word for one in found.labels[1].words] == ["good", "key", "a", "movie"]
    negative = {one.word: counts(one) for one in found.labels[0].words}
    assert negative["not"] == (1, 1, 1.0)
    assert negative["a"] == (2, 0, 0.0)
    assert negative["unbelievable"] == (1, 1, 1.0)  # its pieces are one word
    assert [one.word for one in summarize(folder, min_uses=2)[0].labels[0].words] == ["a"]


def test_words_are_ordered_by_how_distinctive_they_are(folder):
    uses = torch.tensor([0.25, 1.0, -0.5, 0.25, 1.0, 0.5])  # of all words in the positive texts
    (good, *_, movie) = summarize(folder)[0].labels[1].words
    error = uses.std(correction=0)
    assert good.distinctness == pytest.approx(float((0.75 - uses.mean()) / (error / 3**0.5)))
    assert movie.distinctness == pytest.approx(float((-0.5 - uses.mean()) / error))


def test_a_frequent_word_of_little_support_does_not_come_first(tmp_path):
    """Its supports add up to more than those of any other word."""
    texts = [("the the the the the the key good", "positive", [*[0.2] * 6, 0.0, 1.0])] * 3
    words = summarize(write_known(tmp_path / "many", texts))[0].labels[0].words
    assert [one.word for one in words] == ["good", "the", "key"]
    assert words[1].uses * words[1].strength > words[0].uses * words[0].strength
    assert words[1].distinctness < 0 < words[0].distinctness


def test_words_that_are_all_alike_are_not_distinctive(tmp_path):
    words = summarize(write_known(tmp_path / "alike", [("a key", "positive", [1.0, 1.0])]))[0].labels[0].words
    assert [(one.word, one.distinctness) for one in words] == [("a", 0.0), ("key", 0.0)]


def counts(one: WordSupport) -> tuple[int, int, float]:
    return one.uses, one.strongest, one.strength


def test_shards_are_read_in_pieces(folder, monkeypatch):
    whole = summarize(folder)
    monkeypatch.setattr(summary, "BATCH", 1)
    assert summarize(folder) == whole


def test_pairs_and_contrasts(tmp_path):
    explain([("a good movie", "a book")], tmp_path, foil="neutral", target="positive")
    (label,) = summarize(tmp_path)[0].labels
    assert label.label == "positive minus neutral"
    assert {one.word: one.uses for one in label.words} == {"a": 2, "good": 1, "movie": 1, "book": 1}


def test_what_cannot_be_summed_up_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run\.json"):
        summarize(tmp_path)
    explain(phrases(3), tmp_path / "b", keep_text=False)
    with pytest.raises(ValueError, match="without the texts"):
        summarize(tmp_path / "b")
    explain(phrases(3), tmp_path / "c")
    with pytest.raises(ValueError, match="not explained with 'lrp'; it has gradient_x_input"):
        summarize(tmp_path / "c", "lrp")
    (tmp_path / "run.json").write_text('{"format": "tokenlight.bench"}')
    with pytest.raises(ValueError, match="no explained corpus"):
        summarize(tmp_path)


@pytest.mark.parametrize("missing", ["methods", "settings", "model"])
def test_damaged_settings_are_refused_in_words(missing, folder, tmp_path):
    settings = json.loads((folder / "run.json").read_text())
    del settings[missing]
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=rf"run.json is damaged \(KeyError: '{missing}'\): restore it"):
        summarize(tmp_path)


def test_a_letter_with_its_accent_is_one_word_however_it_is_written(tmp_path):
    texts = [("caf\u00e9", "positive", [1.0]), ("cafe\u0301", "positive", [1.0]), ("CAFE\u0301", "positive", [1.0])]
    folder = write_known(tmp_path / "accents", [(text, label, one_score(text)) for text, label, _ in texts])
    (label,) = summarize(folder)[0].labels
    assert [(one.word, one.uses) for one in label.words] == [("caf\u00e9", 3)]


def one_score(text):
    """A score for each token of a word."""
    (tokenized_text,) = explainer_for("bert").encode([text])
    return [1.0] * (len(tokenized_text) - 2)
