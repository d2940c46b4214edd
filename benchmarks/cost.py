"""What explaining costs, as ratios to a hand-written gradient x input with eager attention, all in one run.

    python benchmarks/cost.py                 # a BERT of MiniLM's size with random weights
    python benchmarks/cost.py --model PATH    # any sequence classifier
    python benchmarks/cost.py --llama         # a small Llama classifier
    python benchmarks/cost.py --relu --methods guided_backpropagation atman    # ReLUs instead of GELUs; these methods

Times are medians of interleaved repetitions on one machine; read the ratios, not the milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BertConfig, LlamaConfig, PreTrainedModel

from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import PassPlan, plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

# Guided backpropagation is defined for ReLUs only: --relu --methods guided_backpropagation. Attention flow solves a
# maximum-flow problem for each token outside of torch.
LEFT_OUT = {"guided_backpropagation", "attention_flow"}
# mask_lrp needs a head mask: benchmarks/heads.py
MODULE_OF_METHOD = {
    name: entry.function.__module__.rsplit(".", 1)[1]
    for name, entry in METHODS.items()
    if entry.passes
    and entry.options.get("heads") is None
    and not entry.averaged  # over contexts: several passes
    and name not in LEFT_OUT
}
RELEVANCE = [name for name, module in MODULE_OF_METHOD.items() if module == "relevance"]
DECOMPOSITION = [name for name, module in MODULE_OF_METHOD.items() if module == "decomposition"]
PLAIN = [name for name in MODULE_OF_METHOD if name not in (*RELEVANCE, *DECOMPOSITION)]
GOALS = {  # target ratios, printed beside the measured ones
    **dict.fromkeys(PLAIN, 1.15),
    "all plain": 1.5,
    "lrp": 1.1,
    "attn_lrp": 1.15,
    "alpha_beta_lrp": 3.0,
    "zplus_lrp": 3.0,
    "partial_lrp": 3.0,
    "transformer_attribution": 4.0,
    "all relevance": 9.0,
}


def build(args: argparse.Namespace) -> PreTrainedModel:
    torch.manual_seed(0)
    if args.model:
        return AutoModelForSequenceClassification.from_pretrained(args.model).eval()
    size: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
    size["intermediate_size"] = 1536
    if args.relu:
        size["hidden_act"] = "relu"
    kind = LlamaConfig if args.llama else BertConfig
    return AutoModelForSequenceClassification.from_config(kind(vocab_size=16_000, pad_token_id=0, **size)).eval()


def gradient_x_input(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """The lower bound: gradient x input written by hand, without any library."""
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, attention_mask=torch.ones_like(ids)).logits
    (grad,) = torch.autograd.grad(logits[:, 1].sum(), embeddings)
    return (embeddings * grad).sum(-1)


def run(model: PreTrainedModel, inputs: Batch, plan: PassPlan) -> None:
    with borrowed_model(model) as instrumented:  # as every call of the library does
        execute_plan(instrumented, inputs, plan)


def measure(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each task; tasks are interleaved, so that noise affects all equally."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            began = time.process_time()
            task()
            if turn:  # the first turn warms up
                times[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def table_for(
    model: PreTrainedModel, eager: PreTrainedModel, batch: int, length: int, repeats: int, methods: Sequence[str] = ()
) -> Table:
    """A table of these methods, or of all that read recorded passes."""
    ids = torch.randint(5, model.config.vocab_size, (batch, length))
    inputs = Batch(ids, torch.ones_like(ids))
    target = BatchTarget(task_of(model), (ResolvedTarget((1,)),) * batch)

    def ours(*names: str) -> Callable[[], object]:
        plan = plan_passes(target, [MethodConfig(METHODS[name], {}) for name in names])
        return lambda: run(model, inputs, plan)

    tasks: dict[str, Callable[[], object]] = {"by hand": lambda: gradient_x_input(eager, ids)}
    tasks |= {name: ours(name) for name in methods or MODULE_OF_METHOD if METHODS[name].fits(model)}
    if not methods:
        tasks |= {"all plain": ours(*PLAIN), "all relevance": ours(*RELEVANCE)}
    seconds = measure(tasks, repeats)
    table = Table(title=f"{batch} texts of {length} tokens; by hand: {seconds['by hand'] * 1e3:.0f} ms")
    for column in ("method", "ratio", "goal"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, value in seconds.items():
        ratio = value / seconds["by hand"]
        goal = GOALS.get(name)
        style = "" if goal is None or ratio <= goal else "yellow"
        table.add_row(name, f"{ratio:.2f}", "" if goal is None else f"{goal:g}", style=style)
    return table


def together_or_alone(model: PreTrainedModel, repeats: int) -> str:
    """The speed of 64 short texts in one call, relative to one at a time."""
    ids = torch.randint(5, model.config.vocab_size, (64, 12))

    def explain(rows: Tensor) -> None:
        target = BatchTarget(task_of(model), (ResolvedTarget((1,)),) * len(rows))
        run(model, Batch(rows, torch.ones_like(rows)), plan_passes(target, [MethodConfig(METHODS["attcat"], {})]))

    def one_at_a_time() -> None:
        for row in ids:
            explain(row[None])

    seconds = measure({"together": lambda: explain(ids), "alone": one_at_a_time}, repeats)
    return f"64 texts of 12 tokens together: {seconds['alone'] / seconds['together']:.1f} x faster than one at a time"


def integrated_gradients(model: PreTrainedModel, ids: Tensor, steps: int) -> Tensor:
    """Integrated gradients by hand, with padding as baseline: the prediction, then all steps, 32 inputs at a time."""
    embeddings, mask = model.get_input_embeddings(), torch.ones_like(ids)
    points, weights = (torch.tensor(numbers) for numbers in numpy.polynomial.legendre.leggauss(steps))
    with torch.no_grad():
        label = model(input_ids=ids, attention_mask=mask).logits.argmax(-1)
    text, origin = embeddings(ids), embeddings(torch.zeros_like(ids))
    total = torch.zeros_like(text)
    for indices in torch.arange(steps).split(max(1, 32 // len(ids))):
        points_between = origin + ((points[indices] + 1) / 2).float()[:, None, None, None] * (text - origin)
        flat = points_between.flatten(0, 1).requires_grad_()
        logits = model(inputs_embeds=flat, attention_mask=mask.repeat(len(indices), 1)).logits
        score = logits.gather(1, label.repeat(len(indices))[:, None]).sum()
        (grad,) = torch.autograd.grad(score, flat)
        total += ((weights[indices] / 2).float()[:, None, None, None] * grad.view(points_between.shape)).sum(0)
    return ((text - origin) * total).sum(-1)


def integrated(model: PreTrainedModel, batch: int, length: int, steps: int, repeats: int) -> str:
    """The ratio for integrated gradients; tokenlight also computes the baseline's score, to check completeness."""
    ids = torch.randint(5, model.config.vocab_size, (batch, length))
    plan = plan_passes(
        BatchTarget(task_of(model), (ResolvedTarget(),) * batch),
        [MethodConfig(METHODS["integrated_gradients"], {"steps": steps, "baseline": 0})],
    )
    tasks: dict[str, Callable[[], object]] = {
        "by hand": lambda: integrated_gradients(model, ids, steps),
        "ours": lambda: run(model, Batch(ids, torch.ones_like(ids)), plan),
    }
    seconds = measure(tasks, repeats)
    ratio = seconds["ours"] / seconds["by hand"]
    return f"integrated gradients, {steps} steps, {batch} x {length} tokens: {ratio:.2f} x as long as by hand"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="path of a sequence classifier")
    parser.add_argument("--llama", action="store_true", help="a small Llama instead of a small BERT")
    parser.add_argument("--relu", action="store_true", help="ReLUs as activations of the small model")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=(), help="these methods alone")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    model, eager = build(args), build(args)
    eager.set_attn_implementation("eager")
    eager.requires_grad_(False)
    console = Console()
    for batch, length in ((16, 28), (1, 28)):
        console.print(table_for(model, eager, batch, length, args.repeats, args.methods))
    if args.methods:
        return
    model.requires_grad_(False)
    for batch, length, steps in ((1, 28, 20), (16, 28, 20), (1, 500, 6)):
        console.print(integrated(model, batch, length, steps, args.repeats))
    console.print(together_or_alone(model, args.repeats))


if __name__ == "__main__":
    main()
