"""The scripts of Arras et al.: with `--small` on a few sentences, and as they are by default on a tiny checkpoint."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tokenlight as tl
from papers import small_accuracy, small_texts
from papers.arras import appendix_d, dataset, facts, lxt_clock
from papers.arras.agreement import SENTENCES, explain_cases, sort_cases
from papers.arras.figure2 import highest_differences
from papers.arras.table3 import ALL
from papers.arras.tokenized import tokenize
from papers.page import write_page
from tests.hub import Hub
from tests.papers.conftest import RunDefault, RunScript
from tests.tokenizers_ import explainer_for
from tokenlight.bench.presets import ARRAS
from tokenlight.data import subject_verb
from tokenlight.methods import METHODS

FEW = ("--limit", 12, "--dataset")
TEXTS = [("the keys to the cabinet", "are", "is"), ("the key to the books", "is", "are")] * 3


def read_rows(folder: Path) -> dict[str, list[str]]:
    """The rows of the one comparison that a script has written, by their first column."""
    (path,) = folder.rglob("comparison.md")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text("utf-8").splitlines()]
    return {row[0]: row[1:] for row in rows if row and not row[0].startswith(":-")}


@dataclass
class Word:
    """A token of spaCy, as far as the library reads it."""

    text: str
    idx: int
    dep_: str = ""
    tag_: str = ""
    children: list["Word"] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.text)


class Parser:
    """In place of a spaCy pipeline: the second word is the subject of every form of a verb."""

    def pipe(self, texts: list[str]) -> Iterator[list[Word]]:
        for text in texts:
            words, place = [], 0
            for word in text.split():
                words.append(Word(word, place))
                place += len(word) + 1
            words[1].dep_ = "nsubj"
            for word in words:
                if word.text in {*small_texts.VERBS, *small_texts.VERBS.values()}:
                    word.tag_, word.children = "VBZ", [words[1]]
            yield words


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the spaCy pipelines that were asked for."""
    asked: list[str] = []

    def load(pipeline: str, exclude: object) -> Parser:
        asked.append(pipeline)
        return Parser()

    monkeypatch.setattr(subject_verb, "load_spacy", load)
    return asked


def test_small_sentences_are_those_of_the_templates(tmp_path: Path):
    small_texts.write_annotated_agreement(tmp_path / "agreement.jsonl", 300, seed=1_000)
    small_texts.write_agreement(tmp_path / "agreement.tsv", 300, seed=1_000)
    assert (tmp_path / "agreement.jsonl").read_text() == SENTENCES.read_text()
    assert (tmp_path / "agreement.tsv").read_text() == SENTENCES.with_suffix(".tsv").read_text()


def test_table_1(run_script: RunScript):
    folder = run_script("arras.table1", *FEW, "llama-1b")
    rows = read_rows(folder)
    assert list(rows) == ["method", "ALTI-Logit", "LRP", "AttnLRP", *list(facts.TITLES.values())[3:]]
    for name, cells in rows.items():
        assert name == "method" or cells[4:12:2] == cells[5:12:2]  # assumptions are those of the paper
    assert rows["ALTI-Logit"][:2] == ["token, layer, head", "token, head, layer"]
    assert rows["LRP"][-2:] == ["1.000", "1.000"]  # no biases
    assert rows["AttnLRP"][-1] == "1.000"
    assert rows["AttnLRP"][-2] != "1.000"  # the softmax keeps a share
    (path,) = folder.rglob("comparison.md")
    assert (
        "*sum / difference* is a mean over them, *with shares* the value of the one that is farthest"
        in path.read_text()
    )


def test_table_2(run_script: RunScript):
    folder = run_script("arras.table2", *FEW, "gpt2-small", "--method", "lrp:epsilon=0.1", "--method", "lrp:gamma=0.25")
    rows = read_rows(folder)
    assert list(rows)[1:9] == [*facts.TITLES.values(), "LRP (epsilon=0.1)", "LRP (gamma=0.25)"]
    assert rows["ALTI-Logit"][2::3] == ["0.867", "0.808", "0.342", "0.330"]
    assert rows["Gradient, ℓ1"][2::3] == rows["Gradient, squared ℓ2"][2::3] == ["0.592", "0.551", "0.255", "0.153"]
    assert rows["Random"][2::3] == ["0.277", "0.360", "0.151", "0.501"]
    assert all("±" in cell for cell in rows["Random"][::3])  # ten runs
    assert rows["LRP"][::3] != rows["LRP (gamma=0.25)"][::3]
    (path,) = folder.rglob("comparison.md")
    assert "the PTA of Gradient is the same, as it must be" in path.read_text("utf-8")


def test_table_2_of_a_masked_model(run_script: RunScript):
    rows = read_rows(run_script("arras.table2", *FEW, "bert-base"))
    assert "ALTI-Logit" not in rows
    assert rows["LRP"][2::3] == ["0.688", "0.637", "0.208", "0.339"]


