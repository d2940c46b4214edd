"""A log of prompts with answers: the scores of `explain_answer`, and bad rows with their line numbers."""

import json
import math
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy
import pandas
import pytest

import tokenlight as tl
from tests.corpus.test_explain_dataset import bad_rows, contents, table
from tests.tokenizers_ import explainer_for
from tokenlight.corpus import shards
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.corpus.summary import summarize
from tokenlight.data.data_source import DataSource
from tokenlight.text.documents import named_spans, with_documents
from tokenlight.text.tokenize import read_chat

ROWS = [
    {"prompt": "The keys to the cabinet", "answer": " are on the table. It is a good movie"},
    {"prompt": "it is", "answer": " a good movie"},
    {"prompt": "who wrote the book ?", "answer": " They are here. And bad. The author"},
]
METHODS = ["attn_lrp", "gradient_x_input"]


CHAT = [{"role": "system", "content": "it is"}, {"role": "user", "content": "who wrote the book ?"}]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def chat_explainer():
    """A language model with a chat template."""
    tokenizer = deepcopy(explainer_for("gpt2", "text-generation").tokenizer)
    tokenizer.chat_template = TEMPLATE
    return tl.Explainer(explainer_for("gpt2", "text-generation").model, tokenizer)


def explain(source: Any, folder, methods=("gradient_x_input",), family="gpt2", task="text-generation", **settings: Any):
    corpus_settings = CorpusSettings(**{"chunk_rows": 2, "tokens": 64, **settings})
    return tl.explain_dataset(
        explainer_for(family, task), source, folder, methods, settings=corpus_settings, progress=False
    )


@pytest.mark.parametrize("each", ["answer", "sentence", "token"])
def test_scores_equal_those_of_explain_answer(tmp_path, each):
    done = explain(ROWS, tmp_path, METHODS, each=each, quantity="log_probability")
    assert (done.parts, done.explained, done.bad) == (2, 3, 0)
    explainer = explainer_for("gpt2", "text-generation")
    for stored in table(tmp_path).itertuples():
        row, assert_close = ROWS[stored.row], partial(numpy.testing.assert_allclose, rtol=2e-4, atol=1e-5)
        expected = explainer.explain_answer(
            row["prompt"], row["answer"], stored.method, quantity="log_probability", progress=False
        )
        length, total = expected.prompt_length, expected.total()
        assert (stored.text, stored.answer, stored.target) == (row["prompt"], row["answer"], row["answer"])
        assert [*stored.tokens, *stored.answer_tokens] == expected.tokens
        assert list(zip(stored.answer_starts, stored.answer_ends, strict=True)) == expected.spans[length:]
        assert_close(stored.scores, total.scores)
        assert_close(stored.answer_scores, expected.matrix.sum(0)[length:])
        assert_close(stored.log_probabilities, expected.log_probabilities)
        assert sum(stored.part_numbers) == pytest.approx(stored.score, rel=1e-4) == pytest.approx(total.score, rel=1e-4)
        if each == "answer":
            assert stored.part_scores is None
        elif each == "token":
            assert_close(numpy.stack(stored.part_scores), expected.matrix)
        else:
            parts = [expected.of(sentence=i) for i in range(len(stored.part_starts))]
            assert [row["answer"][s:e].strip() for s, e in zip(stored.part_starts, stored.part_ends, strict=True)] == [
                part.target.strip() for part in parts
            ]
            for part_scores, part in zip(stored.part_scores, parts, strict=True):
                assert_close(part_scores[:length], part.scores)


@pytest.mark.parametrize("each", ["answer", "sentence"])
def test_each_stored_score_that_is_too_small_is_counted_once(tmp_path, each, monkeypatch):
    limits = SimpleNamespace(smallest_normal=math.inf)  # so that all scores are too small for the type
    monkeypatch.setattr(shards, "numpy", SimpleNamespace(array=numpy.array, finfo=lambda dtype: limits))
    done = explain(ROWS, tmp_path, each=each)
    rows = table(tmp_path)
    by_part = [part for parts in rows["part_scores"] if parts is not None for part in parts]
    stored = numpy.concatenate([*rows["scores"], *rows["answer_scores"], *by_part])
    assert done.too_small == (stored != 0).sum() > 0


