"""A new task is one file: here is one, and everything else works with it."""

from dataclasses import dataclass

import pytest
import torch
from transformers import BertConfig, BertForNextSentencePrediction

import tokenlight as tl
from tests.serving import in_process
from tests.tokenizers_ import tokenizer_for
from tokenlight import tasks
from tokenlight.tasks import register
from tokenlight.tasks.labels import Labeled
from tokenlight.tasks.targets import TargetSpec
from tokenlight.text.tokenized_text import Text

PAIRS = [
    ("the keys are here", "the cabinet is on the table"),
    ("who wrote the book ?", "a young author"),
    ("it is a good movie", "they are not bad at all"),
]


@pytest.fixture
def next_sentence(monkeypatch):
    """What the new file would hold."""
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))

    @register
    @dataclass(frozen=True)
    class NextSentence(Labeled):
        """Does the second text follow the first?"""

        name = "next-sentence"
        heads = ("ForNextSentencePrediction",)
        auto_class = "AutoModelForNextSentencePrediction"
        reads_pairs = True
        compares_classes = True

        @property
        def labels(self) -> dict[int, str]:
            return {0: "follows", 1: "does not follow"}

        @property
        def outputs(self) -> int:
            return 2

        @property
        def sample(self) -> tuple[Text, TargetSpec]:
            return PAIRS[0], None

    return NextSentence


@pytest.fixture
def explainer(next_sentence) -> tl.Explainer:
    tokenizer = tokenizer_for("bert")
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        initializer_range=0.4,
    )
    return tl.Explainer(BertForNextSentencePrediction(config).eval(), tokenizer)


def test_it_is_found_by_the_models_class(explainer, next_sentence):
    assert isinstance(explainer.task, next_sentence)


def test_every_method_explains_it(explainer):
    results = explainer.explain_all(PAIRS, progress=False)
    assert len(results) > 20
    for found in results.values():
        assert [e.task for e in found] == ["next-sentence"] * 3
        assert {e.prediction for e in found} <= {"follows", "does not follow"}
    chosen = explainer.explain(PAIRS[0], target="follows", foil="does not follow")
    assert (chosen.target, chosen.foil) == ("follows", "does not follow")
    with torch.no_grad():
        logits = explainer.model(**explainer.collate(explainer.encode(PAIRS[:1])).inputs()).logits[0]
    assert chosen.score == pytest.approx(float(logits[0] - logits[1]), rel=1e-5)


def test_its_faithfulness_is_measured(explainer):
    found = tl.evaluate(explainer, explainer.explain(PAIRS, progress=False))
    assert all(-1 <= one["aopc"] <= 1 for one in found)
    table = tl.benchmark(explainer, PAIRS, methods=["attn_lrp"], metrics=["aopc"], progress=False)
    assert [line.label for line in table.methods] == ["attn_lrp"]


def test_token_ids_and_the_words_of_a_result(explainer):
    row = explainer.encode(PAIRS[:1])[0]
    ids, types = torch.tensor([row.input_ids]), torch.tensor([row.token_type_ids])
    scores = tl.attribute(explainer.model, ids, token_type_ids=types, method="attn_lrp", target=1)
    e = explainer.explain(PAIRS[0], target=1)
    torch.testing.assert_close(scores[0], e.scores)


def test_the_page_asks_for_it(explainer):
    with in_process(explainer) as client:
        model = client.get("/api/model").json()
        assert model["form"]["second"]["label"] == "Second text"
        assert model["form"]["second_required"]
        assert model["form"]["examples"] == [{"text": PAIRS[0][0], "second": PAIRS[0][1]}]
        assert model["labels"] == ["follows", "does not follow"]
        said = client.post("/api/predict", json={"text": PAIRS[0][0], "second": PAIRS[0][1]}).json()
        assert {choice["name"] for choice in said["choices"]} == {"follows", "does not follow"}


def test_transformers_knows_the_task_of_other_names():
    assert tasks.task_of_class("XLNetForQuestionAnsweringSimple").name == "question-answering"
    assert tasks.task_of_class("BertGenerationDecoder").name == "text-generation"


def test_without_the_file_the_model_is_refused(explainer, monkeypatch):
    monkeypatch.delitem(tasks.TASKS, "next-sentence")
    with pytest.raises(tl.UnsupportedModelError, match="BertForNextSentencePrediction has no head"):
        tl.Explainer(explainer.model, explainer.tokenizer)
