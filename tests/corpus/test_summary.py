"""The words of a corpus, counted by hand on scores that are known."""

import dataclasses
import json

import pytest
import torch

from tests.corpus.test_explain_dataset import explain, phrases
from tests.tokenizers_ import explainer_for
from tokenlight.corpus import summary as summary
from tokenlight.corpus.plan import ExplainedPart, ExplainedText
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.corpus.shards import write_part
from tokenlight.corpus.summary import summarise
from tokenlight.data.examples import Example
from tokenlight.results.corpus_words import WordSupport


def write_known(folder, texts, name="model", method="lrp"):
    """A folder with these scores: (text, label, [score of each word])."""
    template = explainer_for("bert").explain("good", "gradient_x_input")
    rows = explainer_for("bert").encode([text for text, _, _ in texts])
    explained = []
    for i, (row, (text, label, scores)) in enumerate(zip(rows, texts, strict=True)):
        found = dataclasses.replace(
            template,
            text=text,
            tokens=row.tokens,
            special=torch.tensor(row.special),
            segments=row.segments,
            spans=row.spans,
            scores=torch.tensor([9.0, *scores, 9.0]),
            target=label,
        )
        explained.append(ExplainedText(i, Example(str(i), text), {method: found}, 0, 1))
    folder.mkdir()
    write_part(folder, ExplainedPart(0, explained, []), CorpusSettings(), {})
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
    (found,) = summarise(folder)
    assert (found.model, found.method) == ("model", "lrp")
    assert [(one.label, one.texts) for one in found.labels] == [("negative", 3), ("positive", 2)]
    positive = {one.word: one for one in found.labels[1].words}
    assert positive["good"] == WordSupport("good", 3, 2, (1.0 + 0.25 + 1.0) / 3)
    assert positive["a"] == WordSupport("a", 1, 0, 0.25)
    assert positive["movie"] == WordSupport("movie", 1, 0, -0.5)
    assert positive["key"] == WordSupport("key", 1, 0, 0.5)
    assert [one.word for one in found.labels[1].words] == ["good", "key", "a", "movie"]
    negative = {one.word: one for one in found.labels[0].words}
    assert negative["not"] == WordSupport("not", 1, 1, 1.0)
    assert negative["a"] == WordSupport("a", 2, 0, 0.0)
    assert negative["unbelievable"] == WordSupport("unbelievable", 1, 1, 1.0)  # its pieces are one word
    assert [one.word for one in summarise(folder, min_uses=2)[0].labels[0].words] == ["a"]


def test_shards_are_read_in_pieces(folder, monkeypatch):
    whole = summarise(folder)
    monkeypatch.setattr(summary, "BATCH", 1)
    assert summarise(folder) == whole


def test_pairs_and_contrasts(tmp_path):
    explain([("a good movie", "a book")], tmp_path, foil="neutral", target="positive")
    (label,) = summarise(tmp_path)[0].labels
    assert label.label == "positive minus neutral"
    assert {one.word: one.uses for one in label.words} == {"a": 2, "good": 1, "movie": 1, "book": 1}


def test_what_cannot_be_summed_up_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run\.json"):
        summarise(tmp_path)
    explain(phrases(3), tmp_path / "b", keep_text=False)
    with pytest.raises(ValueError, match="without the texts"):
        summarise(tmp_path / "b")
    explain(phrases(3), tmp_path / "c")
    with pytest.raises(ValueError, match="not explained with 'lrp'; it has gradient_x_input"):
        summarise(tmp_path / "c", "lrp")
    (tmp_path / "run.json").write_text('{"format": "tokenlight.bench"}')
    with pytest.raises(ValueError, match="no explained corpus"):
        summarise(tmp_path)
