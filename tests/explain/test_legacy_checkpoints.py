"""Checkpoints as they were saved years ago: the papers' own are among them."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
import transformers as hf

import tokenlight as tl
from tests.cli.test_explain import fail, succeed
from tests.models import ENCODER
from tests.tokenizers_ import byte_bpe, wordpiece

TEXT = "it is a good movie and they are not bad at all"
SETTINGS_OF_2020 = {  # beside the sizes; nothing about labels, unless there are other than two
    "finetuning_task": "sst-2",
    "gradient_checkpointing": False,
    "output_past": True,
    "problem_type": None,
    "pruned_heads": {},
    "xla_device": None,
    "transformers_version": "3.0.2",
}


@cache
def classifier(labels: int = 2) -> Any:
    torch.manual_seed(0)
    sizes = {**ENCODER, "vocab_size": len(wordpiece()), "pad_token_id": 0, "num_labels": labels}
    return hf.BertForSequenceClassification(hf.BertConfig(**sizes)).eval()


def old_names(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def save(
    folder: Path,
    model: Any,
    rename: Callable[[str], str] = old_names,
    left_out: tuple[str, ...] = ("id2label", "label2id"),
    buffers: Mapping[str, torch.Tensor] = MappingProxyType({"bert.embeddings.position_ids": torch.arange(40)[None]}),
    **config: Any,
) -> str:
    """A pickle of the time before zip files, and a config.json that leaves out what it need not say.

    `buffers` are in the file too, and are no weights any more.
    """
    written = {name: value for name, value in model.config.to_dict().items() if name not in left_out}
    written |= {"architectures": [type(model).__name__], **SETTINGS_OF_2020, **config}
    (folder / "config.json").write_text(json.dumps(written))
    weights = {rename(name): weight for name, weight in model.state_dict().items()}
    torch.save(weights | dict(buffers), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    return str(folder)


def save_wordpiece(folder: Path) -> None:
    """Without tokenizer.json."""
    words = sorted(wordpiece().get_vocab().items(), key=lambda entry: entry[1])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words))
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "max_len": 512}))


def save_bytes(folder: Path, family: str) -> None:
    """The tokenizer of GPT-2, or with special tokens around a text that of RoBERTa, without tokenizer.json."""
    written = json.loads(byte_bpe().backend_tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(written["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{' '.join(pair)}\n" for pair in written["merges"]))
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    if family == "roberta":
        special |= {f"{name}_token": "<|endoftext|>" for name in ("cls", "sep", "pad")} | {"mask_token": "<mask>"}
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "special_tokens_map.json").write_text(json.dumps(special))


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_wordpiece(folder)
    return folder


@pytest.mark.parametrize(
    "rename",
    [
        pytest.param(old_names, id="gamma and beta"),
        pytest.param(lambda name: name.removeprefix("bert."), id="no prefix"),
        pytest.param(lambda name: f"bert.{name}" if name.startswith("bert.") else name, id="prefix doubled"),
    ],
)
def test_old_names_of_weights_give_the_same_scores(rename, folder):
    loaded = tl.load(save(folder, classifier(), rename))
    expected = tl.Explainer(classifier(), wordpiece()).explain(TEXT)
    found = loaded.explain(TEXT)
    assert found.tokens == expected.tokens
    assert torch.equal(found.scores, expected.scores)
    assert loaded.task.labels == {0: "LABEL_0", 1: "LABEL_1"}
    assert loaded.task.max_length == 40


def test_labels_that_the_config_does_not_count_are_counted_in_the_head(folder):
    loaded = tl.load(save(folder, classifier(3)))
    assert loaded.task.labels == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert torch.equal(loaded.explain(TEXT).scores, tl.Explainer(classifier(3), wordpiece()).explain(TEXT).scores)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"id2label": {"0": "bad", "1": "good"}}, r"classifier.bias is \[3\] in the file, \[2\] expected.*id2label"),
        ({"intermediate_size": 30}, r"do not fit its configuration: .*\[24\] in the file, \[30\] expected.* more"),
    ],
)
def test_weights_that_contradict_the_config_are_refused(settings, reason, folder):
    with pytest.raises(ValueError, match=reason):
        tl.load(save(folder, classifier(3), **settings))


def test_weights_with_as_many_rows_as_there_are_labels_by_default_are_no_head(folder):
    """Two kinds of token types in config.json, one in the file."""
    config = hf.BertConfig(**{**classifier().config.to_dict(), "type_vocab_size": 1})
    name = save(folder, hf.BertForSequenceClassification(config), type_vocab_size=2)
    with pytest.raises(ValueError, match=r"token_type_embeddings.weight is \[1, 16\] in the file, \[2, 16\] expected"):
        tl.load(name)


@pytest.mark.parametrize("prefix", ["module.", "model.bert_model.", "_orig_mod."])
def test_weight_names_of_a_wrapper_are_reported_and_can_be_mapped(prefix, folder):
    name = save(folder, classifier(), lambda name: prefix + name)
    with pytest.raises(ValueError, match=f"all begin with '{prefix}'.*key_mapping=") as caught:
        tl.load(name)
    mapping = eval(str(caught.value).partition("key_mapping=")[2].partition(");")[0])
    found = tl.load(name, key_mapping=mapping).explain(TEXT)
    assert torch.equal(found.scores, tl.Explainer(classifier(), wordpiece()).explain(TEXT).scores)


def test_a_head_with_another_name_is_reported_and_can_be_mapped(folder):
    name = save(folder, classifier(), lambda name: name.replace("classifier.", "output_layer."))
    with pytest.raises(
        ValueError, match=r"no weights for classifier.bias, classifier.weight, .*does not know: output_"
    ):
        tl.load(name)
    found = tl.load(name, key_mapping={"^output_layer": "classifier"}).explain(TEXT)
    assert torch.equal(found.scores, tl.Explainer(classifier(), wordpiece()).explain(TEXT).scores)


def test_a_checkpoint_of_a_training_program_is_reported(folder):
    name = save(folder, classifier())
    content = {"epoch": 3, "state_dict": classifier().state_dict()}
    torch.save(content, folder / "pytorch_model.bin")
    assert "holds 'epoch', 'state_dict', which are no weights" in fail("explain", TEXT, "-m", name)


def test_a_file_of_weights_without_names_is_reported(folder):
    name = save(folder, classifier())
    torch.save(list(classifier().state_dict().values()), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"holds list, which are no weights; expected a mapping"):
        tl.load(name)


def test_a_config_without_an_architecture_needs_a_task(folder):
    name = save(folder, classifier(), architectures=None)
    assert "names no architecture" in fail("explain", TEXT, "-m", name)
    assert succeed("explain", TEXT, "-m", name, "--task", "text-classification")


def test_commands_run_on_an_old_checkpoint(folder, tmp_path):
    """The first commands of the papers' recipes, on such a checkpoint."""
    name, data, mask = save(folder, classifier()), tmp_path / "dev.tsv", tmp_path / "mask.json"
    data.write_text("sentence\tlabel\n" + "".join(f"{TEXT} and {TEXT}\t{label}\n" for label in (0, 1)))
    succeed("heads", name, str(data), "-o", str(mask), "--position-share", "0.1", "--count-self")
    command = ["bench", name, str(data), "-o", str(tmp_path / "out"), "--preset", "mask_lrp", "--no-erasure"]
    assert "2 examples" in succeed(*command, "--method", "mask_lrp:variant=released", "--heads", str(mask))


