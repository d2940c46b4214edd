"""Models by name: errors for invalid folders, missing repositories, and an unreachable Hub."""

import json
import shutil
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import socket
from threading import Thread
from typing import Any

import huggingface_hub.constants
import huggingface_hub.errors
import peft
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import tokenlight as tl
from tests.cli.test_explain import fail, succeed
from tests.tokenizers_ import model_for, tokenizer_for
from tokenlight.cli.load import describe_hub_error, first_sentence, load_model, why_unreachable

NAME = "somebody/some-model"


@pytest.fixture
def unreachable_hub(monkeypatch) -> None:
    """The Hub's address is one at which connections are refused."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_error_says_that_offline_mode_is_set(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    line = fail("explain", "ok", "-m", NAME)
    assert NAME in line
    assert "HF_HUB_OFFLINE is set" in line


@pytest.mark.usefixtures("unreachable_hub")
def test_an_unreachable_hub_is_reported_immediately(monkeypatch):
    def no_retries(*args: object, **settings: object) -> None:
        raise AssertionError("transformers asks again and again")

    monkeypatch.setattr("tokenlight.explain.load.load", no_retries)
    line = fail("explain", "ok", "-m", NAME)
    assert "there is no such folder, and the Hugging Face Hub cannot be reached (Connection refused)" in line


@pytest.mark.usefixtures("unreachable_hub")
def test_without_the_hub_the_cache_is_read(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0" * 40
    model = tmp_path / "models--somebody--some-model"
    shutil.copytree(checkpoint, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    assert load_model(NAME, None).explain("it is a good movie", "rollout").model == NAME


def test_a_refusal_of_the_hub_is_not_retried(refusing_server):
    assert why_unreachable(refusing_server) is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (huggingface_hub.errors.GatedRepoError, "gated"),
        (huggingface_hub.errors.RepositoryNotFoundError, "the Hub has no such model"),
        (huggingface_hub.errors.LocalEntryNotFoundError, "cannot be reached"),
        (huggingface_hub.errors.EntryNotFoundError, "no config.json"),
    ],
)
def test_errors_of_the_hub_are_described_by_their_class(kind, message):
    wrapped = OSError("at length")
    wrapped.__cause__ = kind.__new__(kind)
    assert message in describe_hub_error(wrapped)


@pytest.mark.parametrize(("family", "task"), [("bert", "text-classification"), ("llama", "text-generation")])
def test_a_model_without_a_tokenizer_is_refused(family, task, tmp_path):
    """Else transformers makes up one to which every word is unknown, and scores would mean nothing."""
    model_for(family, task).save_pretrained(tmp_path)
    line = fail("explain", "it is a good movie", "-m", str(tmp_path))
    assert "tokenizer" in line
    assert "expected tokenizer.json" in line
    assert len(line) < 300 + len(str(tmp_path))


def test_a_model_with_an_untrained_head_is_refused(tmp_path):
    """Else transformers makes up its weights, and scores would mean nothing."""
    whole = model_for("bert", "text-classification")
    whole.base_model.save_pretrained(tmp_path)
    tokenizer_for("bert").save_pretrained(tmp_path)
    line = fail("explain", "it is a good movie", "-m", str(tmp_path), "--task", "text-classification")
    assert "was not trained for text-classification: it has no weights for classifier.bias, classifier.weight" in line
    adapter = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=["classifier"])
    peft.get_peft_model(AutoModelForSequenceClassification.from_pretrained(tmp_path), adapter).save_pretrained(
        tmp_path / "adapter"
    )
    tokenizer_for("bert").save_pretrained(tmp_path / "adapter")
    assert succeed("explain", "it is a good movie", "-m", str(tmp_path / "adapter"), "--task", "text-classification")


def test_the_error_says_why_a_folder_is_no_checkpoint(tmp_path):
    assert "there is no config.json" in fail("explain", "ok", "-m", str(tmp_path))
    file = tmp_path / "model.bin"
    file.touch()
    assert "expected a folder with a checkpoint, but this is a file" in fail("explain", "ok", "-m", str(file))
    gone = str(Path(tmp_path, "gone"))
    assert "there is no such folder" in fail("explain", "ok", "-m", gone)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Error no file named x in y.\nChoose one", "no file named x in y"),
        ("no file in y. Choose one", "no file in y"),
        ("no file in y   \n\nmore", "no file in y"),
        ("no file in y ...", "no file in y "),
    ],
)
def test_the_first_sentence_of_an_error(message, expected):
    assert first_sentence(OSError(message)) == expected


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


@pytest.fixture
def with_weights(tmp_path) -> Callable[[str, bytes | dict[str, Any]], str]:
    """A checkpoint whose file of weights has another content."""

    def make(name: str, content: bytes | dict[str, Any]) -> str:
        model_for("bert").save_pretrained(tmp_path)
        tokenizer_for("bert").save_pretrained(tmp_path)
        whole = tmp_path / "model.safetensors"
        if content == b"half":
            content = whole.read_bytes()[:-100]
        whole.unlink()
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        else:
            torch.save({**model_for("bert").state_dict(), **content}, tmp_path / name)
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"half"),
        ("model.safetensors", b""),
        ("pytorch_model.bin", b"PK\x03\x04 cut off"),
        ("pytorch_model.bin", b"hello world, no pickle"),
        ("pytorch_model.bin", b""),
    ],
)
def test_damaged_weights_are_reported(with_weights, name, content):
    line = fail("explain", "ok", "-m", with_weights(name, content))
    assert "cannot be read" in line or "or is damaged" in line
    assert "weights_only" not in line


def test_pickles_with_code_are_not_read_and_the_error_does_not_suggest_it(with_weights, capfd):
    folder = with_weights("pytorch_model.bin", {"extra": Malicious()})
    line = fail("explain", "ok", "-m", folder)
    assert "could run code" in line
    assert ".safetensors" in line
    assert "weights_only" not in line
    with pytest.raises(ValueError, match="could run code") as caught:
        tl.load(folder)
    assert "weights_only" not in "".join(traceback.format_exception(caught.value))
    assert "this must not run" not in capfd.readouterr().out


@pytest.mark.parametrize("task", [None, "text-classification"])
@pytest.mark.parametrize("value", [7, "int8", [], True])
def test_settings_of_quantization_that_are_no_object_are_named(value, task, checkpoint, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": value}))
    with pytest.raises(ValueError, match=r"config\.json holds quantization_config: .*expected an object") as caught:
        tl.load(folder, task=task)
    assert f"quantization_config: {value!r};" in str(caught.value)
