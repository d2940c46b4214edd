"""The scripts of Mask-LRP: with `--small` on a few texts, and as they are by default against a stub of the Hub."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from papers.facts import Item
from papers.mask_lrp import facts, small_parses
from papers.mask_lrp.masks import Masks, lower_thresholds
from papers.mask_lrp.methods import TRANS_ATT, by_label, choose_protocol
from papers.page import write_page
from tests.hub import Hub
from tests.papers.conftest import RunDefault, RunScript
from tests.tokenizers_ import explainer_for
from tokenlight.bench.protocol import PROTOCOLS
from tokenlight.data import read
from tokenlight.heads.count import count_heads
from tokenlight.heads.parses import Parse, ParsedWord
from tokenlight.methods import METHODS
from tokenlight.text.tokenized_text import parts

FEW = ("--limit", 2, "--runs", 2, "--dataset")
SENTENCES = [
    {"sentence": "it is a good movie and they are not bad", "label": 1},
    {"sentence": "the key is here and the cabinet is not", "label": 0},
]
REVIEWS = [{"text": row["sentence"], "label": row["label"]} for row in SENTENCES]
PASSAGE, ANSWER = "the book was written by a young author", "a young author"
ANSWERS = {"text": [ANSWER], "answer_start": [PASSAGE.index(ANSWER)]}
ASKED = [{"id": "1", "question": "who wrote the book ?", "context": PASSAGE, "answers": ANSWERS}] * 2


def splits(rows: list[dict[str, object]], *names: str) -> dict[str, list[dict[str, object]]]:
    return dict.fromkeys(names, rows)


@pytest.fixture
def hub() -> Hub:
    pairs = [{"question1": "who is here ?", "question2": "who is not here ?", "label": 1}] * 2
    inferences = [{"premise": "it is here", "hypothesis": "it is not", "label": label} for label in (0, 1, 2)]
    return Hub(
        {
            ("nyu-mll/glue", "sst2"): splits(SENTENCES, "train", "validation", "test"),
            ("nyu-mll/glue", "qqp"): splits(pairs, "train", "validation", "test"),
            ("nyu-mll/glue", "mnli"): splits(
                inferences, "train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"
            ),
            ("stanfordnlp/imdb", None): splits(REVIEWS, "train", "test"),
            ("fancyzhx/yelp_polarity", None): splits(REVIEWS, "train", "test"),
            ("rajpurkar/squad", None): splits(ASKED, "train", "validation"),
            ("rajpurkar/squad_v2", None): splits(ASKED, "train", "validation"),
        }
    )


def next_word_parses(texts: Iterable[str | tuple[str, str]], _: str) -> Iterator[Parse]:
    """In place of spaCy: every word is the subject of the next one."""
    for text in texts:
        words: list[ParsedWord] = []
        for segment, part in enumerate((text,) if isinstance(text, str) else text):
            spans = [match.span() for match in re.finditer(r"\S+", part)]
            last = len(words) + len(spans) - 1
            for span in spans:
                head = len(words) + 1 if len(words) < last else None
                words.append(ParsedWord(segment, span, head, "nsubj"))
        yield Parse(text, tuple(words))


@pytest.fixture(autouse=True)
def _parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "spacy_parses", next_word_parses)


def read_rows(folder: Path) -> dict[str, list[str]]:
    """The rows of the one comparison that a script has written, by their first column."""
    (path,) = folder.rglob("comparison.md")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text("utf-8").splitlines()]
    return {row[0]: row[1:] for row in rows if row}


def test_table_1_and_figure_3_share_a_run(run_script: RunScript):
    folder = run_script("mask_lrp.table1", *FEW, "qqp")
    rows = read_rows(folder)
    readings = {"Ours (as written)", "Ours (as released)", "Random mask (as written)", "Random mask (as released)"}
    assert {*facts.BASELINES, *readings, "GAE (as released: TransAtt)", "Every head (as released)"} <= set(rows)
    assert (rows["Ours (as written)"][2], rows["Ours (as released)"][5]) == ("0.451", "−6.001")
    assert rows["RawAtt"][2::3] == ["0.447", "−5.828"]
    assert re.fullmatch(r"−?\d\.\d{3} ± \d\.\d{3}", rows["Random mask (as released)"][0])
    (results,) = folder.rglob("results-00000.jsonl")
    before = results.stat().st_mtime_ns
    run_script("mask_lrp.figure3", *FEW, "qqp")
    assert results.stat().st_mtime_ns == before
    assert (folder / "table1" / "qqp" / "figure3.png").stat().st_size > 10_000


@pytest.mark.parametrize("model", ["bert", "gpt2", "roberta"])
def test_table_2(run_script: RunScript, model: str):
    rows = read_rows(run_script("mask_lrp.table2", "--limit", 3, "--dataset", f"squad1-{model}"))
    published = facts.TABLE_2.column(facts.QUESTIONS[f"squad1-{model}"])
    assert [rows[name][2] for name in ("Rollout", "RawAtt", "AttCAT")] == [
        f"{published[name]:.3f}" for name in ("Rollout", "RawAtt", "AttCAT")
    ]
    assert rows["Ours (as written)"][2] == f"{published['Ours']:.3f}"


def test_table_3(run_script: RunScript):
    folder = run_script("mask_lrp.table3", *FEW, "qqp", "--variant", "paper")
    names = [name.partition(" (as written, ")[0] for name in read_rows(folder)]
    assert names[2:6] == ["M", "only M_pos", "only M_synt", "Random mask (as written)"]
    (mask,) = (folder / "masks").iterdir()  # counted once and stored
    before = mask.stat().st_mtime_ns
    run_script("mask_lrp.table3", *FEW, "qqp", "--variant", "paper")
    assert mask.stat().st_mtime_ns == before


def test_table_4(run_script: RunScript):
    rows = read_rows(run_script("mask_lrp.table4", "--limit", 2, "--dataset", "imdb"))
    assert rows["ALTC (ALTI)"][2::3] == ["0.342", "−0.748"]
    assert rows["Ours (as written)"][2::3] == ["0.392", "−1.906"]


def test_table_5_by_default(run_default: RunDefault, hub: Hub, tmp_path: Path):
    run_default("mask_lrp.table5", hub, explainer_for("bert"))
    assert "| Valid | 6 | 20,000 |" in (tmp_path / "table5" / "mnli" / "comparison.md").read_text("utf-8")
    assert len(list(tmp_path.rglob("comparison.md"))) == len(facts.TABLE_5.rows)


def test_small_table_5(run_script: RunScript):
    assert read_rows(run_script("mask_lrp.table5", "--dataset", "qqp"))["Test"] == ["60", "390,965"]


def test_table_6(run_script: RunScript):
    rows = read_rows(run_script("mask_lrp.table6", "--dataset", "mnli"))
    assert rows["layers × heads"] == ["3 × 4"]
    assert rows["classes"] == ["entailment, neutral, contradiction"]


def test_figures_1_and_5(run_script: RunScript):
    folder = run_script("mask_lrp.figure1")
    assert read_rows(folder)["nsubj"][1:3] == ["−1", "0.604"]  # the statistics of the packaged mask
    assert (folder / "figure1" / "sst2" / "figure1.png").exists()
    run_script("mask_lrp.figure5", "--dataset", "mnli")
    drawn = (folder / "figure5" / "mnli" / "comparison.md").read_text("utf-8")
    assert re.search(r"\| layer\.head \| \d\.\d.* \| \d\.\d", drawn)
    assert (folder / "figure5" / "mnli" / "figure5.png").exists()


def test_figure_4(run_script: RunScript):
    folder = run_script("mask_lrp.figure4", *FEW, "qqp", "--variant", "released")
    rows = read_rows(folder)
    shares = [name for name in rows if name.startswith("as released, ")]
    assert shares == [f"as released, {share}%" for share in range(0, 101, 10)]
    assert "±" in rows["as released, 50%"][0]
    assert "±" not in rows["as released, 100%"][0]
    assert {"TransAtt", "TransAtt (rows not normalized)"} <= set(rows)
    assert (folder / "figure4" / "qqp" / "figure4.png").exists()


def test_figures_6_to_13(run_script: RunScript):
    folder = run_script("mask_lrp.figures6to13", "--dataset", "mnli") / "figures6to13" / "mnli"
    assert len(list(folder.glob("*-class?.png"))) == 3  # figures 7 to 9
    assert (folder / "figures6to13.html").read_text("utf-8").count("<section>") == 3 * 5


def test_figures_6_to_13_have_the_option_empty(run_script: RunScript):
    """With every block dark but the last, what is dropped changes the scores, and so the page that shows them."""
    pages = []
    for empty in ("all", "drop"):
        folder = run_script("mask_lrp.figures6to13", "--dataset", "sst2", "--limit", 3, "--empty", empty)
        pages.append((folder / "figures6to13" / "sst2" / "figures6to13.html").read_text("utf-8"))
    assert pages[0] != pages[1]


CLASSIFIERS = {
    "table1": ["--limit", 1, "--runs", 1],
    "table3": ["--runs", 1],
    "table4": [],
    "figure1": [],
    "figure4": ["--runs", 1, "--variant", "released"],
    "figure5": [],
    "figures6to13": [],
}


@pytest.mark.parametrize("script", CLASSIFIERS)
def test_default_commands_for_classifiers(run_default: RunDefault, hub: Hub, tmp_path: Path, script: str):
    """Masks are counted on training data, and the paper's own checkpoints and splits are asked for."""
    asked = run_default(f"mask_lrp.{script}", hub, explainer_for("bert", num_labels=3), *CLASSIFIERS[script])
    checkpoints = [facts.PAPER.checkpoints[path.name] for path in (tmp_path / script).iterdir()]
    assert checkpoints
    assert sorted(asked) == sorted(checkpoint.model for checkpoint in checkpoints)
    opened = {(name, split) for name, _, split in hub.opened}
    for checkpoint in checkpoints:
        name = checkpoint.data.removeprefix("hf:").partition(":")[0]
        assert (name, "train") in opened
        assert script in ("figure1", "figure5") or (name, checkpoint.split) in opened
    assert len(list((tmp_path / "masks").iterdir())) == len(checkpoints)


