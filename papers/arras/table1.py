"""Arras et al., table 1: what the methods assign relevance to, what they assume, and whether they decompose the logit.

python -m papers.arras.table1 --dataset gpt2-small --data PATH/TO/lgd_dataset.tsv --limit 100
python -m papers.arras.table1 --small

Assumptions are read from the rule table of each method. Sums are measured: of the scores, and of the scores with the
shares that a method reports beside them (biases, MLPs, softmax), both compared with the difference of the logits.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

import tokenlight as tl
from papers.arras.agreement import (
    agreement_parser,
    agreement_runs,
    annotated,
    explain_cases,
    load,
    paper_methods,
    sort_cases,
)
from papers.arras.facts import METHODS, MODELS, PAPER, PROPERTIES, TABLE_1, TITLES
from papers.tables import Comparison, finish
from tokenlight import rules
from tokenlight.bench.cases import Case
from tokenlight.bench.presets import ARRAS
from tokenlight.rules.lrp_rules import constant_gate
from tokenlight.runs.method_specs import MethodSpec

SCRIPT = "table1"
CASES = 100  # sentences of which sums are measured
PARTS = {"layers": "layer", "heads": "head", "neurons": "neuron"}  # option detail= -> what it gives relevance to
EXACT = 1e-6  # of the difference


def main(arguments: Sequence[str] | None = None) -> None:
    options = agreement_parser(__doc__, list(MODELS)).parse_args(arguments)
    head = ["method", "granularity", "published", "computation", "published"]
    head += [name for column in PROPERTIES for name in (column, "published")] + [
        "sum / difference",
        "with shares, farthest from 1",
    ]
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision)
        cases = first_cases(explainer, annotated(run, options.spacy))
        rows = [make_row(explainer, cases, method) for method in paper_methods(explainer)]
        remarks = [
            f"{len(cases)} sentences that the model gets right: *sum / difference* is a mean over them, *with shares* "
            "the value of the one that is farthest from 1",
            *run.differences,
        ]
        comparison = Comparison(f"Arras et al., table 1, {MODELS[run.name]}", head, rows, remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)


def first_cases(explainer: tl.Explainer, source: tl.DataSource) -> list[Case]:
    """The first cases that the model gets right."""
    right_cases: list[Case] = []
    for cases, _ in sort_cases(explainer, source, ARRAS):
        right_cases += cases
        if len(right_cases) >= CASES:
            break
    return right_cases[:CASES]


def make_row(explainer: tl.Explainer, cases: Sequence[Case], method: str) -> list[str]:
    granularity, computation, *published = TABLE_1[METHODS[method]]
    entry = MethodSpec.parse(method).entry
    total, with_shares = sums(explainer, cases, method)
    here = [*assumptions(method), abs(with_shares - 1) < EXACT]
    marks = [sign(answer) for pair in zip(here, published, strict=True) for answer in pair]
    row = [TITLES[method], ", ".join(parts(explainer, cases[:1], method)), str(granularity), entry.cost]
    return [*row, str(computation), *marks, f"{total:.3f}", f"{with_shares:.3f}"]


def assumptions(method: str) -> list[bool]:
    """Whether norms are linear, attention is constant, and relevance flows through MLPs."""
    spec = MethodSpec.parse(method)
    table = spec.entry.passes[0].rules_with({**spec.entry.options, **spec.options}) or {}
    constants = (rules.constant, constant_gate)
    return [
        table.get(F.layer_norm) is rules.linear_norm,
        table.get(torch.softmax) in constants,
        table.get(F.gelu) is not rules.cut,
    ]


def parts(explainer: tl.Explainer, cases: Sequence[Case], method: str) -> list[str]:
    """What a method gives relevance to, by asking it for each."""
    offered = MethodSpec.parse(method).entry.options.get("detail") is not None
    names = ["token"]
    for detail, name in PARTS.items() if offered else ():
        try:
            explain_cases(explainer, cases, method, detail=detail)
        except ValueError:
            continue
        names.append(name)
    return names


def sums(explainer: tl.Explainer, cases: Sequence[Case], method: str) -> tuple[float, float]:
    """Mean share of the difference that the scores add up to; the same with the shares that the method reports."""
    explained = explain_cases(explainer, cases, method)
    score_shares = [float(explanation.scores.sum()) / explanation.score for explanation in explained]
    shares = [
        sum(value for name, value in explanation.extras.items() if name != "residual") / explanation.score
        for explanation in explained
    ]
    together = [a + b for a, b in zip(score_shares, shares, strict=True)]
    worst = max(together, key=lambda value: abs(value - 1))
    return sum(score_shares) / len(score_shares), worst


def sign(holds: bool) -> str:
    return "✓" if holds else "✗"


if __name__ == "__main__":
    main()
