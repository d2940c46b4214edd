"""Checkpoints that come with Python code of their own: it runs only where a person has asked for that in advance."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers.dynamic_module_utils
import typer
from transformers import AutoConfig, AutoTokenizer
from typer.testing import CliRunner

import tokenlight as tl
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.cli import app
from tokenlight.data.read import read_examples

TEXT = "it is a good movie"
CODE = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification

Path({marker!r}).touch()  # what the test looks for: this ran

class OwnConfig(BertConfig):
    model_type = "own-bert"

class OwnForSequenceClassification(BertForSequenceClassification):
    config_class = OwnConfig
"""


@pytest.fixture
def marker(tmp_path) -> Path:
    """A file that exists once the checkpoint's code has run."""
    return tmp_path / "ran"


@pytest.fixture
def own_checkpoint(tmp_path, marker, monkeypatch) -> str:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "own"
    model_for("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    config |= {"model_type": "own-bert", "auto_map": classes, "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def own_tokenizer(tmp_path, marker, monkeypatch) -> str:
    """The model is known to transformers, its tokenizer is not."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "own"
    model_for("bert").save_pretrained(folder)
    (folder / "own.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    settings = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    return str(folder)


def answer_yes(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), input="y\n" * 5)


@pytest.mark.parametrize("task", [(), ("--task", "text-classification")])
def test_yes_on_standard_input_does_not_run_code(own_checkpoint, marker, task):
    result = answer_yes("explain", TEXT, "-m", own_checkpoint, *task)
    assert not marker.exists()
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "own.OwnConfig in config.json" in line
    assert "--trust-remote-code" in line


def test_code_of_a_tokenizer_is_not_run_either(own_tokenizer, marker):
    result = answer_yes("explain", TEXT, "-m", own_tokenizer)
    assert not marker.exists()
    assert result.exit_code == 2
    assert "own.OwnTokenizer in tokenizer_config.json" in result.stderr
    assert "--trust-remote-code" in result.stderr


def test_the_option_runs_the_code(own_checkpoint, marker):
    result = answer_yes("explain", TEXT, "-m", own_checkpoint, "--format", "json", "--trust-remote-code")
    assert result.exit_code == 0, result.output
    assert marker.exists()
    (mine,) = json.loads(result.stdout)
    assert mine["scores"] == pytest.approx(explainer_for("bert").explain(TEXT).scores.tolist())


def test_in_python_the_code_runs_only_with_the_keyword(own_checkpoint, marker, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    with pytest.raises(ValueError, match=r"own\.OwnConfig.*trust_remote_code=True"):
        tl.load(own_checkpoint)
    assert not marker.exists()
    assert type(tl.load(own_checkpoint, trust_remote_code=True).model).__name__ == "OwnForSequenceClassification"
    assert marker.exists()


def test_trust_remote_code_none_does_not_run_code(own_checkpoint, marker, monkeypatch):
    """To transformers, None means: ask."""
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    nothing: Any = None
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        tl.load(own_checkpoint, trust_remote_code=nothing)
    assert not marker.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_all_readers_of_a_checkpoint_get_the_keyword(checkpoint, monkeypatch, trust):
    calls = []

    def noting(read: Any) -> Any:
        def reads(*args: Any, **settings: Any) -> Any:
            calls.append(settings.get("trust_remote_code"))
            return read(*args, **settings)

        return reads

    for kind in (AutoConfig, AutoTokenizer, transformers.AutoModelForSequenceClassification):
        monkeypatch.setattr(kind, "from_pretrained", noting(kind.from_pretrained))
    tl.load(checkpoint, trust_remote_code=trust)
    assert len(calls) >= 3
    assert set(calls) == {trust}


def test_every_command_with_a_model_has_the_option():
    root: Any = typer.main.get_command(app)
    without_choice = {"demo", "families", "methods", "corpus"}  # these load no checkpoint that somebody names
    names = {
        name for name, command in root.commands.items() if "trust_remote_code" not in {p.name for p in command.params}
    }
    assert names == without_choice


def test_code_for_generation_is_not_run_without_the_keyword(tmp_path, marker, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "writing" / "custom_generate"
    folder.mkdir(parents=True)
    (folder / "generate.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        explainer_for("gpt2", "text-generation").generate(TEXT, custom_generate=str(folder.parent))
    assert not marker.exists()


def test_scripts_of_datasets_are_not_run(monkeypatch):
    """Versions of datasets that know the setting ask on standard input without it."""
    calls = []

    def load_dataset(name, config, split, streaming, trust_remote_code=None):
        calls.append(trust_remote_code)
        return iter([{"sentence": "good", "label": 1}])

    def get_dataset_split_names(name, config, trust_remote_code=None):
        calls.append(trust_remote_code)
        return ["test"]

    fake = SimpleNamespace(load_dataset=load_dataset, get_dataset_split_names=get_dataset_split_names)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    list(read_examples(tl.DataSource("hf:org/glue", split="test")))
    with pytest.raises(ValueError, match="one of its splits"):
        list(read_examples(tl.DataSource("hf:org/glue")))
    assert calls == [False, False]
