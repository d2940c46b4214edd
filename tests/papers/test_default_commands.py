"""The default command of every script, without a single option, up to the first texts that its model reads.

In place of the Hub, the working folder has checkpoints under the names that the scripts ask for. They are tiny and
random, and in the formats of their time: `pytorch_model.bin`, gamma and beta, no tokenizer.json, labels that no file
names. Nothing between a script and its model is replaced.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from papers import small_texts
from papers.facts import Checkpoint
from papers.page import FOLDERS, find_paper
from tests.explain.test_legacy_checkpoints import save, save_bytes, save_wordpiece
from tests.hub import Hub, Record
from tests.papers.test_alti import TEXTS
from tests.papers.test_arras import Parser
from tests.papers.test_mask_lrp import next_word_parses
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.data import read, subject_verb

SCRIPTS = sorted(
    f"{folder}.{path.stem}"
    for folder in FOLDERS
    for path in Path(str(import_module(f"papers.{folder}").__file__)).parent.glob("*.py")
    if "\ndef main(arguments: Sequence[str] | None = None)" in path.read_text(encoding="utf-8")
)
WITHOUT_TEXTS = ("arras.appendix_d", "arras.dataset", "mask_lrp.table5", "mask_lrp.table6")  # which no model reads
PROBE = 4  # tokens of the inputs with which the library finds out what a model computes; the texts here are longer
FAMILIES = {"distilbert": "distilbert", "roberta": "roberta", "gpt2": "gpt2", "llama": "llama"}  # else bert
AGREEMENT = "lgd_dataset.tsv"
QUESTION = {
    "question": "who wrote the book ?",
    "context": "the book was written by a young author in Paris",
    "answers": {"text": ["a young author"], "answer_start": [24]},
}


class ModelHasRead(BaseException):
    """Ends a script: a model has read its first texts. No `except Exception` may set it aside."""


def family_of(name: str) -> str:
    return next((family for mark, family in FAMILIES.items() if mark in name.lower()), "bert")


def task_of(checkpoint: Checkpoint) -> str:
    if "squad" in checkpoint.data:
        return "question-answering"
    if family_of(checkpoint.model) in ("gpt2", "llama"):
        return "text-generation"
    without_head = checkpoint.model.endswith(("-base", "-cased", "bert-base-uncased", "bert-large-uncased"))
    return "fill-mask" if without_head or "multiberts" in checkpoint.model else "text-classification"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    family, task = family_of(checkpoint.model), task_of(checkpoint)
    folder.mkdir(parents=True)
    labels = 3 if checkpoint.model.endswith("MNLI") else 2
    model = model_for(family, task, **({"num_labels": labels} if task == "text-classification" else {}))
    if family == "llama":  # younger than these formats
        model.save_pretrained(folder)
        tokenizer_for(family).save_pretrained(folder)
        return
    save(folder, model, buffers={})
    save_bytes(folder, family) if family in ("gpt2", "roberta") else save_wordpiece(folder)


def make_sets() -> dict[tuple[str, str | None], dict[str, list[Record]]]:
    """The data sets of all papers under their names on the Hub, with the columns that they have there."""
    sentences: list[str] = [f"{text} , and it is not bad at all" for text in TEXTS["sentence"]]
    reviews: list[str] = [f"{text} , and it is not bad at all" for text in TEXTS["text"]]

    def rows(columns: tuple[str, ...], texts: list[str], labels: int = 2) -> list[Record]:
        return [{**dict.fromkeys(columns, text), "label": 1 + i % (labels - 1)} for i, text in enumerate(texts)]

    parts = ("train", "validation", "test")
    in_two = ("train", *(f"{part}_{kind}" for part in ("validation", "test") for kind in ("matched", "mismatched")))
    return {
        ("nyu-mll/glue", "sst2"): dict.fromkeys(parts, rows(("sentence",), sentences)),
        ("nyu-mll/glue", "qqp"): dict.fromkeys(parts, rows(("question1", "question2"), sentences)),
        ("nyu-mll/glue", "mnli"): dict.fromkeys(in_two, rows(("premise", "hypothesis"), sentences, 3)),
        ("stanfordnlp/imdb", None): dict.fromkeys(("train", "test"), rows(("text",), reviews)),
        ("fancyzhx/yelp_polarity", None): dict.fromkeys(("train", "test"), rows(("text",), reviews)),
        ("fancyzhx/amazon_polarity", None): dict.fromkeys(("train", "test"), rows(("content",), reviews)),
        **{(f"rajpurkar/{name}", None): dict.fromkeys(parts, [QUESTION] * 3) for name in ("squad", "squad_v2")},
    }


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every checkpoint of the papers, under its name on the Hub."""
    root = tmp_path_factory.mktemp("hub")
    for checkpoint in (one for folder in FOLDERS for one in find_paper(folder).checkpoints.values()):
        if not (root / checkpoint.model).is_dir():
            write_checkpoint(root / checkpoint.model, checkpoint)
    small_texts.write_agreement(root / AGREEMENT, 40, 0)
    return root


@pytest.fixture
def working_folder(checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh folder, where scripts find the checkpoints and the agreement file, and write their results."""
    for path in checkpoints.iterdir():
        (tmp_path / path.name).symlink_to(path)
    Hub(make_sets()).install(monkeypatch)
    monkeypatch.setattr(read, "spacy_parses", next_word_parses)
    monkeypatch.setattr(subject_verb, "load_spacy", lambda *_, **__: Parser())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ends_at_the_first_texts() -> Iterator[None]:
    def end(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not isinstance(module, hf.PreTrainedModel) or not {"logits", "start_logits"} & set(output):
            return
        inputs = next(value for value in (*args, *kwargs.values()) if getattr(value, "ndim", 0) >= 2)
        if inputs.shape[1] > PROBE:
            raise ModelHasRead(module.config._name_or_path)

    hook = register_module_forward_hook(end, with_kwargs=True)
    yield
    hook.remove()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.usefixtures("ends_at_the_first_texts")
def test_default_command(script: str, working_folder: Path):
    run = import_module(f"papers.{script}").main
    if script in WITHOUT_TEXTS:
        run([])
        written = working_folder / "results" / script.partition(".")[0]
        assert list(written.rglob("*.md")) + list(written.rglob("*.json"))
        return
    with pytest.raises(ModelHasRead) as ended:
        run([])
    paper = find_paper(script.partition(".")[0])
    assert str(ended.value) in {checkpoint.model for checkpoint in paper.checkpoints.values()}


def test_scripts_are_those_of_the_pages():
    named = {f"{folder}.{item.script}" for folder in FOLDERS for item in find_paper(folder).items if item.script}
    assert named <= set(SCRIPTS)
    assert set(SCRIPTS) - named <= {"alti.finetune"}  # which the tables call
    assert set(WITHOUT_TEXTS) < set(SCRIPTS)
