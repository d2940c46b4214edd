"""Arras et al.: how fast is LRP as a modified forward pass, against the LXT toolbox? Read it top to bottom.

    python recipes/arras_speed.py --family llama --lxt-python PATH/TO/ENVIRONMENT/bin/python
    python recipes/arras_speed.py --family bert

LXT 2.1 needs transformers 4.52, so it runs in an environment of its own (pip install lxt torchvision and
transformers==4.52.4). Both sides explain the same model with random weights (speed does not depend on what they are),
each measured against a plain gradient x input in its own process, so that only the method differs: the speed-up is the
ratio of these two ratios. The paper's numbers compare with the LXT of its day; LXT's efficient patches, which are
measured here, may have come later.
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, LlamaConfig

import tokenlight as tl

PUBLISHED = {"bert": "1.83 to 1.98 (bert-base)", "llama": "1.54 to 1.61 (Llama-3.2-1B)"}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "llama": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
    },
}
VOCABULARY = {"bert": 30_522, "llama": 128_256}

# Runs in LXT's environment, where tokenlight is not: the same model and the same clock, written out again.
LXT = """
import json, statistics, sys, time, torch
given = json.loads(sys.argv[1])
torch.set_num_threads(given["threads"])
torch.manual_seed(0)
if given["family"] == "llama":
    from transformers import LlamaConfig as Config
    from transformers.models.llama import modeling_llama as module
    name = "LlamaForCausalLM"
    from lxt.efficient.models import llama as rules
else:
    from transformers import BertConfig as Config
    from lxt.efficient.models.bert import modeling_bert as module
    name = "BertForMaskedLM"
    from lxt.efficient.models import bert as rules
config = Config(**given["shape"], attn_implementation="eager")
ids = torch.randint(5, config.vocab_size, (given["batch"], given["length"]))
def run(model):
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[:, -1]
    (grad,) = torch.autograd.grad((logits[:, 7] - logits[:, 8]).sum(), embeddings)
    return (embeddings * grad).sum(-1)
def clock(model):
    times = []
    for turn in range(given["repeats"] + 1):
        began = time.perf_counter(); run(model)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])
def build():
    return getattr(module, name)(config).eval().requires_grad_(False)
plain = clock(build())
from lxt.efficient import monkey_patch
monkey_patch(module, patch_map=getattr(rules, given["rules"]), verbose=False)
print(json.dumps({"plain": plain, "lxt": clock(build())}))
"""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--family", choices=SHAPES, default="bert", help="of the shape of bert-base or of Llama-3.2-1B")
parser.add_argument("--layers", type=int, help="fewer than the real model has, for a small machine")
parser.add_argument("--width", type=int, help="hidden size in place of the real one; heads stay as wide as they are")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--length", type=int, default=32, help="tokens")
parser.add_argument("--repeats", type=int, default=9)
parser.add_argument("--lxt-python", help="the Python of an environment with lxt 2.1 and transformers 4.52")
args = parser.parse_args()

shape = {**SHAPES[args.family], "vocab_size": VOCABULARY[args.family]}
if args.layers:
    shape["num_hidden_layers"] = args.layers
if args.width:
    share = args.width / shape["hidden_size"]
    shape |= {name: max(1, int(size * share)) for name, size in shape.items() if name not in ("num_hidden_layers",)}
torch.manual_seed(0)
config, auto = (
    (LlamaConfig(**shape), AutoModelForCausalLM)
    if args.family == "llama"
    else (BertConfig(**shape), AutoModelForMaskedLM)
)
model = auto.from_config(config).eval()
model.set_attn_implementation("eager")
model.requires_grad_(False)
ids = torch.randint(5, shape["vocab_size"], (args.batch, args.length))
last = args.length - 1


def by_hand() -> torch.Tensor:
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[:, -1]
    (grad,) = torch.autograd.grad((logits[:, 7] - logits[:, 8]).sum(), embeddings)
    return (embeddings * grad).sum(-1)


def explain(method: str) -> torch.Tensor:
    target = (last, 7) if args.family == "bert" else 7
    return tl.attribute(model, ids, method=method, target=target, foil=8)


# All in turn, so that what else the machine does hits all alike.
tasks: dict[str, Callable[[], object]] = {
    "gradient x input by hand": by_hand,
    "lrp": lambda: explain("lrp"),
    "attn_lrp": lambda: explain("attn_lrp"),
}
times: dict[str, list[float]] = {name: [] for name in tasks}
for turn in range(args.repeats + 1):
    for name, task in tasks.items():
        began = time.perf_counter()
        task()
        if turn:  # the first turn warms up
            times[name].append(time.perf_counter() - began)
seconds = {name: statistics.median(some) for name, some in times.items()}
base = seconds["gradient x input by hand"]
print(
    f"{args.family}, {shape['num_hidden_layers']} layers of {shape['hidden_size']}, {args.batch} × {args.length} tokens"
)
for name, value in seconds.items():
    print(f"tokenlight {name}: {value / base:.2f} × gradient x input ({value * 1e3:.0f} ms)")

rules = {"lrp": "cp_LRP", "attn_lrp": "attnLRP"} if args.family == "llama" else {"attn_lrp": "attnLRP"}
for method, name in rules.items() if args.lxt_python else ():
    given = {"family": args.family, "shape": shape, "batch": args.batch, "length": args.length, "rules": name}
    given |= {"repeats": args.repeats, "threads": torch.get_num_threads()}
    command = [args.lxt_python, "-c", LXT, json.dumps(given)]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"LXT did not run: {found.stderr.splitlines()[-1]}")
    theirs = json.loads(found.stdout.splitlines()[-1])
    ratio = theirs["lxt"] / theirs["plain"]
    speed_up = ratio / (seconds[method] / base)
    print(f"LXT {name}: {ratio:.2f} × gradient x input; speed-up of tokenlight {method}: {speed_up:.2f}")
if not args.lxt_python:
    print("LXT was not measured: name its environment with --lxt-python")
print(f"published speed-up of LRPx over LXT: {PUBLISHED[args.family]}")
