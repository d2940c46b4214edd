"""Peak memory and time with and without low_memory, compared with the estimate. Linux only.

    python benchmarks/memory.py                   # BERT-base at 512 tokens, one twice as deep, SmolLM2's words
    python benchmarks/memory.py --case '{"layers": 24, "tokens": 256}'   # one case; prints JSON

Every case is a random model in a process of its own. What is measured is how far the resident memory rises above what
it was just before, at its highest. glibc keeps freed memory below MALLOC_MMAP_THRESHOLD_ for itself, which can double
that; the children get 65536 unless the environment says otherwise. Times are the processor's; read the ratios.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel

from tokenlight.explain.execute import execute_plan
from tokenlight.explain.memory import Shape, need_of_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import RecordOptions
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

RESET_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Case:
    """A random model, a batch and a method."""

    family: str = "bert"
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522
    texts: int = 1
    tokens: int = 512
    method: str = "attn_lrp"
    low_memory: bool = False
    last_logits: bool = True
    dtype: str = "float32"


@dataclass(frozen=True)
class Measured:
    peak: int  # bytes above what was resident before
    seconds: float  # of the processor
    estimate: int


DEEP = Case(layers=24)
SMOL = Case("llama", 30, 576, 9, 1536, 49152, texts=4, tokens=128)


def build(case: Case) -> PreTrainedModel:
    sizes: dict[str, Any] = {
        "vocab_size": case.vocabulary,
        "hidden_size": case.width,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
    }
    if case.family == "bert":
        inner: dict[str, Any] = {"intermediate_size": case.inner, "max_position_embeddings": case.tokens}
        model = hf.BertForSequenceClassification(hf.BertConfig(**sizes, **inner))
    elif case.family == "gpt2":
        model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, n_inner=case.inner, n_positions=case.tokens))
    else:
        groups: dict[str, Any] = {"num_key_value_heads": case.heads // 3 if case.heads % 3 == 0 else case.heads}
        inner = {"intermediate_size": case.inner, "tie_word_embeddings": True}
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, **inner, **groups))
    return model.eval().to(getattr(torch, case.dtype))


def measure(case: Case) -> Measured:
    torch.manual_seed(0)
    model = build(case)
    entry = METHODS[case.method]
    method_config = MethodConfig(
        entry, {"heads": None} if "heads" in entry.options else {"steps": 2} if "steps" in entry.options else {}
    )
    record_options = RecordOptions(case.low_memory, case.last_logits)
    instrumented = InstrumentedModel(model)

    def run(texts: int, tokens: int) -> BatchTarget:
        ids = torch.randint(5, case.vocabulary, (texts, tokens))
        target = BatchTarget(task_of(instrumented.model), (ResolvedTarget((1,)),) * texts)
        execute_plan(
            instrumented,
            Batch(ids, torch.ones_like(ids)),
            plan_passes(target, [method_config]),
            record_options=record_options,
        )
        return target

    run(1, 8)  # whatever is made once
    gc.collect()
    RESET_PEAK.write_text("5")
    before, began = resident("VmRSS"), time.process_time()  # other work on the machine does not count
    target = run(case.texts, case.tokens)
    seconds = time.process_time() - began
    estimate = need_of_plan(
        Shape.of(model), plan_passes(target, [method_config]), case.texts, case.tokens, record_options
    )
    return Measured(resident("VmHWM") - before, seconds, estimate)


def resident(name: str) -> int:
    """A value of the process's status, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def measure_apart(case: Case) -> Measured:
    """Measure a case in a separate process."""
    surroundings = {"MALLOC_MMAP_THRESHOLD_": "65536", **os.environ}
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} failed: {done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def compare(title: str, column: str, pairs: list[tuple[str, Case, Case]]) -> Table:
    """A table of cases, each with the one that saves memory."""
    table = Table(title=title)
    for name in ("case", "peak MB", column, "memory", "time", "estimated / measured"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for label, case, record_options in pairs:
        plain, saved = measure_apart(case), measure_apart(record_options)
        table.add_row(
            label,
            f"{plain.peak / 1e6:.0f}",
            f"{saved.peak / 1e6:.0f}",
            f"{saved.peak / plain.peak:.2f} x",
            f"{saved.seconds / plain.seconds:.2f} x",
            f"{plain.estimate / plain.peak:.2f}, {saved.estimate / saved.peak:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="JSON: what differs from BERT-base at 512 tokens")
    args = parser.parse_args()
    if args.case:
        settings: dict[str, Any] = json.loads(args.case)
        print(json.dumps(asdict(measure(Case(**settings)))))
        return
    console = Console(width=120)
    methods = ("gradient_x_input", "lrp", "attn_lrp", "alpha_beta_lrp", "zplus_lrp")
    cases = [(f"BERT-base, {name}", replace(Case(), method=name)) for name in methods]
    cases += [(f"24 layers, {name}", replace(DEEP, method=name)) for name in ("attn_lrp", "zplus_lrp")]
    pairs = [(label, case, replace(case, low_memory=True)) for label, case in cases]
    console.print(compare("1 text of 512 tokens, float32", "low_memory MB", pairs))
    ways = [("attn_lrp", SMOL), ("attn_lrp, low_memory", replace(SMOL, low_memory=True))]
    pairs = [(f"SmolLM2's shape, {label}", replace(case, last_logits=False), case) for label, case in ways]
    console.print(compare("4 texts of 128 tokens, 49,152 words", "last logits MB", pairs))


if __name__ == "__main__":
    main()
