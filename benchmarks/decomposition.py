"""Time and peak memory of the decomposition methods on a BERT-base-sized model with random weights.

    python benchmarks/decomposition.py

Every figure comes from a fresh process. Time is given as a ratio to the plain forward pass (the user's own model,
its default attention, no gradients) in the same process; memory as the peak above that of the plain forward pass.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertForSequenceClassification

from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

CASES: dict[str, tuple[str, dict[str, Any], float]] = {  # name: method, options, goal for the ratio
    "alti": ("alti", {}, 6.0),
    "alti l2": ("alti", {"norm": "l2"}, 3.0),
    "value_norms": ("value_norms", {}, 3.0),
    "globenc": ("globenc", {}, 3.0),
}
LENGTHS = (64, 128, 256, 512)


def run_one(name: str, length: int) -> None:
    """Print the ratio and the peak memory of one case, for the parent process to read."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig()).eval()
    ids = torch.randint(5, 30_000, (1, length))
    batch, target = Batch(ids, torch.ones_like(ids)), BatchTarget(task_of(model), (ResolvedTarget((1,)),))

    @torch.no_grad()
    def forward() -> None:
        model(ids)

    forward()
    tasks: dict[str, Callable[[], object]] = {"forward": forward}
    if name != "forward":
        method_config = MethodConfig(METHODS[CASES[name][0]], CASES[name][1])
        tasks["method"] = lambda: execute_plan(InstrumentedModel(model), batch, plan_passes(target, [method_config]))
    times: dict[str, list[float]] = {task: [] for task in tasks}
    for _ in range(4):
        for task, function in tasks.items():
            began = time.perf_counter()
            function()
            times[task].append(time.perf_counter() - began)
    medians = {task: statistics.median(seconds[1:]) for task, seconds in times.items()}
    ratio = medians.get("method", 0.0) / medians["forward"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"ratio": ratio, "forward": medians["forward"], "peak": peak}))


def in_fresh_process(name: str, length: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, "--length", str(length)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=["forward", *CASES], help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, default=512, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(args.one, args.length)
        return
    table = Table(title="12 layers, 12 heads, width 768; time / forward pass, peak memory above it")
    table.add_column("tokens", justify="right")
    for name, (_, _, goal) in CASES.items():
        table.add_column(f"{name} (goal {goal:g})", justify="right")
    for length in LENGTHS:
        base = in_fresh_process("forward", length)
        cells = []
        for name in CASES:
            result = in_fresh_process(name, length)
            cells.append(f"{result['ratio']:.1f}, {max(0.0, result['peak'] - base['peak']) / 2**20:.0f} MiB")
        table.add_row(str(length), *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
