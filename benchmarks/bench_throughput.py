"""AOPC and log-odds for all methods that read the plain gradient: the benchmark compared with one text at a time.

    python benchmarks/bench_throughput.py                     # made-up sentences, the embedded model
    python benchmarks/bench_throughput.py --texts FILE.tsv    # any data file that `tokenlight bench` reads

The transcription does what the papers' notebooks do: for each method and each text one pass to explain, then one
forward pass for every point of the curve. Both run in this process, one after the other; read the ratio.
"""

import argparse
import random
import time
from collections.abc import Sequence

import torch
from torch import Tensor

import tokenlight as tl
from tokenlight.bench.benchmark import CHUNK_ROWS
from tokenlight.bench.measure_chunk import MeasuringPlan, measure_chunk
from tokenlight.bench.protocol import clean
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example, split_into_chunks
from tokenlight.data.read import read_examples
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.perturbation import TENTHS
from tokenlight.metrics.ranking import order, round_share_up

GOAL = 4.0
SUBJECTS = ("the film", "this story", "the acting", "a clever script", "her first novel", "the whole second half")
VERBS = ("is", "was never", "turns out to be", "feels", "wants to be", "somehow remains")
OPINIONS = ("charming", "a dull mess", "surprisingly funny", "too long by half", "touching and smart", "not bad at all")
TAILS = ("", "from start to finish", "despite its small budget", "even for those who know the book by heart")


def plain_methods(explainer: tl.Explainer) -> list[str]:
    """Methods that only read plain passes."""
    entries = [entry for entry in METHODS.values() if entry.fits(explainer.inner)]
    return [entry.name for entry in entries if entry.passes and all(pass_.rules is None for pass_ in entry.passes)]


def sentences(count: int) -> list[str]:
    dice = random.Random(0)
    clauses = [SUBJECTS, VERBS, OPINIONS, TAILS]
    return [
        " and ".join(" ".join(map(dice.choice, clauses)).strip() for _ in range(dice.choice((1, 1, 2, 3)))) + " ."
        for _ in range(count)
    ]


def one_at_a_time(explainer: tl.Explainer, texts: Sequence[str], methods: Sequence[str]) -> Tensor:
    """[method, text, (AOPC, log-odds)]"""
    return torch.tensor([[transcribed(explainer, text, method) for text in texts] for method in methods])


def transcribed(explainer: tl.Explainer, text: str, method: str) -> tuple[float, float]:
    explanation = explainer.explain(text, method, progress=False)
    tokenized_text = explainer.encode([text])[0]
    words = [i for i in order(explanation.scores) if not tokenized_text.special[i]]
    label = list(explainer.task.labels.values()).index(explanation.target)
    full_probability = probability(explainer, tokenized_text.input_ids, label)
    falls, odds = [], []
    for share in TENTHS:
        removed = set(words[: round_share_up(len(words), share)])
        mask = explainer.tokenizer.mask_token_id
        point = probability(
            explainer, [mask if i in removed else token for i, token in enumerate(tokenized_text.input_ids)], label
        )
        falls.append(full_probability - point)
        odds.append(torch.log(point / full_probability))
    return float(torch.stack(falls).mean()), float(torch.stack(odds).mean())


def probability(explainer: tl.Explainer, ids: list[int], label: int) -> Tensor:
    with torch.inference_mode():
        return explainer.model(input_ids=torch.tensor([ids])).logits[0].double().softmax(0)[label]


def together(explainer: tl.Explainer, texts: Sequence[str], methods: Sequence[str]) -> Tensor:
    """The same values from the benchmark's chunks, without its controls."""
    method_configs = {name: MethodConfig(METHODS[name], {}) for name in methods}
    plan = MeasuringPlan(explainer, clean(["aopc", "log_odds"]), method_configs)
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    chunks = split_into_chunks(lambda: iter(examples), CHUNK_ROWS)
    records = [record for chunk in chunks for record in measure_chunk(plan, chunk).records]
    values = [[list(record["methods"][name]["values"].values()) for record in records] for name in methods]
    return torch.tensor(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", help="a data file; default: made-up sentences")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--model", help="a sequence classifier; default: the embedded one")
    args = parser.parse_args()
    explainer = tl.load(args.model)
    texts = sentences(args.count)
    if args.texts:
        rows = read_examples(DataSource(args.texts, limit=args.count))
        texts = [row.text for row in rows if isinstance(row, Example) and isinstance(row.text, str)]
    methods = plain_methods(explainer)
    together(explainer, texts[:4], methods[:2])  # warm
    one_at_a_time(explainer, texts[:2], methods[:1])
    wall, cpu, worst = [0.0, 0.0], [0.0, 0.0], 0.0
    for start in range(0, len(texts), CHUNK_ROWS):  # by turns, so that a busy machine disturbs both alike
        values = []
        for side, measure in enumerate((one_at_a_time, together)):
            began, spent = time.perf_counter(), time.process_time()
            values.append(measure(explainer, texts[start : start + CHUNK_ROWS], methods))
            wall[side] += time.perf_counter() - began
            cpu[side] += time.process_time() - spent
        worst = max(worst, float((values[0] - values[1]).abs().max()))
    print(f"{len(texts)} texts, {len(methods)} methods ({', '.join(methods)}), {torch.get_num_threads()} threads")
    print(f"one at a time {wall[0]:8.1f} s   {cpu[0]:8.1f} s of the processor")
    print(f"together      {wall[1]:8.1f} s   {cpu[1]:8.1f} s")
    print(f"ratio         {wall[0] / wall[1]:8.1f} x   {cpu[0] / cpu[1]:8.1f} x   (goal: {GOAL:.0f} x)")
    print(f"largest difference of a value: {worst:.1e}")


if __name__ == "__main__":
    main()
