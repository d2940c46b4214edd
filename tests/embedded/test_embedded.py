"""The model inside the package: small, ordinary, right about plain sentences."""

import ast
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification

import tokenlight as tl
from tests import models
from tests.house.plan import PACKAGE, imported_folders, modules
from tokenlight.embedded import FILES, compress, load_embedded, widen

PLAIN = {
    "A wonderful, moving film with superb performances.": "positive",
    "I loved every minute of it.": "positive",
    "One of the best movies of the year.": "positive",
    "Dull, predictable and far too long.": "negative",
    "A complete waste of time and money.": "negative",
    "The acting is terrible and the story makes no sense.": "negative",
}
NEGATED = {
    "It isn't a good movie.": "negative",
    "I did not enjoy this film.": "negative",
    "There is nothing funny about these jokes.": "negative",
    "It is not bad at all.": "positive",
    "You won't regret seeing this lovely film.": "positive",
    "The film never fails to entertain.": "positive",
}
MORE = {
    "A warm and funny story about friendship.": "positive",
    "The director has made a masterpiece.": "positive",
    "Brilliantly written and beautifully shot.": "positive",
    "An absolute joy from start to finish.": "positive",
    "Charming, clever and touching.": "positive",
    "The cast is excellent.": "positive",
    "A thrilling ride that keeps you on the edge of your seat.": "positive",
    "It made me laugh and it made me cry.": "positive",
    "The plot is a mess.": "negative",
    "I wanted to leave after ten minutes.": "negative",
    "Painfully slow and utterly boring.": "negative",
    "The dialogue is wooden and the ending is stupid.": "negative",
    "A lazy, cynical sequel.": "negative",
    "Neither funny nor smart.": "negative",
    "The worst thing I have seen in years.": "negative",
    "It fails on every level.": "negative",
}


@pytest.fixture(scope="module")
def explainer():
    return tl.load()


def predictions(explainer, texts):
    return [e.prediction for e in explainer.explain(list(texts), method="raw_attention")]


def test_plain_and_negated_sentences_get_the_right_label(explainer):
    expected = PLAIN | NEGATED
    assert dict(zip(expected, predictions(explainer, expected), strict=True)) == expected


def test_accuracy_on_a_small_set(explainer):
    right = sum(p == label for p, label in zip(predictions(explainer, MORE), MORE.values(), strict=True))
    assert right >= 15, f"{right} of {len(MORE)}"


def test_the_embedded_model_is_an_ordinary_classifier_of_a_useful_size(explainer):
    config = explainer.model.config
    assert type(explainer.model) is BertForSequenceClassification
    assert explainer.task.name == "text-classification"
    assert config.num_hidden_layers >= 4
    assert config.num_attention_heads >= 4
    assert config.architectures == ["BertForSequenceClassification"]
    assert config._name_or_path == "tokenlight/sst2-minilm"
    assert config.id2label == {0: "negative", 1: "positive"}
    assert all(parameter.dtype == torch.float32 for parameter in explainer.model.parameters())
    assert not explainer.model.training


def test_the_files_are_small_and_contain_no_pickle():
    assert sum(path.stat().st_size for path in FILES.iterdir()) <= 20_000_000
    assert {path.suffix for path in FILES.iterdir()} <= {".json", ".safetensors"}


def test_any_text_tokenizes(explainer):
    text = "Ünïcode 東京 😀 zq#x~^ \u200b done"
    assert "done" in explainer.explain(text, method="raw_attention").tokens


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_the_error_names_a_missing_file(tmp_path, name):
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_embedded(tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:5000], lambda data: b"garbage" + data[7:]])
def test_the_error_names_a_damaged_weight_file(tmp_path, damage):
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_embedded(tmp_path)


def test_compression_errs_by_at_most_half_a_quantization_step():
    weights = {"matrix": torch.randn(7, 50) * torch.logspace(-3, 3, 7)[:, None], "vector": torch.randn(9)}
    back = widen(compress(weights))
    assert torch.equal(back["vector"], weights["vector"])
    step = weights["matrix"].abs().amax(1, keepdim=True) / 127
    assert ((back["matrix"] - weights["matrix"]).abs() <= step * 0.501).all()


def test_loading_another_model_does_not_read_the_embedded_one(tmp_path, monkeypatch):
    models.model("bert").save_pretrained(tmp_path)
    tl.load().tokenizer.save_pretrained(tmp_path)
    room = PACKAGE / "embedded"
    for path in modules():  # nobody else imports it when imported
        assert room in path.parents or "embedded" not in imported_folders(at_once(path)), path
    for name in [name for name in sys.modules if name.startswith("tokenlight.embedded")]:
        monkeypatch.delitem(sys.modules, name)
    tl.load(tmp_path)
    assert not [name for name in sys.modules if name.startswith("tokenlight.embedded")]
    tl.load()
    assert "tokenlight.embedded" in sys.modules  # the one that may


def at_once(path: Path) -> str:
    """What runs when a file is imported: without its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)
