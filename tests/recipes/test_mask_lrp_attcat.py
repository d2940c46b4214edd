"""The recipes for Mask-LRP and AttCAT run from top to bottom on made-up data, and draw what they say."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

import tokenlight as tl
from tests.models import ENCODER
from tests.tokenizers_ import explainer_for, wordpiece
from tokenlight.views.difference import difference, difference_figure, difference_page
from tokenlight.views.figure import save
from tokenlight.views.palette import LIGHT, css, tint

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


def test_mask_lrp_table_1_and_figure_3_share_a_run(recipe, texts):
    printed = recipe("mask_lrp_table1.py", "--dataset", "sst2", "--seeds", 2, *texts)
    assert "0.438" in row_of(printed, "Ours, as released")
    assert "−1.208" in row_of(printed, "Ours, as released")
    assert "not at hand" in row_of(printed, "Ours, as the paper says")
    assert "the model is default, the paper's is textattack/bert-base-uncased-SST-2" in printed
    assert "2 examples, protocol mask_lrp" in printed
    assert "Skipped 1: fewer than 20 tokens" in printed
    assert "0.432" in row_of(
        Path("out/mask_lrp_table1/sst2/side_by_side.md").read_text("utf-8"), "| Random mask, mean of seeds"
    )
    before = Path("out/mask_lrp_table1/sst2/results-00000.jsonl").stat()
    recipe("mask_lrp_figure3.py", "--dataset", "sst2", "--seeds", 2, *texts)
    assert Path("out/mask_lrp_table1/sst2/results-00000.jsonl").stat().st_mtime_ns == before.st_mtime_ns
    assert Path("out/mask_lrp_table1/sst2/mask_lrp_figure3.png").stat().st_size > 10_000


def test_one_model_does_not_stand_in_for_five(recipe, texts, capsys):
    with pytest.raises(SystemExit):
        recipe("mask_lrp_table1.py", *texts)
    assert "name the one --dataset" in capsys.readouterr().err


def test_mask_lrp_table_2(recipe, questions):
    printed = recipe("mask_lrp_table2.py", "--set", "squad1-bert", *questions)
    assert "52.970" in row_of(printed, "TransAtt (the paper's Ours)")
    assert "4 examples, protocol mask_lrp_squad" in printed


def test_mask_lrp_tables_3_and_4(recipe, texts):
    printed = recipe("mask_lrp_table3.py", "--seeds", 1, *texts)
    rows = [
        row_of(printed, f"{variant}: {name}") for variant in ("paper", "released") for name in ("both", "syntactic")
    ]
    assert all("not at hand" in row for row in rows)
    assert "numbers of the paper's table 3 are not at hand" in printed
    printed = recipe("mask_lrp_table4.py", "--margin", "-0.3", "--share", 0.4, *texts)
    assert "0.369" in row_of(printed, "ALTI")
    assert "0.438" in row_of(printed, "ξ_synt 0.1, ξ_pos 0.8")
    assert "not at hand" in row_of(printed, "ξ_synt -0.3, ξ_pos 0.8")


def test_mask_lrp_figures_of_heads(recipe):
    printed = recipe("mask_lrp_figure1.py")
    assert "0.604" in row_of(printed, "nsubj")  # the packaged mask's statistics
    assert Path("out/mask_lrp_figure1.png").exists()
    assert "The paper's map is of another model" in recipe("mask_lrp_figure5.py")
    assert Path("out/mask_lrp_figure5.png").exists()


def test_heads_can_be_counted_on_the_spot(recipe, tmp_path):
    columns = ["1 dogs dog NOUN NNS _ 2 nsubj", "2 chase chase VERB VBP _ 0 root", "3 cats cat NOUN NNS _ 2 obj"]
    lines = ["\t".join([*column.split(), "_", "_"]) for column in columns]
    treebank = tmp_path / "some.conllu"
    treebank.write_text("# text = dogs chase cats\n" + "\n".join(lines) + "\n\n", encoding="utf-8")
    assert "-1" in row_of(recipe("mask_lrp_figure1.py", "--data", treebank), "nsubj")
    recipe("mask_lrp_figure5.py", "--data", treebank)
    assert Path("out/masks.json").exists()


def test_mask_lrp_figure_4(recipe, texts):
    printed = recipe("mask_lrp_figure4.py", "--seeds", 1, "--shares", "1", "--variant", "paper", *texts)
    whole = next(line for line in printed.splitlines() if line.split()[:2] == ["paper", "100%"])
    unmasked = row_of(printed, "TransAtt")
    assert whole.split()[2:] == unmasked.split()[1:]  # every head: in this variant exactly TransAtt
    assert Path("out/mask_lrp_figure4/sst2/mask_lrp_figure4.png").exists()


def test_mask_lrp_figures_6_to_13(recipe, texts):
    recipe("mask_lrp_figures6to13.py", "--against", "attcat", "alti", "--limit", 2, *texts)
    page = Path("out/mask_lrp_figures6to13.html").read_text("utf-8")
    assert page.count("<section>") == 4
    assert "mask_lrp − attcat" in page
    assert len(list(Path("out").glob("mask_lrp_figures6to13_?.png"))) == 2


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
    ours, theirs = (runpy.run_path(str(RECIPES / f"{name}_published.py")) for name in ("mask_lrp", "attcat"))
    for names in (ours, theirs):
        assert {len(flat) for flat in names["TABLE_1"].values()} == {2 * len(names["ROWS"])}
    assert ours["DATASETS"]["yelp"].numbers["attcat"] == [0.397, -2.034]
    assert ours["DATASETS"]["qqp"].numbers["released"] == [0.451, -6.001]
    assert ours["DATASETS"]["imdb"].numbers["alti"] == [0.342, -0.748]
    assert theirs["published"]("mnli")["attcat"] == [0.164, 0.008, 0.017]
    assert theirs["published"]("amazon")["rollout"] == [0.324, -1.303, None]


def explain(method: str, text: str = "it is a <good> movie") -> tl.Explanation:
    return explainer_for("bert").explain(text, method, target=1)


def test_a_difference_compares_scores_of_unit_maximum():
    first, second = explain("attcat"), explain("raw_attention")
    between = difference(first, second)
    scaled = [e.scores.double() / max(abs(w.score) for w in e.words() if not w.special) for e in (first, second)]
    torch.testing.assert_close(between.scores, scaled[0] - scaled[1])
    assert between.method == "attcat − raw_attention"
    assert not difference(first, first).scores.any()
    with pytest.raises(ValueError, match="of one text"):
        difference(first, explain("attcat", "another text"))


def test_more_is_green_and_less_is_red_and_underlined():
    assert (tint(1), tint(-1), tint(0), tint(-7)) == (LIGHT.more, LIGHT.less, (255, 255, 255), LIGHT.less)
    first, second = explain("attcat"), explain("raw_attention")
    page = difference_page([(first, second)])
    for word in difference(first, second).words():
        if not word.special:
            kind = "word shaded less" if word.score < -0.05 else "word shaded"
            assert f'class="{kind}" style="background:{css(tint(word.score))}' in page
    assert "&lt;" in page
    assert "<good>" not in page


def test_a_difference_becomes_a_figure(tmp_path):
    pair = explain("attcat", "it is a $good$ movie and " * 12), explain("rollout", "it is a $good$ movie and " * 12)
    figure = difference_figure([pair, pair])
    save(figure, tmp_path / "difference.png")
    drawn = [text.get_text() for text in figure.axes[0].texts]
    assert drawn.count("movie") == 24
    assert len({text.get_position()[1] for text in figure.axes[0].texts}) > 6  # long texts go on in a new line
