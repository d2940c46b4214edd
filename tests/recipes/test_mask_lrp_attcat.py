"""The recipes for AttCAT run from top to bottom on made-up data, and draw what they say."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

import tokenlight as tl
from tests.models import ENCODER
from tests.tokenizers_ import explainer_for, wordpiece

RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = {
    "a warm and funny film that never hurries and never once loses sight of the people it is so fond of": 1,
    "the jokes are stale , the plot is dull and the ending , when at last it comes , makes no sense at all": 0,
    "too short": 1,
}
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


@pytest.fixture
def texts(tmp_path):
    """What a recipe needs to run on the model inside the package."""
    path = tmp_path / "texts.tsv"
    path.write_text("label\ttext\n" + "".join(f"{n}\t{t}\n" for t, n in TEXTS.items()), encoding="utf-8")
    return ["--model", "default", "--data", path]


def squad(path: Path) -> Path:
    paragraphs = []
    for number, (context, (question, answer)) in enumerate(QUESTIONS.items()):
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        paragraphs.append({"context": context, "qas": [{"id": str(number), "question": question, "answers": answers}]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


@pytest.fixture
def questions(tmp_path):
    """A tiny model with random weights, and questions."""
    explainer = explainer_for("bert", "question-answering")
    explainer.model.save_pretrained(tmp_path / "model")
    explainer.tokenizer.save_pretrained(tmp_path / "model")
    return ["--model", tmp_path / "model", "--data", squad(tmp_path / "squad.json")]


def row_of(printed: str, title: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(title))


def test_attcat_table_1_and_figures_3_and_5(recipe, texts):
    printed = recipe("attcat_table1.py", "--dataset", "sst2", *texts)
    row = row_of(printed, "AttCAT  ")
    assert [number in row for number in ("0.371", "−1.319", "0.018")] == [True] * 3
    before = Path("out/attcat_table1/sst2/results-00000.jsonl").stat()
    recipe("attcat_figure3.py", "--set", "sst2", *texts)
    assert Path("out/attcat_table1/sst2/results-00000.jsonl").stat().st_mtime_ns == before.st_mtime_ns
    assert Path("out/attcat_table1/sst2/attcat_figure3.png").exists()
    printed = recipe("attcat_figure5.py", *texts)
    assert row_of(printed, "RawAtt").count("1.000") >= 2  # blind to the class, by either τ
    assert "0.336" in row_of(printed, "TransAtt")
    assert Path("out/attcat_figure5/sst2/attcat_figure5.png").exists()


def test_attcat_table_2_and_figure_3_with_questions(recipe, questions):
    printed = recipe("attcat_table2.py", "--set", "squad1", *questions)
    assert "the most that can be reached: 2.00" in printed  # three, two, one and two tokens
    printed = recipe("attcat_figure3.py", "--set", "squad1", "--k", 1, 50, *questions)
    assert row_of(printed, "attcat").split("[")[1].split()[-1].rstrip("*†") == "2.000"  # 50 tokens are all tokens
    assert Path("out/attcat_figure3/squad1/attcat_figure3.png").exists()


def test_attcat_figure_4(recipe):
    printed = recipe("attcat_figure4.py", "--model", "default", "--text", "A fine film.", "--text", "Dull.")
    assert printed.count("AttCAT: share") == printed.count("   CAT: share") == 2
    assert sorted(path.name for path in Path("out").iterdir()) == ["attcat_figure4_1.png", "attcat_figure4_2.png"]


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


def test_published_numbers_stand_in_their_rows(monkeypatch):
    monkeypatch.syspath_prepend(RECIPES)
    theirs = runpy.run_path(str(RECIPES / "attcat_published.py"))
    assert {len(flat) for flat in theirs["TABLE_1"].values()} == {2 * len(theirs["ROWS"])}
    assert theirs["published"]("mnli")["attcat"] == [0.164, 0.008, 0.017]
    assert theirs["published"]("amazon")["rollout"] == [0.324, -1.303, None]
