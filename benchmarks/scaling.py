"""How the cost of explaining grows with length, batch and model, as multiples of a plain forward pass.

    python benchmarks/scaling.py                                     # the embedded model and one of BERT-base's size
    python benchmarks/scaling.py --smollm2 PATH/TO/smollm2 -o scaling.json
    python benchmarks/scaling.py --only length

The forward pass is the model's own, with its fastest attention and without gradients. Times are the processor's,
medians of interleaved repetitions after one to warm up; what takes more than three seconds is timed once. Token ids are
random: costs do not depend on them.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

import tokenlight as tl

TOGETHER = 512  # tokens, as `tokenlight explain-file` runs them on a processor
LENGTHS = (16, 32, 64, 128, 256, 512)
ONE_PASS = ("gradient_x_input", "attn_lrp", "attcat", "mask_lrp", "alti")
MANY_PASSES: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": 50}, "erasure": {}}
SLOW = 3.0  # seconds


@dataclass(frozen=True)
class Cell:
    """A method on a batch."""

    table: str
    model: str
    texts: int
    tokens: int  # of each text
    method: str
    seconds: float
    forwards: float  # how many plain forward passes of the same batch take as long
    flops: float  # of a forward pass of the batch


@dataclass(frozen=True)
class Shape:
    """The sizes that determine the operations of a forward pass."""

    weights: int  # of the matrices that every token goes through
    layers: int
    width: int  # of all heads together

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Shape":
        config: Any = model.config.get_text_config()
        blocks = [
            weight for name, weight in model.base_model.named_parameters() if "layers." in name or "layer." in name
        ]
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        width = head * config.num_attention_heads
        return cls(sum(w.numel() for w in blocks if w.ndim == 2), config.num_hidden_layers, width)

    def flops(self, texts: int, tokens: int) -> float:
        """Two for each weight and token; attention: two products of two operations for each pair of tokens."""
        return texts * (2 * self.weights * tokens + 4 * self.layers * self.width * tokens**2)


def measure(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each task."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repeats + 1):
        for name, task in tasks.items():
            if turn > 0 and seconds[name][0] > SLOW:
                continue
            began = time.process_time()
            task()
            seconds[name].append(time.process_time() - began)
    return {name: statistics.median(times[1:] or times) for name, times in seconds.items()}


def cells(
    table: str, name: str, model: PreTrainedModel, texts: int, tokens: int, methods: Sequence[str], repeats: int
) -> Iterator[Cell]:
    ids = torch.randint(1000, min(16_000, model.config.vocab_size), (texts, tokens))
    last = {"logits_to_keep": 1, "use_cache": False} if "CausalLM" in type(model).__name__ else {}

    @torch.no_grad()
    def forward() -> object:
        return model(input_ids=ids, **last)

    def explain(method: str) -> Callable[[], object]:
        options = MANY_PASSES.get(method, {})
        return lambda: tl.attribute(model, ids, method=method, target=1, **options)

    tasks: dict[str, Callable[[], object]] = {"forward": forward} | {method: explain(method) for method in methods}
    flops = Shape.of(model).flops(texts, tokens)
    seconds_by_method = measure(tasks, repeats)
    print(f"{table}: {name}, {texts} × {tokens}", file=sys.stderr, flush=True)
    for method, seconds in seconds_by_method.items():
        yield Cell(table, name, texts, tokens, method, seconds, seconds / seconds_by_method["forward"], flops)


def by_length(embedded: PreTrainedModel, repeats: int) -> Iterator[Cell]:
    for tokens in LENGTHS:
        methods = [name for name in ONE_PASS if name != "alti" or tokens <= 256]
        yield from cells("length", "embedded", embedded, max(1, TOGETHER // tokens), tokens, methods, repeats)


def by_passes(embedded: PreTrainedModel, repeats: int) -> Iterator[Cell]:
    yield from cells("passes", "embedded", embedded, 2, 32, list(MANY_PASSES), repeats)


def by_batch(embedded: PreTrainedModel, repeats: int) -> Iterator[Cell]:
    for texts in (1, 2, 4, 8, 16, 32, 64):
        yield from cells("batch", "embedded", embedded, texts, 32, ("gradient_x_input", "attn_lrp"), repeats)


def by_model(models: dict[str, PreTrainedModel], repeats: int) -> Iterator[Cell]:
    for name, model in models.items():
        methods = ONE_PASS if name == "embedded" else [method for method in ONE_PASS if method != "mask_lrp"]
        yield from cells("model", name, model, TOGETHER // 32, 32, methods, repeats)


def show(table: str, cells_of_table: Sequence[Cell]) -> None:
    """Print a table, also as Markdown."""
    columns = ("model", "texts × tokens", "method", "texts/s", "× forward", "GFLOP/s of the forward pass")
    shown = Table(*columns, title=f"by {table}")
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for cell in cells_of_table:
        rate = f"{cell.flops / cell.seconds / 1e9:.1f}" if cell.method == "forward" else ""
        sizes = f"{cell.texts} × {cell.tokens}"
        row = (cell.model, sizes, cell.method, f"{cell.texts / cell.seconds:.3g}", f"{cell.forwards:.2f}", rate)
        shown.add_row(*row)
        print(f"| {' | '.join(row)} |")
    Console(width=120).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", type=Path, help="a checkpoint made by recipes/models/smollm2.py")
    parser.add_argument("--only", choices=("length", "batch", "passes", "model"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, help="JSON with everything that was measured")
    args = parser.parse_args()
    torch.manual_seed(0)
    embedded = tl.load().model
    all_cells: list[Cell] = []
    if args.only in (None, "length"):
        all_cells += list(by_length(embedded, args.repeats))
    if args.only in (None, "batch"):
        all_cells += list(by_batch(embedded, args.repeats))
    if args.only in (None, "passes"):
        all_cells += list(by_passes(embedded, args.repeats))
    if args.only in (None, "model"):
        models = {"embedded": embedded, "BERT-base": BertForSequenceClassification(BertConfig()).eval()}
        if args.smollm2:
            models["SmolLM2-135M"] = tl.load(args.smollm2).model
        all_cells += list(by_model(models, args.repeats))
    for table in dict.fromkeys(cell.table for cell in all_cells):
        show(table, [cell for cell in all_cells if cell.table == table])
    if args.output:
        args.output.write_text(json.dumps([asdict(cell) for cell in all_cells], indent=1) + "\n")


if __name__ == "__main__":
    main()
