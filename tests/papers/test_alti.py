"""The scripts of ALTI."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

import tokenlight as tl
from papers.alti import cosines, facts, finetune, small
from papers.alti.agreement import NUMBERS, MaskedNumber, number_of, read_part
from papers.alti.curves import released_curves
from papers.options import Run
from papers.small_texts import write_agreement
from tests.hub import Hub
from tests.methods import test_alti_equations as equations
from tests.papers.conftest import RunScript
from tests.rounding import assert_near
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.runs.run_folder import Journal

PUBLISHED_TRAINING = {"CLASSIFIER": finetune.CLASSIFIER, "AGREEMENT": finetune.AGREEMENT}
PICTURE = b"\x89PNG"
TEXTS = {
    "sentence": ["it is a good movie", "a clever blend of fact and fiction", "meditation on the nature of revolution"],
    "text": ["the mango and shrimp quesadilla", "isles are narrow", "food fight so much", "a film with Bill McGhee"],
}


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch):
    for name in ("CLASSIFIER", "AGREEMENT", "SMALL_AGREEMENT"):
        monkeypatch.setattr(finetune, name, finetune.Training(1, 64, 1e-3))


def rows_of(folder: Path, script: str, run: str) -> dict[str, list[str]]:
    """The cells of a script's comparison by the first of their row."""
    lines = (folder / script / run / "comparison.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in rows}


def test_every_item_has_its_number_once():
    numbers = [(item.kind, item.number) for item in facts.PAPER.items]
    assert len(set(numbers)) == len(numbers)
    assert [number for kind, number in numbers if kind == "table"] == [str(n) for n in range(1, 10)]
    assert [number for kind, number in numbers if kind == "figure"] == [str(n) for n in range(1, 13)]
    written = {path.stem for path in Path(facts.__file__).parent.glob("*.py")}
    assert {item.script for item in facts.PAPER.items if item.script} <= written


@pytest.mark.parametrize(
    ("script", "run", "titles", "best"),
    [
        ("table2", "bert-sst2", facts.METHODS, ["0.317", "0.044"]),
        ("table2", "bert-sva", facts.METHODS, ["0.372", "0.088"]),
        ("table6", "distilbert-yelp", facts.METHODS, ["0.237", "0.017"]),
        ("table7", "roberta-sva", facts.METHODS, ["0.39", "0.109"]),  # with the digits of the paper
        ("table4", "distilbert-sva", ("Norms", "ALTI ℓ2"), ["0.357", "0.096"]),
        ("table5", "roberta-yelp", ("ALTI ℓ1", "ALTI ℓ2"), ["0.108", "0.104"]),
    ],
)
def test_faithfulness(run_script: RunScript, script: str, run: str, titles: tuple[str, ...], best: list[str]):
    rows = rows_of(run_script(f"alti.{script}", "--dataset", run, "--limit", 2, "--steps", 2), script, run)
    assert set(titles) <= set(rows)
    assert rows[titles[-1]][2::3] == best  # the published numbers
    float(rows[titles[-1]][0].replace("−", "-"))


def test_the_released_protocol_differs(run_script: RunScript):
    folder = run_script("alti.table5", "--dataset", "bert-sst2", "--limit", 2, "--released")
    assert "protocol alti\n" in (folder / "table5/bert-sst2/comparison.md").read_text()


@pytest.mark.parametrize(
    ("script", "methods", "word", "prediction"),
    [
        ("table1", 3, "birthday", "negative"),
        ("table3", 3, "register", "negative"),
        ("table8", 4, "terrace", "negative"),
        ("table9", 4, "lighthouse", "positive"),
    ],
)
def test_saliency_maps(run_script: RunScript, script: str, methods: int, word: str, prediction: str):
    """Each has a review of its own, of the paper's kind."""
    folder = run_script(f"alti.{script}", "--steps", 2) / script
    (run,) = folder.iterdir()
    rows = rows_of(folder.parent, script, run.name)
    assert len(rows) - 1 == methods
    assert all(len(cells[0].split(", ")) == 8 for name, cells in rows.items() if name != "method")
    assert word in (run / "maps.html").read_text()
    assert word in (run / "maps.tex").read_text()
    (found,) = re.findall(r"predicted: (\w+) .*, (\d+) tokens", (run / "comparison.md").read_text())
    assert found[0] == prediction
    assert (int(found[1]) > 200) == (script == "table9")


@pytest.mark.parametrize("script", ["figure5", "figure10", "figure11", "figure12"])
def test_matrices_of_layers(run_script: RunScript, script: str):
    folder = run_script(f"alti.{script}", "--text", "a good film .")
    assert (folder / script / "bert-sst2" / f"{script}.png").read_bytes().startswith(PICTURE)


def test_anisotropy(run_script: RunScript):
    folder = run_script("alti.figure3", "--limit", 2)
    assert (folder / "figure3" / "figure3.png").read_bytes().startswith(PICTURE)
    for run in ("bert-sst2", "roberta-sst2", "distilbert-sst2"):
        rows = rows_of(folder, "figure3", run)
        assert set(rows) == {"cosine similarity of", "outputs", "vectors"}
        assert len(rows["outputs"]) == (6 if run == "bert-sst2" else 3)
    released = rows_of(
        run_script("alti.figure3", "--dataset", "bert-sst2", "--limit", 2, "--released"), "figure3", "bert-sst2"
    )
    assert len(released["outputs"]) == 7  # the states before the first layer, too


def test_cosines_are_those_of_the_equations():
    """Against y_i and T_i(x_j) written down as in the paper."""
    method = replace(find_method("alti"), name="cosines", function=cosines.cosines)
    method_configs = {of: MethodConfig(method, {"of": of}) for of in ("outputs", "vectors")}
    found = equations.explainer().explain_configs(equations.TEXT, method_configs)
    for layer in range(len(equations.layers())):
        with torch.no_grad():
            rows, outputs = equations.vectors_of(layer)
        y, vectors = torch.stack(outputs), torch.stack([torch.stack(row) for row in rows])  # [i, dim], [i, j, dim]
        between = cosine_similarity(vectors[:, :, None], vectors[:, None], dim=-1).mean(0)
        assert_near(found["vectors"].maps["contributions"][layer], between)
        assert_near(found["outputs"].maps["contributions"][layer], cosine_similarity(y[:, None], y[None], dim=-1))


def test_curves(run_script: RunScript):
    folder = run_script("alti.figure6", "--limit", 2, "--steps", 2)
    for run in ("bert-yelp", "bert-sva"):
        assert set(facts.METHODS) <= set(rows_of(folder, "figure6", run))
        assert (folder / "figure6" / run / "figure6.png").read_bytes().startswith(PICTURE)


def test_released_curves_are_the_lowest_probabilities_so_far(run_script: RunScript):
    """Against the stored probabilities of each text, from which the release's points are written down by hand."""
    folder = run_script("alti.figure6", "--limit", 4, "--steps", 2, "--released") / "figure6"
    assert (folder / "bert-sva" / "figure6.png").read_bytes().startswith(PICTURE)
    for run, special in (("bert-yelp", 2), ("bert-sva", 3)):
        records = list(Journal(folder / run / "results-00000.jsonl"))
        lengths = [record["tokens"] - special for record in records]  # tokens that can be deleted
        last = [length - (special == 3) for length in lengths]  # of agreement, a word stays beside [MASK]
        curves = [record["methods"]["ALTI"]["curves"]["comprehensiveness"] for record in records]
        found = released_curves(folder / run, agreement=special == 3)["ALTI"]
        for deleted in range(min(13, 1 + max(last))):
            lowest = [min(curve[: deleted + 1]) for curve, end in zip(curves, last, strict=True) if deleted <= end]
            assert found[deleted] == pytest.approx(sum(lowest) / len(lowest))
        assert len(found) == min(13, 1 + max(last))
        assert [float(cell) for cell in rows_of(folder.parent, "figure6", run)["ALTI"]][:2] == pytest.approx(
            found[:2], abs=0.001
        )


@pytest.mark.parametrize("script", ["figure7", "figure8"])
def test_likeness_between_seeds(run_script: RunScript, monkeypatch: pytest.MonkeyPatch, script: str):
    """A model and itself are alike; models of two seeds that are hardly trained may agree on no text."""
    monkeypatch.setitem(small.SMALL, "multiberts-1", small.SMALL["multiberts-0"])
    seeds = ("--dataset", "multiberts-0", "--dataset", "multiberts-1")
    folder = run_script(f"alti.{script}", *seeds, "--limit", 2, "--steps", 2)
    rows = rows_of(folder, script, "")
    assert list(rows) == ["method", "Grad_ℓ2", "IG_ℓ2", "IG_μ", "G×I_ℓ2", "G×I_μ", "ALTI"]
    assert all(cells == ["1.000"] * 3 for name, cells in rows.items() if name != "method")
    assert (folder / script / f"{script}.png").read_bytes().startswith(PICTURE)


def test_curves_over_seeds(run_script: RunScript):
    folder = run_script("alti.figure9", "--dataset", "multiberts-0", "--dataset", "multiberts-1", "--limit", 2)
    rows = rows_of(folder, "figure9", "")
    assert list(rows) == ["deleted tokens", "ALTI + LN2", "ALTI", "Globenc"]
    assert rows["deleted tokens"] == ["1", "2", "3", "5", "10", "18"]
    assert (folder / "figure9" / "figure9.png").read_bytes().startswith(PICTURE)


def test_curves_over_seeds_as_released(run_script: RunScript):
    seeds = ("--dataset", "multiberts-0", "--dataset", "multiberts-1")
    rows = rows_of(run_script("alti.figure9", *seeds, "--limit", 4, "--released"), "figure9", "")
    assert rows["deleted tokens"][:4] == ["0", "1", "2", "3"]
    values = [float(cell.split()[0]) for cell in rows["ALTI"]]
    assert values[0] >= values[1] >= values[2]  # all texts have two tokens to delete


# --- Agreement ------------------------------------------------------------------------------------------------------


def test_parts_of_the_agreement_data(tmp_path: Path):
    path = write_agreement(tmp_path / "lgd.tsv", 50, 0)
    parts = {part: read_part(path, part) for part in ("train", "validation", "test")}
    assert [len(examples) for examples in parts.values()] == [30, 10, 10]
    assert len({example.id for examples in parts.values() for example in examples}) == 50


def test_parts_of_the_agreement_data_as_released(tmp_path: Path):
    """Known verbs other than is and are; each part has the same share of singular ones, in the order of the file."""
    path = write_agreement(tmp_path / "lgd.tsv", 400, 0)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    tokenizer: Any = SimpleNamespace(get_vocab=lambda: {"has": 0, "have": 1, "likes": 2, "like": 3, "Ġknows": 4})
    parts = {part: read_part(path, part, True, tokenizer) for part in ("train", "validation", "test")}
    kept = [number for number, line in enumerate(lines, 1) if line[3] in ("has", "have", "likes", "like")]
    assert sorted(int(one.id) for examples in parts.values() for one in examples) == kept
    singular = sum(lines[number - 1][3] in ("has", "likes") for number in kept)
    for part, share in (("train", 0.7), ("validation", 0.15), ("test", 0.15)):
        numbers = [int(one.id) for one in parts[part]]
        assert numbers == sorted(numbers)
        assert sum(one.label == "singular" for one in parts[part]) == pytest.approx(share * singular, abs=1)
        assert sum(one.label == "plural" for one in parts[part]) == pytest.approx(share * (len(kept) - singular), abs=1)


def test_numbers_of_verbs():
    pairs = [("is", "are"), ("has", "have"), ("likes", "like"), ("goes", "go"), ("was", "were"), ("does", "do")]
    for singular, plural in pairs:
        assert (number_of(singular, plural), number_of(plural, singular)) == NUMBERS


def test_the_answer_is_read_at_the_mask():
    explainer = tl.Explainer(model_for("bert", "token-classification"), tokenizer_for("bert"), MaskedNumber)
    text = "the keys to the cabinet [MASK] here"
    explanation = explainer.explain(text, "alti", layers=True)
    mask = explanation.tokens.index("[MASK]")
    torch.testing.assert_close(explanation.scores, explanation.maps["mixing"][-1][mask])
    with torch.no_grad():
        logits = explainer.inner(**explainer.tokenizer(text, return_tensors="pt")).logits[0, mask]
    assert explanation.score == pytest.approx(float(logits.max()), abs=1e-5)
    with pytest.raises(ValueError, match="found 0"):
        explainer.explain("the keys are here", "alti")


def test_training_an_agreement_head(run_script: RunScript):
    folder = run_script("alti.finetune", "--dataset", "bert-sva")
    config = json.loads((folder / "models/bert-sva-small/config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert list(config["id2label"].values()) == list(NUMBERS)
    explainer = tl.load(folder / "models/bert-sva-small")
    examples = read_part(small.AGREEMENT["bert-sva"].file, "train")[:8]
    texts = [(str(one.text).replace("***mask***", "[MASK]"), NUMBERS.index(str(one.label))) for one in examples]
    run: Any = SimpleNamespace(device=None, name="bert-sva")
    model = finetune.train(explainer.model, explainer.tokenizer, texts, texts, finetune.Training(25, 8, 3e-3), run)
    assert finetune.mean_loss(model, explainer.tokenizer, texts) < 0.2  # it has learned them by heart


def test_a_trained_model_does_not_depend_on_what_ran_before(run_script: RunScript):
    weights = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        folder = run_script("alti.finetune", "--dataset", "bert-sva") / "models" / "bert-sva-small"
        weights.append(tl.load(folder).model.state_dict())
        shutil.rmtree(folder)
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


@pytest.mark.parametrize("decay", [True, False])
def test_the_learning_rate_of_classifiers_falls(monkeypatch: pytest.MonkeyPatch, decay: bool):
    assert (PUBLISHED_TRAINING["CLASSIFIER"].decay, PUBLISHED_TRAINING["AGREEMENT"].decay) == (True, False)
    rates: list[float] = []
    step = torch.optim.Adam.step

    def stored_step(self: torch.optim.Adam, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", stored_step)
    model, tokenizer = model_for("bert", "text-classification", num_labels=2), tokenizer_for("bert")
    examples = [("it is good", 1), ("it is bad", 0), ("they are good", 1)]
    run: Any = SimpleNamespace(device=None, name="multiberts-0")
    finetune.train(model, tokenizer, examples, (), finetune.Training(2, 2, 1e-3, decay), run)
    shares = (1, 0.75, 0.5, 0.25) if decay else (1, 1, 1, 1)
    assert rates == pytest.approx([1e-3 * share for share in shares])


def test_training_is_kept_when_the_model_moves_to_another_device():
    """Without validation examples. A model that is cast to another type has new tensors, as on another device."""
    model, tokenizer = model_for("bert", "text-classification", num_labels=2), tokenizer_for("bert")
    before = [value.clone() for value in model.parameters()]
    run: Any = SimpleNamespace(device=torch.float64, name="multiberts-0")
    trained = finetune.train(model, tokenizer, [("it is good", 1)], (), finetune.Training(1, 1, 1e-2), run)
    assert not all(
        torch.equal(a, b) for a, b in zip(before, map(torch.Tensor.float, trained.parameters()), strict=True)
    )


# --- The default commands -------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Tiny checkpoints in place of the paper's, its data sets in memory, and the agreement file in the folder."""
    tokenizer = tokenizer_for("bert")
    for task, folder in (("text-classification", "classifier"), ("fill-mask", "base")):
        settings = {"num_labels": 2} if folder == "classifier" else {}
        model_for("bert", task, **settings).save_pretrained(tmp_path / folder)
        tokenizer.save_pretrained(tmp_path / folder)
    for name, checkpoint in facts.PAPER.checkpoints.items():
        folder = "base" if name in facts.TRAINED else "classifier"
        monkeypatch.setitem(facts.PAPER.checkpoints, name, replace(checkpoint, model=str(tmp_path / folder)))
    monkeypatch.chdir(tmp_path)
    write_agreement(tmp_path / "lgd_dataset.tsv", 10, 0)
    splits = {
        column: {split: [{column: text, "label": i % 2} for i, text in enumerate(texts)] for split in ("train", "test")}
        for column, texts in TEXTS.items()
    }
    sets: dict[tuple[str, str | None], Any] = {("nyu-mll/glue", "sst2"): splits["sentence"]}
    sets |= {(name, None): splits["text"] for name in ("stanfordnlp/imdb", "fancyzhx/yelp_polarity")}
    return Hub(sets).install(monkeypatch)


SCRIPTS = [f"table{n}" for n in range(1, 10)] + [f"figure{n}" for n in (3, 5, 6, 7, 8, 9, 10, 11, 12)]
CHOSEN: dict[str, tuple[str, ...]] = {  # one run of each kind
    "table2": ("bert-sst2", "bert-sva"),
    "table4": ("distilbert-yelp", "roberta-imdb"),
    "table5": ("bert-yelp",),
    "table6": ("distilbert-yelp",),
    "table7": ("roberta-sva",),
    "figure3": ("bert-sst2", "roberta-sst2"),
    "figure6": ("bert-imdb",),
    "figure7": ("multiberts-0", "multiberts-1"),
    "figure8": ("multiberts-0", "multiberts-1"),
    "figure9": ("multiberts-0", "multiberts-1"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_default_commands(run_script: RunScript, hub: Hub, script: str):
    chosen = [part for name in CHOSEN.get(script, ()) for part in ("--dataset", name)]
    folder = run_script(f"alti.{script}", *chosen, "--limit", 1, "--steps", 1, small=False)
    assert list((folder / script).rglob("*.md")) + list((folder / script).rglob("*.png"))
    assert hub.opened or script == "table7"  # agreement is a file


def test_missing_data_are_named_before_any_work(
    run_script: RunScript, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "lgd_dataset.tsv").unlink()
    with pytest.raises(SystemExit):
        run_script("alti.table2", small=False)
    assert "github.com/yoavg/bert-syntax" in capsys.readouterr().err
    assert not hub.opened


def test_a_missing_text_is_refused(run_script: RunScript, hub: Hub, monkeypatch: pytest.MonkeyPatch):
    Hub({("fancyzhx/yelp_polarity", None): {"test": [{"text": "fine", "label": 0}]}}).install(monkeypatch)
    with pytest.raises(SystemExit, match="give one with --text"):
        run_script("alti.table1", small=False)


def test_models_of_different_splits_and_data_have_different_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paper = facts.PAPER.checkpoints["bert-sva"]
    monkeypatch.chdir(tmp_path)
    for name in (paper.data, "other.tsv"):
        Path(name).write_text("text\n")
    run = Run("bert-sva", paper, paper.model, tl.DataSource(paper.data), tmp_path / "table2" / "bert-sva", None, False)
    other = replace(run, source=tl.DataSource("other.tsv"))
    runs = [(run, False), (run, True), (other, False), (replace(run, small=True), False)]
    assert len({finetune.name_model(*one) for one in runs}) == len(runs)