def test_bad_rows_are_recorded_with_their_line_and_a_stopped_run_resumes(tmp_path):
    lines = [*map(json.dumps, ROWS), "{", json.dumps({"prompt": "it is"}), json.dumps({"prompt": "it", "answer": " "})]
    lines += [json.dumps({"prompt": "it is", "answer": " good" * 400}), json.dumps({**ROWS[1], "documents": "a"})]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    done = explain(tmp_path / "log.jsonl", tmp_path / "out")
    assert (done.explained, done.bad) == (3, 5)
    assert [row["where"].rpartition(", ")[2] for row in bad_rows(tmp_path / "out")] == [
        f"line {n}" for n in range(4, 9)
    ]
    reasons = [row["reason"] for row in bad_rows(tmp_path / "out")]
    for reason, message in zip(
        reasons,
        ["JSON", "no value under 'answer'", "empty", "the model reads 300", "documents: expected a list"],
        strict=True,
    ):
        assert message in reason
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "parts" / "part-000001.parquet").unlink()
    explain(tmp_path / "log.jsonl", tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_columns_with_other_names_from_parquet(tmp_path):
    renamed = [{"question": row["prompt"], "reply": row["answer"], "text": "x"} for row in ROWS]
    pandas.DataFrame(renamed).to_parquet(tmp_path / "log.parquet")
    explain(DataSource(tmp_path / "log.parquet", text="question", answer="reply"), tmp_path / "out")
    explain(ROWS, tmp_path / "same")
    for scores, expected in zip(table(tmp_path / "out")["scores"], table(tmp_path / "same")["scores"], strict=True):
        numpy.testing.assert_array_equal(scores, expected)
    with pytest.raises(ValueError, match="explained by itself"):
        explain(DataSource(ROWS, answer="answer", target="answer"), tmp_path / "no")
    with pytest.raises(ValueError, match="explained by itself"):
        explain(ROWS, tmp_path / "no", target=" a")
    with pytest.raises(ValueError, match="only language models write answers"):
        explain(ROWS, tmp_path / "no", family="bert", task="text-classification")
    assert not (tmp_path / "no").exists()


def test_the_summary_counts_words_of_all_answers_together(tmp_path):
    explain(ROWS, tmp_path)
    (summary,) = summarize(tmp_path)
    assert [(label.label, label.texts) for label in summary.labels] == [("answers", 3)]


def test_chats_with_documents_equal_explain_answer(tmp_path):
    documents, answer = {"a": "the key is here", "b": "they are bad"}, "They are. A young author"
    log = [
        {"messages": CHAT, "answer": answer, "documents": documents},
        {"messages": [*CHAT, {"role": "assistant", "content": answer}], "documents": list(documents.values())},
        {"messages": [*CHAT, {"role": "assistant"}]},
        {"messages": CHAT, "answer": answer, "documents": ["it is", "not in it"]},
    ]
    pandas.DataFrame(log[:1]).to_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    explainer, settings = chat_explainer(), CorpusSettings(each="sentence")
    for name in ("jsonl", "parquet"):
        source, out = tmp_path / f"log.{name}", tmp_path / name
        tl.explain_dataset(explainer, source, out, ["attn_lrp"], settings=settings, progress=False)
    reasons = [row["reason"] for row in bad_rows(tmp_path / "jsonl")]
    assert [row["row"] for row in bad_rows(tmp_path / "jsonl")] == [2, 3]
    assert "message 2: expected" in reasons[0]
    assert "does not occur in the prompt, but other documents do" in reasons[1]
    prompt, documents = with_documents(read_chat(CHAT), documents)
    expected = explainer.explain_answer(prompt, answer, "attn_lrp", documents=named_spans(documents), progress=False)
    by_document = expected.by_document()
    rows = [*table(tmp_path / "jsonl").itertuples(), *table(tmp_path / "parquet").itertuples()]
    assert [rows[0].document_names[0], rows[1].document_names[0], rows[2].document_names[0]] == ["a", "document 1", "a"]
    for row in rows:
        assert not isinstance(row.text, str)
        assert row.messages[1]["content"] == "the key is here\n\nthey are bad\n\nwho wrote the book ?"
        assert row.tokens.tolist() == expected.tokens[: expected.prompt_length]
        assert row.document_names.tolist()[2:] == [document.name for document in by_document.documents[2:]]
        numpy.testing.assert_allclose(numpy.stack(row.document_scores), by_document.scores, rtol=2e-4, atol=1e-5)
        sums = [sum(scores) for scores in row.part_scores]
        numpy.testing.assert_allclose([sum(scores) for scores in row.document_scores], sums, rtol=2e-4, atol=1e-5)
    (summary,) = summarize(tmp_path / "parquet")
    assert "author" not in {word.word for label in summary.labels for word in label.words}
    assert "book" in {word.word for label in summary.labels for word in label.words}
