"""The recipes that make evidence sets: every line says what it should, and bench could read it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests import models
from tests.tokenizers_ import tokenizer_for

Run = Callable[..., str]
PARAGRAPHS = (  # context, question, answer
    ("Anna was born in Oslo. She moved to Rome at ten. It rained there for a week.", "Where was Anna born?", "Oslo"),
    ("The tower has 90 steps. A storm broke its roof.", "How many steps are there?", "90"),
    ("Bees sleep at night. Nobody knows why.", "When do bees sleep?", "night"),
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check(case: dict[str, Any]) -> None:
    """What every case keeps: documents stand in the prompt once, and the evidence is one of them."""
    (message,) = case["messages"]
    assert message["role"] == "user"
    assert [message["content"].count(document) for document in case["documents"]] == [1] * len(case["documents"])
    assert case["evidence"][0] in case["documents"]


def test_needle(run: Run, tmp_path: Path) -> None:
    printed = run("needle", "--cases", 25, "--sentences", 7, "--output", tmp_path / "needle.jsonl")
    assert "25 cases" in printed
    cases = lines(tmp_path / "needle.jsonl")
    for case in cases:
        check(case)
        assert len(case["documents"]) == 7
        value = case["answer"].split()[-1]
        assert sum(value in document for document in case["documents"]) == 1  # nothing else says it
    places = {case["documents"].index(case["evidence"][0]) for case in cases}
    assert len(places) > 3  # not always at the same place
    run("needle", "--cases", 25, "--sentences", 7, "--output", tmp_path / "again.jsonl")
    assert lines(tmp_path / "again.jsonl") == cases


def test_passages(run: Run, tmp_path: Path) -> None:
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": str(i),
                    "question": question,
                    "answers": [{"text": answer, "answer_start": context.find(answer)}],
                }
            ],
        }
        for i, (context, question, answer) in enumerate(PARAGRAPHS)
    ]
    data = tmp_path / "squad.json"
    data.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    run("passages", "--data", data, "--length", 45, "--output", tmp_path / "passages.jsonl")
    cases = {case["answer"]: case for case in lines(tmp_path / "passages.jsonl")}
    assert set(cases) == {"Oslo", "90", "night"}
    for answer, case in cases.items():
        check(case)
        assert [document for document in case["documents"] if answer in document] == case["evidence"]
        assert all(len(document) <= 45 for document in case["documents"])
        assert len(case["documents"]) == 3
    assert cases["Oslo"]["evidence"] == ["Anna was born in Oslo."]  # with the next sentence it would be 48 long
    assert cases["night"]["evidence"] == ["Bees sleep at night. Nobody knows why."]


def test_wrong_arguments_are_refused(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("needle", "--facts", 7, "--output", tmp_path / "x")
    assert "1 to 6 facts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("passages", "--passages", 1, "--data", tmp_path, "--output", tmp_path / "x")
    assert "at least one wrong passage" in capsys.readouterr().err


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a chat template, and room for a prompt of letters."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = copy.deepcopy(tokenizer_for("llama"))
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer.model_max_length = 4096
    tokenizer.save_pretrained(folder)
    settings = {**models.DECODER, "vocab_size": len(tokenizer), "max_position_embeddings": 4096}
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).save_pretrained(folder)
    return folder


def test_three_passages(run: Run, language_model: Path) -> None:
    printed = run("three_passages", "--model", language_model, "--tokens", 3)
    assert "museum" in printed
    assert "without ferry: sentence 1 " in printed


def test_numbers_are_compared(run: Run, language_model: Path, tmp_path: Path) -> None:
    run("needle", "--cases", 2, "--sentences", 4, "--output", tmp_path / "needle.jsonl")
    asked = ["--model", language_model, "--data", tmp_path / "needle.jsonl", "--ablations", 4]
    printed = run("answer_numbers", *asked, "--methods", "attn_lrp", "gradient_x_input")
    assert "2 cases, 0 that cannot be used" in printed
    table = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in table]
    assert [row[:3] for row in rows[1:3]] == [["attn_lrp", "logit", "all"], ["attn_lrp", "logit", "positive"]]
    assert len(rows) == 1 + 2 * 2 * 2 + 2
