"""Ours beside captum and LXT on the same small Llama, each as a ratio to gradient x input in its own process.

    python benchmarks/peers.py [--lxt-python PATH/TO/PYTHON]

captum is used if it is installed here. LXT 2.1 needs transformers 4.52, so it runs in an environment of its own.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH, STEPS = 8, 32, 50
SIZE: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1024,
}

# Runs in LXT's environment, where tokenlight is not: the same model and the same clock, written out again.
LXT = f"""
import json, statistics, time, torch
from transformers.models.llama import modeling_llama
from transformers import LlamaConfig
torch.manual_seed(0)
config = LlamaConfig(vocab_size=16000, **{SIZE!r}, attn_implementation="eager")
ids = torch.randint(5, 16000, ({BATCH}, {LENGTH}))
def run(model):
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits[:, -1]
    (logits[:, 7] - logits[:, 8]).sum().backward()
    return (embeddings * embeddings.grad).sum(-1)
def build():
    model = modeling_llama.LlamaForCausalLM(config).eval()
    model.requires_grad_(False)
    return model
plain = build()
def clock(model):
    run(model); times = []
    for _ in range(9):
        began = time.perf_counter(); run(model); times.append(time.perf_counter() - began)
    return statistics.median(times)
by_hand = clock(plain)
from lxt.efficient import monkey_patch
monkey_patch(modeling_llama, verbose=False)
print(json.dumps(clock(build()) / by_hand))
"""


def by_hand(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits[:, -1]
    (grad,) = torch.autograd.grad((logits[:, 7] - logits[:, 8]).sum(), embeddings)
    return (embeddings * grad).sum(-1)


def captum_ig(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    from captum.attr import IntegratedGradients  # pyright: ignore[reportMissingImports]

    def score(embeddings: torch.Tensor) -> torch.Tensor:
        logits = model(inputs_embeds=embeddings, use_cache=False).logits[:, -1]
        return logits[:, 7] - logits[:, 8]

    embeddings = model.get_input_embeddings()(ids).detach()
    explained = IntegratedGradients(score).attribute(embeddings, n_steps=STEPS, internal_batch_size=32)
    return explained.sum(-1)


def clock(task: Callable[[], object], repeats: int) -> float:
    task()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        task()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    import tokenlight as tl

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lxt-python", help="the Python of an environment with lxt 2.1 and transformers 4.52")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16_000, **SIZE)).eval()
    model.set_attn_implementation("eager")
    model.requires_grad_(False)
    ids = torch.randint(5, 16_000, (BATCH, LENGTH))
    base = clock(lambda: by_hand(model, ids), 9)
    print(f"{BATCH} texts of {LENGTH} tokens; gradient x input by hand: {base * 1e3:.0f} ms, ratio 1")
    for name in ("gradient_x_input", "lrp", "attn_lrp"):
        seconds = clock(lambda name=name: tl.attribute(model, ids, method=name, target=7, foil=8), 9)
        print(f"tokenlight {name}: {seconds / base:.2f}")
    if args.lxt_python:
        found = subprocess.run([args.lxt_python, "-c", LXT], check=True, capture_output=True, text=True)
        print(f"LXT AttnLRP: {json.loads(found.stdout.splitlines()[-1]):.2f}")
    options: dict[str, Any] = {"steps": STEPS, "baseline": "zero", "target": 7, "foil": 8}
    seconds = clock(lambda: tl.attribute(model, ids, method="integrated_gradients", **options), 2)
    print(f"tokenlight integrated_gradients, {STEPS} steps: {seconds / base:.1f}")
    if importlib.util.find_spec("captum"):
        print(f"captum IntegratedGradients, {STEPS} steps: {clock(lambda: captum_ig(model, ids), 2) / base:.1f}")


if __name__ == "__main__":
    main()
