"""Costs of explaining a corpus: texts per second compared with one at a time, shares of the time, memory over time.

    python benchmarks/corpus.py                                     # made-up sentences, the embedded model
    python benchmarks/corpus.py --texts FILE.tsv --count 2000       # any file that `tokenlight explain-file` reads

Both ways run by turns in this process, so that a busy machine disturbs both alike; read the ratio. Where the time
goes is counted in the processor's time, which others do not disturb.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench_throughput import sentences

import tokenlight as tl
from tokenlight.corpus.explain_dataset import ShardWriter, make_configs
from tokenlight.corpus.plan import ExplainingPlan
from tokenlight.corpus.settings import TOKENS, CorpusSettings
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Chunk, Example, split_into_chunks
from tokenlight.data.read import read_texts
from tokenlight.explain import passes as run
from tokenlight.model.instrumented import InstrumentedModel

METHODS = ("attn_lrp", "attcat", "mask_lrp", "alti", "gradient_x_input")
GOAL = 0.8  # of the time inside passes


@dataclass
class Stopwatch:
    """Processor time in functions, counted once for nested calls, without that of `others`."""

    others: "Stopwatch | None" = None
    seconds: float = 0.0
    depth: int = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **settings: Any) -> Any:
            self.depth += 1
            began, apart = time.process_time(), self.others.seconds if self.others else 0.0
            try:
                return function(*args, **settings)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.seconds += time.process_time() - began
                    self.seconds -= self.others.seconds - apart if self.others else 0.0

        return timed


@contextmanager
def timing() -> Iterator[tuple[Stopwatch, Stopwatch]]:
    """Inside, passes are timed, and the computations of methods on recorded signals."""
    passes = Stopwatch()
    reading = Stopwatch(passes)
    forward, backward, read = InstrumentedModel.run, torch.autograd.grad, run.read_parts
    InstrumentedModel.run, torch.autograd.grad, run.read_parts = (
        passes.wrap(forward),
        passes.wrap(backward),
        reading.wrap(read),
    )
    try:
        yield passes, reading
    finally:
        InstrumentedModel.run, torch.autograd.grad, run.read_parts = forward, backward, read


def resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Measured:
    """Measurements of both ways, alternating on the same machine."""

    alone_texts: int = 0
    alone_seconds: float = 0.0
    texts: int = 0
    seconds: float = 0.0
    processor: float = 0.0  # seconds, and of them:
    passes: float = 0.0
    methods: float = 0.0
    memory: list[float] = field(default_factory=list)  # MiB after each part

    def alone(self, explainer: tl.Explainer, texts: Sequence[Any], methods: Sequence[str]) -> None:
        began = time.perf_counter()
        for text in texts:
            explainer.explain_all(text, methods, progress=False)
        self.alone_seconds += time.perf_counter() - began
        self.alone_texts += len(texts)

    def part(self, writer: ShardWriter, part: Chunk) -> None:
        began, busy = time.perf_counter(), time.process_time()
        with timing() as (passes, methods):
            writer.process(part, lambda rows: None)
        self.texts += len(part.rows)
        self.seconds += time.perf_counter() - began
        self.processor += time.process_time() - busy
        self.passes += passes.seconds
        self.methods += methods.seconds
        self.memory.append(resident())
        print(f"part {part.number}: {self.memory[-1]:.0f} MiB", flush=True)

    def report(self) -> None:
        one, many = self.alone_texts / self.alone_seconds, self.texts / self.seconds
        print(f"one at a time   {one:8.1f} texts/s   ({self.alone_texts} texts)")
        print(f"as a corpus     {many:8.1f} texts/s   ({self.texts} texts): {many / one:.1f} x")
        shares = [part / self.processor for part in (self.passes, self.methods)]
        print(f"time goes to    {shares[0]:8.0%} forward and backward passes (goal: {GOAL:.0%})")
        print(f"                {shares[1]:8.0%} what methods compute from them")
        print(f"                {1 - sum(shares):8.0%} reading, batching, writing")
        first, last, most = self.memory[0], self.memory[-1], max(self.memory)
        print(f"memory          {first:8.0f} MiB after the first part, {last:.0f} after the last, {most:.0f} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", help="a data file; default: made-up sentences")
    parser.add_argument("--count", type=int, default=400, help="texts of the corpus")
    parser.add_argument("--alone", type=int, default=60, help="of these, how many are explained one at a time, too")
    parser.add_argument("--chunk-rows", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=TOKENS["cpu"])
    parser.add_argument("--method", action="append")
    parser.add_argument("--model", help="default: the embedded one")
    args = parser.parse_args()
    explainer, methods = tl.load(args.model), args.method or METHODS
    source = DataSource(args.texts or sentences(args.count), limit=args.count)
    settings = CorpusSettings(tokens=args.tokens, chunk_rows=args.chunk_rows)
    plan = ExplainingPlan(explainer, make_configs(explainer, methods, None), settings)
    every = max(1, args.count // args.alone)
    Measured().alone(explainer, ["to warm up"], methods)
    measured = Measured()
    with tempfile.TemporaryDirectory() as folder:
        for chunk in split_into_chunks(partial(read_texts, source), args.chunk_rows):
            texts = [row.text for _, row in chunk.rows[::every] if isinstance(row, Example)]
            measured.alone(explainer, texts, methods)
            measured.part(ShardWriter(plan, Path(folder), {}), chunk)
        size = sum(path.stat().st_size for path in Path(folder).glob("parts/*"))
    print(f"{len(methods)} methods ({', '.join(methods)}), {torch.get_num_threads()} threads")
    measured.report()
    print(f"written         {size / measured.texts:8.0f} bytes a text")


if __name__ == "__main__":
    main()