@pytest.mark.parametrize("family", ["gpt2", "roberta"])
def test_questions_to_models_with_byte_tokenizers(family, tmp_path):
    """Span heads on GPT-2, which has no padding token and saves buffers, and RoBERTa."""
    tokenizer = byte_bpe()
    save_bytes(tmp_path, family)
    sizes = {"vocab_size": len(tokenizer), "initializer_range": 0.4, "num_labels": 2}
    if family == "gpt2":
        model = hf.GPT2ForQuestionAnswering(hf.GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=60, **sizes))
        buffers = {
            "transformer.h.0.attn.bias": torch.ones(1, 1, 60, 60),
            "transformer.h.0.attn.masked_bias": torch.ones(()),
        }
    else:
        model = hf.RobertaForQuestionAnswering(
            hf.RobertaConfig(**{**ENCODER, **sizes, "max_position_embeddings": 62, "pad_token_id": 0})
        )
        buffers = {"roberta.embeddings.position_ids": torch.arange(62)[None]}
    name = save(tmp_path, model.eval(), buffers=buffers)
    question = ("who wrote the book ?", "the book was written by a young author in Paris")
    found = tl.load(name).explain(question)
    assert torch.equal(found.scores, tl.Explainer(model, tl.load(name).tokenizer).explain(question).scores)
    squad = {"question": question[0], "context": question[1], "answers": {"text": ["Paris"], "answer_start": [42]}}
    impossible = {**squad, "answers": {"text": [], "answer_start": []}}
    data = tmp_path / "squad.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in (squad, impossible)))
    command = ["bench", name, str(data), "-o", str(tmp_path / "out"), "--method", "raw_attention", "--no-erasure"]
    printed = succeed(*command, "--metric", "recall_at_k")
    assert "1 examples" in printed
    assert "Not usable 1: unanswerable question" in printed
