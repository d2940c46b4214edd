"""Relevance over contexts beside its rivals: the tables of docs/contexts.md. Read it top to bottom.

    python studies/contexts.py --texts SST-2/dev.tsv --column text_a --count 400 -o judged.json \
        --method attn_lrp --method context_lrp --method integrated_gradients:steps=50,baseline=pad
    python studies/contexts.py --table judged.json --against attn_lrp

The first command explains texts with methods (written as for `tokenlight bench`) and measures four metrics under three
ways of removing tokens. What is in the file already is not measured again. The second prints every cell with its
paired difference from one of the methods and a 95 % interval of its mean over texts.

--controls adds two methods that must gain nothing: the whole text's scores averaged with the contexts of another text,
and random scores averaged over contexts.
"""

import argparse
import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import tokenlight as tl
from tokenlight.cli.load import DEFAULT, load_model
from tokenlight.common.intervals import mean_interval
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import BINS, Perturbation
from tokenlight.runs.method_specs import MethodSpec

REMOVALS = ("pad", "mask", "delete")
BETTER = {"aopc": 1, "log_odds": -1, "comprehensiveness": 1, "sufficiency": -1}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--texts", type=Path, help="a tab-separated file")
parser.add_argument("--column", default="text_a")
parser.add_argument("--quoted", action="store_true", help="fields may stand in quotation marks")
parser.add_argument("--count", type=int, default=400)
parser.add_argument("--words", type=int, nargs=2, default=(8, 10**6), help="shortest and longest text")
parser.add_argument("--model", default=DEFAULT, help="a checkpoint; default: the embedded model")
parser.add_argument("--method", action="append", default=[])
parser.add_argument("--removals", nargs="+", default=REMOVALS, choices=REMOVALS)
parser.add_argument("--controls", action="store_true")
parser.add_argument("-o", "--output", type=Path)
parser.add_argument("--table", type=Path, help="print the results in this file")
parser.add_argument("--against", default="attn_lrp")
parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()


def texts() -> list[str]:
    """The same for every run: shuffled once by a fixed seed."""
    with args.texts.open(encoding="utf-8", newline="") as file:
        style = csv.QUOTE_MINIMAL if args.quoted else csv.QUOTE_NONE
        rows = csv.DictReader(file, delimiter="\t", quoting=style)
        candidates = list(dict.fromkeys(row[args.column].strip() for row in rows))
    shortest, longest = args.words
    candidates = [text for text in candidates if shortest <= len(text.split()) <= longest]
    return random.Random(0).sample(candidates, len(candidates))[: args.count]


def of_another_text(plain: list[tl.Explanation], averaged: list[tl.Explanation]) -> list[tl.Explanation]:
    """The whole text's scores, averaged with those that the next text has in the mean, token by token."""
    others = averaged[1:] + averaged[:1]
    results = []
    for explanation, other in zip(plain, others, strict=True):
        tokens = len(explanation.scores)
        foreign = other.scores.repeat(tokens)[:tokens]  # repeated where the other text is shorter
        results.append(replace(explanation, scores=(explanation.scores + foreign) / 2))
    return results


def random_in_contexts(plain: list[tl.Explanation]) -> list[tl.Explanation]:
    """Nine random scores for every token, in the mean."""
    generator = torch.Generator().manual_seed(0)
    return [replace(e, scores=(torch.rand(9, len(e.scores), generator=generator) - 0.5).mean(0)) for e in plain]


def judge() -> None:
    explainer = load_model(args.model, None, device=args.device)
    known = json.loads(args.output.read_text()) if args.output.exists() else {}
    chosen = texts()
    explained: dict[str, list[tl.Explanation]] = {}
    for written in args.method:
        if written in known:
            continue
        spec = MethodSpec.parse(written)
        explained[written] = explainer.explain(chosen, spec.name, progress=True, batch_size=32, **spec.options)
        print(f"explained with {written}", flush=True)
    if args.controls and "control: another text's contexts" not in known:
        plain = explainer.explain(chosen, "attn_lrp", progress=False)
        explained["control: another text's contexts"] = of_another_text(plain, explainer.explain(chosen, "context_lrp"))
        explained["control: random scores over contexts"] = random_in_contexts(plain)
    everything = [explanation for results in explained.values() for explanation in results]
    for removal in args.removals if everything else ():
        way = Perturbation(removal=removal)
        bins = replace(way, grid=BINS)
        measures = [Measure(name, way if name in ("aopc", "log_odds") else bins) for name in BETTER]
        evaluated = iter(tl.evaluate(explainer, everything, measures))
        for written, results in explained.items():
            cells = known.setdefault(written, {})
            values_of_texts = [next(evaluated) for _ in results]
            cells |= {f"{removal} {name}": [values[name] for values in values_of_texts] for name in BETTER}
        args.output.write_text(json.dumps(known))
        print(f"measured: {removal}", flush=True)


def cell(values: np.ndarray, beside: np.ndarray, own: bool) -> str:
    if own:
        return f"{values.mean():.3f}"
    low, high = mean_interval(values - beside)
    return f"{values.mean():.3f} ({(values - beside).mean():+.3f} [{low:+.3f}, {high:+.3f}])"


def show() -> None:
    known = {
        written: {name: np.array(values) for name, values in cells.items()}
        for written, cells in json.loads(args.table.read_text()).items()
    }
    reference = known[args.against]
    removals = [removal for removal in REMOVALS if f"{removal} aopc" in reference]
    print(f"{len(reference[f'{removals[0]} aopc'])} texts; in brackets: the difference from {args.against}\n")
    for removal in removals:
        print(
            f"| {removal} | " + " | ".join(f"{name} {'↑' if sign > 0 else '↓'}" for name, sign in BETTER.items()) + " |"
        )
        print("|---" * (len(BETTER) + 1) + "|")
        for written, cells in known.items():
            row = [cell(cells[f"{removal} {n}"], reference[f"{removal} {n}"], written == args.against) for n in BETTER]
            print(f"| {written} | " + " | ".join(row) + " |")
        print()
    print("| mean over removals | " + " | ".join(BETTER) + " |")
    print("|---" * (len(BETTER) + 1) + "|")
    for written, cells in known.items():
        row = []
        for name in BETTER:
            own, beside = (np.mean([x[f"{removal} {name}"] for removal in removals], 0) for x in (cells, reference))
            row.append(cell(own, beside, written == args.against))
        print(f"| {written} | " + " | ".join(row) + " |")


if args.table:
    show()
elif args.texts and args.output and args.method:
    judge()
else:
    parser.error("give --texts, --output and --method, or --table")
