"""Calibrated heads on a language model: does calibration on deletion help to find the subject of a verb?

    python studies/calibration_agreement.py CHECKPOINT --calibrate GUM.conllu --judge EWT.conllu --output DIR

Subject-verb agreement from treebanks: why this form of the verb and not the other one? Head strengths are calibrated on
deletion alone, on one treebank; judged are deletion and the evidence metrics of Arras et al. 2025 (is relevance on the
subject?) on another. Numbers are in docs/calibration.md.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

import tokenlight as tl
from tokenlight.bench.cases import Case, select_cases
from tokenlight.bench.protocol import Protocol, protocol
from tokenlight.cli.load import load_model
from tokenlight.common.intervals import mean_interval
from tokenlight.data.data_source import DataSource
from tokenlight.data.read import read_examples
from tokenlight.heads.mask import HeadMask
from tokenlight.metrics.evaluate import Measure

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--calibrate", type=Path, required=True, help="treebank to calibrate on")
parser.add_argument("--judge", type=Path, required=True, help="treebank to judge on")
parser.add_argument("--output", type=Path, required=True)
parser.add_argument("--method", default="attn_lrp")
parser.add_argument("--texts", type=int, default=80)
parser.add_argument("--judged", type=int, default=200)
parser.add_argument("--longest", type=int, default=24, help="tokens before the verb")
parser.add_argument("--random", type=int, default=5)
parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()
args.output.mkdir(parents=True, exist_ok=True)
explainer = load_model(args.model, "text-generation", device=args.device)
EVIDENCE = [measure for measure in protocol("arras").measures if measure.entry.needs == "marks"]
JUDGE = Protocol("agreement", (*EVIDENCE, Measure("aopc"), Measure("log_odds")), longest=args.longest)


def cases(path: Path, count: int) -> list[Case]:
    right_cases, _ = select_cases(
        explainer, JUDGE, list(enumerate(read_examples(DataSource(path), explainer.task.gap)))
    )
    order = torch.randperm(len(right_cases), generator=torch.Generator().manual_seed(0)).tolist()
    print(f"{path.name}: {len(right_cases)} verbs, {min(count, len(right_cases))} used")
    return [right_cases[i] for i in order[:count]]


def targets_of(chosen: list[Case]) -> list[Any]:
    return [case.target for case in chosen]


path = args.output / f"{args.method}.json"
if not path.exists():
    taught = cases(args.calibrate, args.texts)
    texts = [case.draft.tokenized_text.text for case in taught]
    settings: dict[str, Any] = {"orders": 4, "steps": 25, "checkpoint": path.with_suffix(".partial")}
    mask = tl.calibrate(explainer, texts, args.method, target=targets_of(taught), **settings)
    mask.save(path)
mask = HeadMask.load(path)
print(mask, mask.made["agreement"], mask.made["aopc"])

judged = cases(args.judge, args.judged)
texts = [case.draft.tokenized_text.text for case in judged]
marks = [case.draft.marks for case in judged if case.draft.marks is not None]
plain: dict[str, torch.Tensor] = {}
chosen = {"all heads": None, "calibrated": mask, **{f"random {i}": mask.random(i) for i in range(args.random)}}
for name, heads in chosen.items():
    explained = explainer.explain(texts, args.method, heads=heads, target=targets_of(judged))
    rows = tl.evaluate(explainer, explained, JUDGE.measures, marks=marks)
    values = {metric: torch.tensor([row[metric] for row in rows]) for metric in rows[0]}
    plain = plain or values
    for metric, found in values.items():
        low, high = mean_interval((found - plain[metric]).numpy())
        gain = float((found - plain[metric]).mean())
        print(f"{name:12} {metric:24} {float(found.mean()):8.4f} {gain:+.4f} [{low:+.4f}, {high:+.4f}]", flush=True)
