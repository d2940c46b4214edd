"""Rounding errors of the z+ methods, as used by default and in plain float32, relative to full double precision.

    python benchmarks/precision.py SENTENCES.tsv [--column text_a] [--count 200]

Runs the embedded model on real sentences and prints, for each method, the lowest and the mean Spearman correlation of a
sentence's scores with those of double precision, how many sentences fall below 0.99, and whether all scores are finite.
"""

import argparse
import copy
import csv
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import tokenlight as tl
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS, Method
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import collate
from tokenlight.text.tokenize import encode

NAMES = ("zplus_lrp", "partial_lrp", "transformer_attribution")


def spearman(a: Tensor, b: Tensor) -> float:
    ranks = torch.stack([x.argsort().argsort().double() for x in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def single(method: Method) -> Method:
    """The method without passes in double precision."""
    return replace(method, passes=tuple(replace(pass_, double=False) for pass_ in method.passes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path, help="a tab-separated file with a header")
    parser.add_argument("--column", default="text_a")
    parser.add_argument("--count", type=int, default=200)
    args = parser.parse_args()
    with open(args.sentences, encoding="utf-8", newline="") as file:
        texts = [row[args.column].strip() for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    explainer = tl.load()
    tokenized_texts = sorted(encode(explainer.tokenizer, texts[: args.count], 512), key=len)
    doubled = copy.deepcopy(explainer.model).double()  # an instrumented model does not keep its model alive
    ordinary, double = InstrumentedModel(explainer.model), InstrumentedModel(doubled)

    def scores(instrumented: InstrumentedModel, method: Method) -> list[Tensor]:
        found = []
        for first in range(0, len(tokenized_texts), 16):
            some = tokenized_texts[first : first + 16]
            target = BatchTarget(explainer.task, (ResolvedTarget((1,)),) * len(some))
            _, (result,) = execute_plan(
                instrumented, collate(some, explainer.tokenizer), plan_passes(target, [MethodConfig(method, {})])
            )
            found += [result.scores[i, : len(tokenized_text)].double() for i, tokenized_text in enumerate(some)]
        return found

    table = Table(title=f"{len(tokenized_texts)} sentences, Spearman with double precision")
    for column in ("method", "precision", "lowest", "mean", "below 0.99", "all finite"):
        table.add_column(column, justify="left" if column in ("method", "precision") else "right")
    for name in NAMES:
        truth = scores(double, single(METHODS[name]))
        for label, method in (("as delivered", METHODS[name]), ("float32", single(METHODS[name]))):
            found = scores(ordinary, method)
            pairs = [spearman(a, b) for a, b in zip(found, truth, strict=True)]
            finite = all(bool(x.isfinite().all()) for x in found)
            below = sum(value < 0.99 for value in pairs)
            mean = sum(pairs) / len(pairs)
            table.add_row(name, label, f"{min(pairs):.3f}", f"{mean:.4f}", str(below), "yes" if finite else "no")
    Console().print(table)


if __name__ == "__main__":
    main()