def test_released_masks_are_counted_on_training_and_validation_texts(run_default: RunDefault, hub: Hub, tmp_path: Path):
    run_default("mask_lrp.figure1", hub, explainer_for("bert"), "--released", "--dataset", "sst2", "--dataset", "imdb")
    counted = {path.name.partition("-")[0]: path.read_text("utf-8") for path in (tmp_path / "masks").iterdir()}
    both = "hf:nyu-mll/glue:sst2 (spacy, split train, sample of 2,500 by seed 0) and "
    both += "hf:nyu-mll/glue:sst2 (spacy, split validation, sample of 2,500 by seed 0)"
    assert f'"{both}"' in counted["sst2"]  # both splits of the stub are equally long
    assert '"texts": 4' in counted["sst2"]
    assert "split test" not in counted["imdb"]  # it has no validation set
    opened = len(hub.opened)
    run_default("mask_lrp.figure1", hub, explainer_for("bert"), "--released", "--dataset", "sst2")
    assert not [split for _, _, split in hub.opened[opened:] if split == "test"]
    assert (tmp_path / "masks" / "sst2-bert-base-uncased-SST-2-released.json").exists()


def test_default_command_for_questions(run_default: RunDefault, hub: Hub, tmp_path: Path):
    explainer = explainer_for("bert", "question-answering")
    asked = run_default("mask_lrp.table2", hub, explainer)
    assert asked == list(facts.ANSWERING.values())
    assert len(list(tmp_path.rglob("comparison.md"))) == 6


