"""The recipe that trains a question-answering model, on made-up data."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

import tokenlight as tl
from tests.models import ENCODER
from tests.tokenizers_ import wordpiece

RECIPES = Path(__file__).parents[2] / "recipes"
QUESTIONS = {
    "the book was written by a young author in Paris": ("who wrote the book ?", "a young author"),
    "the keys to the cabinet are on the table": ("who are on the table ?", "the keys"),
    "it is a good movie and they are not bad": ("who is a movie ?", "it"),
    "the key is here and the cabinet is not": ("who is here ?", "the key"),
}


@pytest.fixture
def recipe(monkeypatch, tmp_path, capsys):
    """Run a script with arguments; what it printed."""
    monkeypatch.syspath_prepend(RECIPES)
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments), "--output", "out"])
        runpy.run_path(str(RECIPES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def squad(path: Path) -> Path:
    paragraphs = []
    for number, (context, (question, answer)) in enumerate(QUESTIONS.items()):
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        paragraphs.append({"context": context, "qas": [{"id": str(number), "question": question, "answers": answers}]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_qa_model(recipe, tmp_path):
    encoder = tmp_path / "encoder"
    tokenizer = wordpiece()
    BertModel(BertConfig(**{**ENCODER, "vocab_size": len(tokenizer)})).save_pretrained(encoder)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (encoder / "vocab.txt").write_text("\n".join(piece for piece, _ in pieces), encoding="utf-8")
    arguments = ["--encoder", encoder, "--data", squad(tmp_path / "squad.json"), "--held-out", 0.25, "--length", 40]
    printed = recipe("models/qa_model.py", *arguments, "--epochs", 1)
    assert "trained_on: 3 paragraphs, 3 questions" in printed
    assert "held_out: 1 paragraphs, 1 questions" in printed
    report = json.loads(Path("out/report.json").read_text("utf-8"))
    assert report["held-out questions"] == 1
    kept = [json.loads(Path(f"out/{name}.json").read_text("utf-8")) for name in ("held_out", "trained_on")]
    contexts = [{p["context"] for p in part["data"][0]["paragraphs"]} for part in kept]
    assert contexts[0].isdisjoint(contexts[1])
    assert contexts[0] | contexts[1] == set(QUESTIONS)
    assert tl.load("out").task.name == "question-answering"
