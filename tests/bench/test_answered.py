"""The benchmark on prompts with answers: the same numbers as `evaluate`, and messages for invalid lines."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.bench.benchmark import bench
from tokenlight.bench.cases import make_drafts
from tokenlight.bench.protocol import clean
from tokenlight.bench.tabulate import read_table
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import BadRow, Example
from tokenlight.data.read import read_examples
from tokenlight.metrics.evaluate import evaluate
from tokenlight.runs.method_specs import parse_measure
from tokenlight.runs.run_folder import Journal

LINES: list[dict[str, Any]] = [
    {
        "prompt": "The key is here. It is a book. Who is not bad?",
        "documents": ["The key is here.", "It is a book."],
        "answer": " they are",
        "evidence": ["It is a book."],
    },
    {
        "prompt": "a movie. the films are bad. it is",
        "documents": {"first": "a movie.", "second": "the films are bad."},
        "answer": " good",
        "evidence": "the films are bad.",
    },
]
TEMPLATE = (
    "{% for message in messages %}{{ message.role + ': ' + message.content + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
METRICS = [
    "top_k_drop:units=sentences",
    "aopc:units=documents",
    "linear_datamodeling_score:units=sentences",
    "pointing_game:k=3",
]


@pytest.fixture(scope="module")
def explainer() -> tl.Explainer:
    return explainer_for("llama", "text-generation", dtype=torch.float64)


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def documents_of(line: dict[str, Any]) -> list[str]:
    documents = line["documents"]
    return list(documents.values()) if isinstance(documents, dict) else documents


def test_values_equal_those_of_evaluate(explainer: tl.Explainer, tmp_path: Path) -> None:
    data = write(tmp_path / "cases.jsonl", LINES)
    folder = tmp_path / "out"
    by_document = "leave_one_out:units=documents"
    bench(explainer, data, ["attn_lrp", by_document], METRICS, output=folder, erasure=False, progress=False)
    stored = list(Journal(folder / "results-00000.jsonl"))
    assert len(stored) == 2
    measures = [parse_measure(metric) for metric in METRICS]
    for line, record in zip(LINES, stored, strict=True):
        ids = tuple(explainer.tokenizer.encode(line["answer"], add_special_tokens=False))
        e = explainer.explain(line["prompt"], "attn_lrp", target=ids, documents=documents_of(line), progress=False)
        evidence = line["evidence"] if isinstance(line["evidence"], str) else line["evidence"][0]
        start = line["prompt"].index(evidence)
        marks = [first < start + len(evidence) and last > start for first, last in e.spans]
        (expected,) = evaluate(explainer, [e], measures, marks=[torch.tensor(marks)])
        assert record["methods"]["attn_lrp"]["values"] == pytest.approx(expected)
        assert record["marked"] == sum(marks)
    assert {line.label for line in read_table(folder).lines} >= {"attn_lrp", by_document, "random"}


def test_a_micro_average_over_sentences_is_weighted_by_sentences(explainer: tl.Explainer, tmp_path: Path) -> None:
    line_with_two_sentences = {**LINES[0], "evidence": ["The key is here.", "It is a book."]}
    folder = tmp_path / "out"
    label = "recall_at_k:k=1,units=sentences"
    data = write(tmp_path / "cases.jsonl", [line_with_two_sentences, LINES[1]])
    table = bench(explainer, data, ["attn_lrp"], [label], output=folder, erasure=False, progress=False)
    stored = list(Journal(folder / "results-00000.jsonl"))
    assert [record["weights"][label] for record in stored] == [2, 1]  # sentences with evidence
    assert all(record["marked"] > 2 for record in stored)  # tokens
    recalls = [record["methods"]["attn_lrp"]["values"][label] for record in stored]
    assert table.cell("attn_lrp", label).mean == pytest.approx((2 * recalls[0] + recalls[1]) / 3)
    assert table.weights[:, 0].tolist() == [2, 1]


def test_messages_are_read_as_a_prompt(tmp_path: Path) -> None:
    explainer = explainer_for("llama", "text-generation")
    tokenizer = copy.deepcopy(explainer.tokenizer)
    tokenizer.chat_template = TEMPLATE
    messages = [{"role": "system", "content": "it is"}, {"role": "user", "content": LINES[0]["prompt"]}]
    lines = [{**LINES[0], "messages": messages}]
    del lines[0]["prompt"]
    chat_explainer = tl.Explainer(explainer.model, tokenizer)
    (draft,), bad = make_drafts(
        chat_explainer,
        clean(["aopc"]),
        list(enumerate(read_examples(DataSource(write(tmp_path / "x", lines), kind="jsonl")))),
    )
    assert not bad
    assert draft.marks is not None
    marked = draft.marks.nonzero()[:, 0].tolist()
    assert {draft.tokenized_text.segments[i] for i in marked} == {1}
    spans = [draft.tokenized_text.spans[i] for i in marked]
    assert messages[1]["content"][spans[0][0] : spans[-1][1]] == "It is a book."
    assert [document.name for document in draft.example.documents] == ["document 1", "document 2"]


def test_invalid_lines_are_reported_with_the_reason(tmp_path: Path) -> None:
    good = LINES[0]
    bad = [
        ({**good, "answer": 5}, "answer: expected a text"),
        ({**good, "prompt": [{"role": "user", "text": "x"}]}, 'message 0: expected {"role": text'),
        ({**good, "documents": "the key"}, "documents: expected a list of texts"),
        ({**good, "documents": ["", "x"]}, "document 1: expected a text, found ''"),
        (
            {**good, "evidence": [3]},
            "evidence: expected a text that occurs in the prompt, or a list of such texts; found [3]",
        ),
        ("{", "not a JSON object"),
    ]
    examples = list(read_examples(DataSource(write(tmp_path / "x.jsonl", [good, *(line for line, _ in bad)]))))
    assert isinstance(examples[0], Example)
    for number, (row, (_, reason)) in enumerate(zip(examples[1:], bad, strict=True), 2):
        assert isinstance(row, BadRow)
        assert reason in row.reason
        assert row.where.endswith(f"line {number}")


def test_evidence_that_does_not_occur_in_the_prompt_is_refused(explainer: tl.Explainer, tmp_path: Path) -> None:
    line_without_evidence = {**LINES[0], "evidence": ["It is a film."]}
    data = write(tmp_path / "cases.jsonl", [LINES[0], line_without_evidence])
    settings: dict[str, Any] = {"metrics": METRICS[:1], "erasure": False, "progress": False, "bad_rows": "refuse"}
    with pytest.raises(ValueError, match=r"line 2: .*'It is a film.', occurs 0 times in the prompt, not once"):
        bench(explainer, data, ["attn_lrp"], **settings)


def test_answers_are_refused_for_other_models_than_language_models(tmp_path: Path) -> None:
    data = write(tmp_path / "cases.jsonl", LINES)
    with pytest.raises(ValueError, match="only language models write answers; this is a text-classification model"):
        bench(explainer_for("bert", "text-classification"), data, ["attn_lrp"], progress=False)