def test_default_command_of_table_6(run_default: RunDefault, hub: Hub, tmp_path: Path):
    asked = run_default("mask_lrp.table6", hub, explainer_for("bert"), "--dataset", "yelp")
    assert asked == ["fabriceyhc/bert-base-uncased-yelp_polarity"]


def test_without_spacy_the_error_says_what_to_do(run_default: RunDefault, hub: Hub, monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object) -> Iterator[Parse]:
        raise ImportError('parsing needs spacy: pip install "tokenlight[syntax]"')

    monkeypatch.setattr(read, "spacy_parses", missing)
    with pytest.raises(SystemExit, match=r"tokenlight\[syntax\].*--train-data.*--heads"):
        run_default("mask_lrp.figure1", hub, explainer_for("bert"))


def test_templated_texts_have_known_parses():
    parse = small_parses.parse_pair("anna lives in rome .", "anna does not live there .")
    words = [parts(parse.text)[word.segment][slice(*word.span)] for word in parse.words]
    found = {(words[i], word.relation, words[word.head]) for i, word in enumerate(parse.words) if word.head is not None}
    assert found == {("anna", "nsubj", "lives"), ("anna", "nsubj", "live"), ("not", "advmod", "live")}


def test_every_templated_text_has_a_subject():
    for data in small_parses.MAKERS:
        for parse in small_parses.small_parses(data, 50):
            for segment in (0, 1):
                assert any(word.relation == "nsubj" for word in parse.words if word.segment == segment), parse.text


def test_lowered_thresholds_let_a_few_heads_pass():
    explainer = explainer_for("bert")
    parse = Parse("the key is here", (ParsedWord(0, (4, 7), 1, "nsubj"), ParsedWord(0, (11, 15), None, "root")))
    counts = count_heads(explainer, [parse] * 2)
    masks = Masks.from_counts(counts, *lower_thresholds(counts))
    assert 0 < masks.of["paper"].count < masks.of["paper"].lit.numel()
    assert torch.equal(masks.of["released"].syntactic > 0, masks.of["paper"].syntactic > 0)


def test_both_readings_stand_beside_published_numbers():
    published = by_label({"Ours": [1.0], "GAE": [2.0], "AttCAT": [3.0]})
    assert published == {
        "Ours (as written)": [1.0],
        "Ours (as released)": [1.0],
        "generic_attention": [2.0],
        TRANS_ATT: [2.0],
        "attcat": [3.0],
    }


def test_facts_name_what_exists():
    assert set(facts.BASELINES.values()) <= set(METHODS)
    for name in facts.PAPER.checkpoints:
        assert {choose_protocol(name, released) for released in (False, True)} <= set(PROTOCOLS)
    kinds = [item.kind for item in facts.PAPER.items]
    assert [kinds.count(kind) for kind in ("table", "figure", "equation", "appendix")] == [6, 6, 13, 5]
    scripts = {path.stem for path in Path(facts.__file__).parent.glob("*.py")}
    used: list[Item] = [item for item in facts.PAPER.items if item.script]
    assert {item.script for item in used} <= scripts
    assert "### Figures 6–13" in write_page(facts.PAPER)
