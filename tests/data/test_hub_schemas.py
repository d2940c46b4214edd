"""Data sets by the names under which papers use them, with the columns that they have on the Hub."""

import json
from typing import Any

import pytest

from tests.cli.test_explain import fail, succeed
from tests.hub import Hub
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import BadRow, Example
from tokenlight.data.read import read_examples
from tokenlight.heads.mask import HeadMask

SENTENCES = ["it is a good movie and they are not bad at all", "the key is here", "the book was written in Paris"]
QUESTION, CONTEXT = "who wrote the book ?", "the book was written by a young author in Paris"
SQUAD = {"id": "5733be", "title": "Books", "context": CONTEXT, "question": QUESTION}
ANSWERS = {"text": ["a young author", "author"], "answer_start": [24, 32]}
PAIR = (SENTENCES[0], SENTENCES[1])

# By name on the Hub and configuration: a record with its columns in their order, and the text and the label read.
SCHEMAS: dict[tuple[str, str | None], tuple[dict[str, Any], Any, Any]] = {
    ("nyu-mll/glue", "sst2"): ({"sentence": SENTENCES[0], "label": 1, "idx": 7}, SENTENCES[0], 1),
    ("nyu-mll/glue", "cola"): ({"sentence": SENTENCES[0], "label": 0, "idx": 7}, SENTENCES[0], 0),
    ("nyu-mll/glue", "qqp"): ({"question1": PAIR[0], "question2": PAIR[1], "label": 0, "idx": 7}, PAIR, 0),
    ("nyu-mll/glue", "mnli"): ({"premise": PAIR[0], "hypothesis": PAIR[1], "label": 2, "idx": 7}, PAIR, 2),
    ("nyu-mll/glue", "qnli"): ({"question": PAIR[0], "sentence": PAIR[1], "label": 1, "idx": 7}, PAIR, 1),
    ("nyu-mll/glue", "mrpc"): ({"sentence1": PAIR[0], "sentence2": PAIR[1], "label": 1, "idx": 7}, PAIR, 1),
    ("stanfordnlp/snli", None): ({"premise": PAIR[0], "hypothesis": PAIR[1], "label": -1}, PAIR, -1),
    ("stanfordnlp/sst2", None): ({"idx": 7, "sentence": SENTENCES[0], "label": -1}, SENTENCES[0], -1),
    ("stanfordnlp/imdb", None): ({"text": "Two hours.<br /><br />Well spent.", "label": 1}, None, 1),
    ("fancyzhx/yelp_polarity", None): ({"text": 'Bad.\\n\\nNever \\""again\\"".', "label": 0}, None, 0),
    ("fancyzhx/amazon_polarity", None): ({"label": 1, "title": "Nice", "content": SENTENCES[0]}, SENTENCES[0], 1),
    ("fancyzhx/ag_news", None): ({"text": SENTENCES[0], "label": 3}, SENTENCES[0], 3),
    ("cornell-movie-review-data/rotten_tomatoes", None): ({"text": SENTENCES[0], "label": 1}, SENTENCES[0], 1),
}


@pytest.mark.parametrize(("name", "config"), SCHEMAS)
def test_columns_of_known_data_sets_need_no_options(name, config, monkeypatch):
    record, text, label = SCHEMAS[name, config]
    hub = Hub({(name, config): {"test": [record]}}).install(monkeypatch)
    source = DataSource(f"hf:{name}" + (f":{config}" if config else ""), split="test")
    [found] = read_examples(source)
    assert isinstance(found, Example)
    assert (found.text, found.label) == (record["text"] if text is None else text, label)
    assert hub.opened == [(name, config, "test")]


@pytest.mark.parametrize("name", ["rajpurkar/squad", "rajpurkar/squad_v2"])
def test_nested_answers_are_read_and_questions_without_one_are_bad_rows(name, monkeypatch):
    rows = [{**SQUAD, "answers": ANSWERS}, {**SQUAD, "answers": {"text": [], "answer_start": []}}]
    Hub({(name, None): {"validation": rows}}).install(monkeypatch)
    answered, impossible = read_examples(DataSource(f"hf:{name}", split="validation"))
    assert isinstance(answered, Example)
    assert answered.text == (QUESTION, CONTEXT)
    assert answered.answer is not None
    assert CONTEXT[slice(*answered.answer)] == "a young author"
    assert impossible == BadRow(f"hf:{name}, validation, row 2", "unanswerable question")


def test_other_columns_are_named_as_for_files(monkeypatch):
    rows = [{"question_title": PAIR[0], "best_answer": PAIR[1], "topic": 3}]
    Hub({("org/topics", None): {"test": rows}}).install(monkeypatch)
    with pytest.raises(ValueError, match=r"no column that is known to hold a text; it has question_title.*text="):
        list(read_examples(DataSource("hf:org/topics", split="test")))
    chosen = {"pair": ("question_title", "best_answer"), "label": "topic"}
    [found] = read_examples(DataSource("hf:org/topics", split="test", **chosen))
    assert isinstance(found, Example)
    assert (found.text, found.label) == (PAIR, 3)


def test_commands_read_the_hub(checkpoint, tmp_path, monkeypatch):
    labels = (0, 2, -1)  # the last as in a test set of GLUE
    rows = [{"premise": s, "hypothesis": "the key is here", "label": n} for s, n in zip(SENTENCES, labels, strict=True)]
    hub = Hub({("nyu-mll/glue", "mnli"): {"train": rows}}).install(monkeypatch)
    data = ["hf:nyu-mll/glue:mnli", "--split", "train"]
    out, mask = str(tmp_path / "out"), str(tmp_path / "mask.json")
    quick = ["--method", "raw_attention", "--metric", "aopc", "--no-erasure"]
    printed = succeed("bench", checkpoint, *data, "-o", out, *quick)
    assert "3 examples" in printed
    assert "of 2 examples" in printed  # -1 is no gold label
    assert "name one of its splits: train" in fail("bench", checkpoint, data[0], "-o", f"{out}2", *quick)
    succeed("heads", checkpoint, *data, "-o", mask, "--position-share", "0.1", "--count-self", "--sample", "2")
    counted = HeadMask.load(mask).statistics
    assert counted is not None
    assert counted.texts == 2
    assert counted.source == "hf:nyu-mll/glue:mnli (spacy, split train, sample of 2 by seed 0)"
    assert "different texts are too few" in fail("calibrate", checkpoint, *data, "-o", mask)
    assert {opened[1:] for opened in hub.opened} == {("mnli", "train")}
    assert json.loads((tmp_path / "out" / "run.json").read_text())["data"]["hub"] == "hf:nyu-mll/glue:mnli"
