"""The scripts of AttCAT."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from papers.attcat.facts import DATASETS, METHODS, PAPER, TABLE_2
from papers.attcat.figure3 import NAMES
from tests.hub import Hub, Record
from tests.papers.conftest import RunDefault, RunScript
from tests.tokenizers_ import explainer_for

SENTENCES = (
    "it is a good movie and they are not bad at all , it is not",
    "the keys to the cabinet are not on the table and it is bad",
    "they are a good author and the book is not bad , it is good",
)
QUESTION = {
    "question": "who wrote the book ?",
    "context": "the book was written by a young author in Paris",
    "answers": {"text": ["a young author"], "answer_start": [24]},
}
COLUMNS = {"qqp": ("question1", "question2"), "mnli": ("premise", "hypothesis"), "amazon": ("content",)}


def read_rows(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The tables that a script wrote: name of the run -> first cell of a row -> its other cells."""
    tables = {}
    for path in folder.rglob("comparison.md"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        tables[path.parent.name] = {row[0]: row[1:] for row in cells}
    return tables


def make_hub() -> Hub:
    """Every data set of the paper, with three rows."""
    sets: dict[tuple[str, str | None], Mapping[str, Sequence[Record]]] = {}
    for name, checkpoint in PAPER.checkpoints.items():
        dataset, _, config = checkpoint.data.removeprefix("hf:").partition(":")
        if name in DATASETS:
            columns = COLUMNS.get(name, ("sentence",) if name == "sst2" else ("text",))
            rows = [{**dict.fromkeys(columns, text), "label": number % 2} for number, text in enumerate(SENTENCES)]
        else:
            rows = [QUESTION] * 3
        sets[dataset, config or None] = {str(checkpoint.split): rows}
    return Hub(sets)


def test_table_1(run_script: RunScript):
    tables = read_rows(run_script("attcat.table1", "--limit", 2))
    assert set(tables) == {f"{name}-small-written" for name in ("sst2", "qqp", "mnli", "yelp")}
    rows = tables["qqp-small-written"]
    assert list(rows)[1 : 1 + len(METHODS)] == list(METHODS)
    assert [rows["AttCAT"][2], rows["AttCAT"][5]] == ["0.139", "0.073"]
    assert all("nan" not in cell for row in rows.values() for cell in row)


def test_headings_name_model_data_and_number_of_texts(run_script: RunScript):
    folder = run_script("attcat.table1", "--dataset", "sst2", "--dataset", "qqp", "--limit", 2)
    headings = {path.parent.name: path.read_text("utf-8").splitlines()[0] for path in folder.rglob("comparison.md")}
    assert headings == {
        "sst2-small-written": "# AttCAT, table 1, SST2, as written: tokenlight/sst2-minilm on 2 texts of "
        "sentiment.tsv, small stand-in",
        "qqp-small-written": "# AttCAT, table 1, QQP, as written: pairs-seed0 on 2 texts of pairs.tsv, small stand-in",
    }


def test_the_released_protocol_differs_from_the_written_one(run_script: RunScript):
    run_script("attcat.table1", "--dataset", "sst2", "--limit", 2)
    tables = read_rows(run_script("attcat.table1", "--dataset", "sst2", "--limit", 2, "--released"))
    written, released = tables["sst2-small-written"], tables["sst2-small-released"]
    assert written["AttCAT"][0] != released["AttCAT"][0]
    assert written["AttCAT"][2] == released["AttCAT"][2] == "0.371"


def test_table_2(run_script: RunScript):
    tables = read_rows(run_script("attcat.table2", "--dataset", "mnli", "--limit", 2))
    rows = tables["mnli-small-written"]
    assert list(rows)[1 : 1 + len(TABLE_2.rows)] == list(TABLE_2.rows)
    assert {name: row[2] for name, row in rows.items()} | {"AttCAT": "0.017", "CAT": "0.339"} == {
        name: row[2] for name, row in rows.items()
    }


def test_figure_3(run_script: RunScript):
    folder = run_script("attcat.figure3", "--limit", 2)
    tables = read_rows(folder)
    assert set(tables) == {f"squad1-{model}-small-written" for model in ("bert", "distilbert", "roberta")}
    for rows in tables.values():
        assert list(rows)[1:4] == ["RawAtt", "Rollout", "AttCAT"]
        assert all(0 <= float(row[0]) <= 1 for row in list(rows.values())[1:4])  # answers of one token
    assert (folder / "figure3" / "all-small-written" / "figure3.png").stat().st_size > 5_000


def test_appendix_with_other_k(run_script: RunScript):
    arguments = ("--dataset", "squad1-bert", "--limit", 2, "--k", 1, 60, "--methods", "CAT", "--released")
    tables = read_rows(run_script("attcat.appendix_k", *arguments))
    rows = tables["squad1-bert-small-released"]
    assert rows["method"] == ["Precision@1 ↑", "Precision@60 ↑"]
    assert rows["CAT"][1] == "1.000"  # 60 tokens are all tokens


@pytest.mark.parametrize("released", [False, True])
def test_figure_4(run_script: RunScript, released: bool):
    folder = run_script("attcat.figure4", *(["--released"] if released else []))
    ((name, rows),) = read_rows(folder).items()
    assert list(rows)[1:] == ["[CLS]", "i", "do", "not", "like", "this", "movie", "[SEP]"]
    assert (rows["not"][2], rows["like"][2]) == ("0.72", "−0.37")  # with the digits of the paper
    assert (rows["[CLS]"][1] == "0.000") == released  # no token attends to [CLS] in the release
    assert (folder / "figure4" / name / "figure4.png").is_file()


def test_figure_4_is_normalized():
    from papers.attcat.figure4 import normalized_rows

    explanation = explainer_for("bert").explain("it is a good movie", "attcat", detail="layers")
    rows = normalized_rows(explanation)
    layers = [values for name, values in rows.items() if name.startswith("L")]
    assert list(rows)[-2:] == ["Rollout", "Sum"]
    assert sum((values**2).sum() for values in rows.values()) == pytest.approx(1)
    assert rows["Sum"] == pytest.approx(sum(layers))
    scores = explanation.scores / explanation.scores.norm()
    assert torch.tensor(rows["Sum"] / (rows["Sum"] ** 2).sum() ** 0.5).allclose(scores.double(), atol=1e-5)


def test_figure_5(run_script: RunScript):
    folder = run_script("attcat.figure5", "--text", "A dull film.", "--text", "A fine film.")
    pictures = sorted(path.name for path in folder.rglob("figure5*.png"))
    assert pictures == ["figure5-a1.png", "figure5-b1.png", "figure5-b2.png"]


@pytest.mark.parametrize("script", ["table1", "table2"])
def test_tables_by_default(run_default: RunDefault, script: str):
    hub = make_hub()
    asked = run_default(f"attcat.{script}", hub, explainer_for("bert"))
    assert asked == [PAPER.checkpoints[name].model for name in DATASETS]
    opened = {f"hf:{name}:{config}" if config else f"hf:{name}" for name, config, _ in hub.opened}
    assert opened == {PAPER.checkpoints[name].data for name in DATASETS}


def test_amazon_yelp_and_imdb_are_2000_random_samples(run_default: RunDefault, tmp_path: Path):
    run_default("attcat.table2", make_hub(), explainer_for("bert"), "--dataset", "imdb", "--seed", 3)
    assert "2,000 random examples are used (seed 3)" in next(tmp_path.rglob("comparison.md")).read_text("utf-8")


def test_question_scripts_by_default(run_default: RunDefault):
    explainer = explainer_for("bert", "question-answering")
    assert run_default("attcat.figure3", make_hub(), explainer) == [PAPER.checkpoints[name].model for name in NAMES]
    chosen = ("--dataset", "squad2-roberta", "--released")
    assert run_default("attcat.appendix_k", make_hub(), explainer, *chosen) == ["thatdramebaazguy/roberta-base-squad"]
    asked = run_default("attcat.figure5", make_hub(), explainer, "--dataset", "squad1-bert")
    assert asked == ["csarron/bert-base-uncased-squad-v1"]


def test_sentence_figures_by_default(run_default: RunDefault):
    for script in ("figure4", "figure5"):
        arguments = ("--dataset", "sst2")
        asked = run_default(f"attcat.{script}", make_hub(), explainer_for("bert"), *arguments)
        assert asked == ["textattack/bert-base-uncased-SST-2"]
