"""Model folders that old and new releases of transformers read alike, and the table of environments."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import tokenlight as tl

TORCH = "torch==2.13.0"  # first, so that no peer brings another one along
REQUIREMENTS = {  # one environment a peer, because what they ask of transformers, numpy and captum differs
    "captum": ["captum==0.9.0", f"transformers=={transformers.__version__}"],
    "lxt": ["lxt==2.1", "transformers==4.52.4", "tabulate", "accelerate"],
    "inseq": ["inseq==0.7.1"],
    "ferret": ["ferret-xai==0.4.2", "pyarrow<20"],  # later ones need numpy 2, which ferret excludes
    "transformers-interpret": ["transformers-interpret==0.10.0"],
    "shap": ["shap==0.51.0", f"transformers=={transformers.__version__}"],
}
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
UNWANTED = {"lxt": ["torchvision"]}  # its build for GPUs does not load beside torch's for processors


def python_of(envs: Path, peer: str) -> Path:
    return envs / peer / "bin" / "python"


def set_up(envs: Path, peers: list[str]) -> dict[str, str]:
    """Make an environment for each peer; returns {peer: error}."""
    failed = {}
    for peer in peers:
        print(f"{peer}: {' '.join(REQUIREMENTS[peer])}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", envs / peer], check=True)
        pip = [python_of(envs, peer), "-m", "pip", "install", "--quiet"]
        for packages in (["--upgrade", "pip"], [TORCH], [*REQUIREMENTS[peer], TORCH]):
            done = subprocess.run([*pip, *packages], capture_output=True, text=True)
            if done.returncode:
                failed[peer] = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                print(f"{peer}: {failed[peer]}", file=sys.stderr)
                break
        else:
            if peer in UNWANTED:
                subprocess.run([*pip[:-2], "uninstall", "--quiet", "--yes", *UNWANTED[peer]], check=True)
    return failed


def save_model(name: str, folder: Path) -> None:
    """`embedded`, `bert-base` (random weights), or the path of a checkpoint."""
    if name == "bert-base":
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(transformers.BertConfig())
        tokenizer = tl.load().tokenizer
    else:
        explainer = tl.load(None if name == "embedded" else name)
        model, tokenizer = explainer.model, explainer.tokenizer
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_readable(folder)


def save_tiny(kind: str, folder: Path) -> None:
    """A `llama` or `gpt2` of two layers with random weights, and a tokenizer that reads bytes."""
    bytes_alone = Tokenizer(models.BPE({char: i for i, char in enumerate(["<unk>", *ALPHABET])}, [], unk_token="<unk>"))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    roles: dict[str, Any] = dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<unk>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_alone, **roles)
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": len(tokenizer),
    }
    if kind == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**shape, intermediate_size=48, num_key_value_heads=2, pad_token_id=0)
        )
    else:
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**shape, pad_token_id=0, bos_token_id=0, eos_token_id=0)
        )
    for weight in model.parameters():  # larger than at the start of a training, so that tokens matter
        torch.nn.init.normal_(weight, std=0.1) if weight.ndim > 1 else None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_readable(folder)


def make_readable(folder: Path) -> None:
    """Write two settings in a form that transformers 4 and 5 read."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if "rope_parameters" in config:
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
        path.write_text(json.dumps(config, indent=2))
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(settings, indent=2))