def test_table_3(run_script: RunScript):
    rows = read_rows(run_script("arras.table3", *FEW, "llama-1b"))
    assert 0 <= float(rows["accuracy"][0]) <= 1
    assert [cells[1] for cells in rows.values()][1:] == [
        "0.954", "1,000", "16", "32", "2,048", "128,256", "tiktoken BPE",
    ]  # fmt: skip
    assert rows["layers"][0] == "3"


def test_figure_1(run_script: RunScript):
    folder = run_script("arras.figure1", *FEW, "bert-base")
    assert read_rows(folder)["method"][1:] == list(facts.METRICS)
    assert (folder / "figure1" / "bert-base" / "figure1.png").stat().st_size > 10_000


def test_figure_2_shows_the_highest_differences(
    run_script: RunScript, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    run_script("arras.figure2", "--limit", 20)  # the paper's model by default
    printed = [line for line in capsys.readouterr().out.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.")]
    differences = [float(line.partition(": ")[2].partition(" ")[0]) for line in printed]
    assert differences == sorted(differences, reverse=True)
    assert (tmp_path / "figure2" / "llama-1b" / "figure2.png").stat().st_size > 10_000
    explainer, source = explainer_for("gpt2", "text-generation"), tl.DataSource(lgd_as_annotated(tmp_path))
    cases = [case for some, _ in sort_cases(explainer, source, ARRAS) for case in some]
    scores = [one.score for one in explain_cases(explainer, cases, "lrp")]
    assert cases
    assert [score for score, _ in highest_differences(explainer, source)] == pytest.approx(
        sorted(scores, reverse=True)[:5]
    )


def lgd_as_annotated(folder: Path) -> Path:
    cases = []
    for number, (before, verb, other) in enumerate(TEXTS):
        span, subject = (len(before) + 1, len(before) + 1 + len(verb)), (4, 4 + len(before.split()[1]))
        cases.append(subject_verb.AgreementCase(str(number), "", f"{before} {verb} here", span, subject, other, 1))
    subject_verb.write_cases(folder / "annotated.jsonl", cases)
    return folder / "annotated.jsonl"


def test_data_set(run_script: RunScript, parsers: list[str]):
    folder = run_script("arras.dataset", *FEW, "llama-1b")
    rows = read_rows(folder)
    assert rows["rows of the LGD file"] == ["12", "29,985"]
    assert rows["samples"] == ["12", "28,629"]
    assert rows["share of subjects of 1 token"] == ["1", "0.894"]
    assert parsers == [subject_verb.SPACY_PIPELINE]
    exported = folder / "dataset" / "llama-1b"
    written = [json.loads(line) for line in (exported / "tokens.jsonl").read_text("utf-8").splitlines()]
    annotated = [json.loads(line) for line in (exported / "agreement.jsonl").read_text("utf-8").splitlines()]
    for tokens, sentence in zip(written, annotated, strict=True):
        (place,) = tokens["subject"]
        assert tokens["tokens"][place] == "▁" + sentence["text"][slice(*sentence["subject"])]
    run_script("arras.dataset", *FEW, "llama-1b")
    assert len(parsers) == 1  # subjects are found once and kept


def test_malformed_rows_are_not_rows_without_a_subject(run_script: RunScript, parsers: list[str], tmp_path: Path):
    before, verb, other = TEXTS[0]
    good = f"1\t{before} {verb} here .\t{before} ***mask*** here .\t{verb}\t{other}\n"
    differing = good.replace("***mask*** here", "***mask*** there")
    without_subject = good.replace(verb, "go").replace(other, "goes")  # the stub knows no such verb
    (tmp_path / "lgd.tsv").write_text(good + "two columns\tonly\n" + differing + without_subject)
    rows = read_rows(
        run_script("arras.dataset", "--data", tmp_path / "lgd.tsv", "--dataset", "bert-base", "--limit", 4)
    )
    assert rows["rows of the LGD file"][0] == "4"
    assert rows["not in the format of the LGD file"] == ["2", "–"]
    assert rows["no nominal subject"] == ["1", "1,005"]


@pytest.mark.parametrize(("family", "task"), [("bert", "fill-mask"), ("gpt2", "text-generation")])
def test_exported_tokens_are_those_of_the_benchmark(family: str, task: str, tmp_path: Path):
    explainer, source = explainer_for(family, task), tl.DataSource(lgd_as_annotated(tmp_path))
    assert explainer.task.gap is not None
    sentences, _ = tokenize(explainer.tokenizer, source, explainer.task.gap)
    drafts = [case.draft for some, _ in sort_cases(explainer, source, ALL) for case in some]
    assert [one.input_ids for one in sentences] == [list(draft.tokenized_text.input_ids) for draft in drafts]
    assert [one.subject for one in sentences] == [
        draft.marks.nonzero()[:, 0].tolist() for draft in drafts if draft.marks is not None
    ]


@pytest.mark.parametrize(
    ("verb", "other", "plural"),
    [("is", "are", False), ("are", "is", True), ("pass", "passes", True), ("has", "have", False)],
)
def test_number_of_a_verb(verb: str, other: str, plural: bool):
    assert dataset.is_plural(verb, other) is plural


def test_appendix_d(run_script: RunScript, tmp_path: Path):
    run_script("arras.appendix_d")
    (stored,) = tmp_path.rglob("appendix_d-rules.json")
    rows = json.loads(stored.read_text("utf-8"))["rows"]
    assert [name for name, _ in rows] == list(appendix_d.CHECKS)
    assert all(float(difference) < 1e-12 for _, difference in rows)


def test_speed(run_script: RunScript, tmp_path: Path):
    """With a program in place of LXT's Python that says how long each of three sentences took."""
    lxt = tmp_path / "python"
    answer = json.dumps({"seconds": [50.0] * 3, "scores": [float(i) for i in range(9)]})
    lxt.write_text(f"#!/bin/sh\necho '{answer}'\n")
    lxt.chmod(0o755)
    rows = read_rows(run_script("arras.speed", "--limit", 3, "--dataset", "llama-1b", "--lxt-python", lxt))
    assert rows["AttnLRP with LXT's explicit rules"][0] == "50000.00"
    assert float(rows["AttnLRP with LXT's explicit rules"][1]) > 1
    assert rows["attn_lrp"][1] == "1.00"
    assert rows["published: LXT / LRPx"][1] == "1.54 to 1.61"


class EpsilonLinear(torch.autograd.Function):
    """As in LXT: what comes back is relevance, not a gradient."""

    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.T

    @staticmethod
    def backward(ctx, relevance):  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, weight = ctx.saved_tensors
        return inputs * ((relevance / (inputs @ weight.T)) @ weight), None


def test_explicit_rules_explain_the_difference_of_two_logits():
    """On a linear model, relevance is the gradient of the difference times the input."""
    torch.manual_seed(0)
    embeddings, weight = torch.nn.Embedding(5, 4), torch.randn(6, 4)

    class Model:
        device = "cpu"

        def get_input_embeddings(self) -> torch.nn.Embedding:
            return embeddings

        def __call__(self, inputs_embeds: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=EpsilonLinear.apply(inputs_embeds, weight))

    scores = lxt_clock.explain(Model(), [1, 3], 1, 2, 5)
    expected = (embeddings.weight[3].detach() * (weight[2] - weight[5])).sum()
    assert scores.tolist() == pytest.approx([0, float(expected)], rel=1e-5)


SCRIPTS = ("table1", "table2", "table3", "figure1", "figure2", "dataset", "speed")


@pytest.mark.parametrize("script", SCRIPTS)
def test_default_commands(
    run_default: RunDefault, parsers: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
):
    """They read the LGD file in the working folder, parse it with the paper's pipeline, and load its checkpoints."""
    lines = [f"1\t{a} {v} here .\t{a} ***mask*** here .\t{v}\t{o}\n" for a, v, o in TEXTS]
    (tmp_path / facts.LGD).write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    source = explainer_for("gpt2", "text-generation")
    explainer = tl.Explainer(copy.deepcopy(source.model), source.tokenizer)
    tokenizers: list[str] = []

    def load_tokenizer(name: str) -> object:
        tokenizers.append(name)
        return explainer.tokenizer

    monkeypatch.setattr(dataset.AutoTokenizer, "from_pretrained", load_tokenizer)
    asked = run_default(f"arras.{script}", Hub({}), explainer)
    names = {"figure2": ["llama-1b"], "speed": list(facts.SPEED_UPS)}.get(script, list(facts.MODELS))
    assert (tokenizers or asked) == [facts.PAPER.checkpoints[name].model for name in names]
    assert parsers == [facts.SPACY]
    assert len(list((tmp_path / script).iterdir())) == len(names)


def test_missing_data_are_named(
    run_script: RunScript, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run_script("arras.table2", "--dataset", "gpt2-xl", small=False)
    assert facts.LGD_ADDRESS in capsys.readouterr().err


def test_classifiers_are_refused(run_script: RunScript):
    with pytest.raises(ValueError, match="text-classification"):
        run_script("arras.table3", "--limit", 2, "--dataset", "bert-base", "--model", "default")


def test_facts(tmp_path: Path):
    folder = Path(facts.__file__).parent
    assert all((folder / f"{item.script}.py").is_file() for item in facts.PAPER.items if item.script)
    assert all(name.partition(":")[0] in METHODS for name in facts.METHODS)
    page = write_page(facts.PAPER)
    for number in ("0.884", "28,472", "1.98", "0.954"):
        assert number in page


@pytest.mark.parametrize("name", ["agreement-bert", "agreement-gpt2", "questions", "pairs", "reviews-bert"])
def test_accuracy_of_small_models(name: str, monkeypatch: pytest.MonkeyPatch):
    """Here they are hardly trained: neither always right nor measured as anything but a share."""
    monkeypatch.setattr(small_accuracy, "COUNT", 20)
    assert 0 <= small_accuracy.accuracy_of(name) < 1
