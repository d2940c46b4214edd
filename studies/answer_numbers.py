"""Which number of an answer is explained more faithfully: logits, or log-probabilities? Read it top to bottom.

    python recipes/evidence/needle.py --sentences 8 --model PATH/TO/smollm2 --output needle.jsonl
    python studies/answer_numbers.py --model PATH/TO/smollm2 --data needle.jsonl

Every method explains every answer twice, and each of these once more without its negative scores. Scores of tokens add
up to those of the documents. Prints LDS (rank correlation with random ablations of documents), rank correlation with
leaving out one at a time, the fall of the answer's log-probability without the best document, how often that is the
evidence, and differences between the two numbers, each with a 95 % interval of the mean over cases.
"""

import argparse
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from tokenlight.bench.cases import CaseDraft, make_drafts
from tokenlight.bench.protocol import Protocol
from tokenlight.cli.load import load_model
from tokenlight.common.intervals import mean_interval
from tokenlight.common.progress import track
from tokenlight.data.data_source import DataSource
from tokenlight.data.read import read_examples
from tokenlight.explain.options import RunOptions
from tokenlight.explain.resolve import make_request
from tokenlight.methods.config import MethodConfig
from tokenlight.metrics.evaluate import Measure, evaluate
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.results.explanation import Explanation
from tokenlight.runs.method_specs import MethodSpec

METHODS = ("attn_lrp", "lrp", "alti_logit", "gradient_x_input")
NUMBERS = ("logit", "log_probability")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True, help="checkpoint of a language model")
parser.add_argument("--data", type=Path, required=True, help="JSON lines with prompts, answers, documents and evidence")
parser.add_argument("--cases", type=int, default=40)
parser.add_argument("--ablations", type=int, default=12, help="random ones of each prompt")
parser.add_argument("--methods", nargs="+", default=METHODS)
parser.add_argument("--device", help="cpu, cuda, cuda:1 ...; default: cpu")
args = parser.parse_args()

explainer = load_model(args.model, None, device=args.device)
method_configs = {name: MethodSpec.parse(name).method_config(explainer.inner) for name in args.methods}
LEAVE_ONE_OUT = {"leave_one_out": MethodSpec.parse("leave_one_out:units=documents").method_config(explainer.inner)}
MEASURES = (
    Measure("linear_datamodeling_score", Perturbation(ablations=args.ablations, seed=1), units="documents", name="LDS"),
    Measure("spearman", units="documents", name="one out"),
    Measure("top_k_drop", units="documents", name="fall"),
    Measure("pointing_game", options={"k": 1}, units="documents", name="evidence first"),
)
Key = tuple[str, str, str]  # method, number, whether negative scores are left out


def explain(case: CaseDraft) -> dict[Key, Explanation]:
    """The whole answer, in one backward pass a method and number."""
    explanations: dict[Key, Explanation] = {}
    for number in NUMBERS:
        for name, explanation in explain_with(method_configs, case, number).items():
            explanations[name, number, ""] = explanation
            explanations[name, number, "positive"] = replace(explanation, scores=explanation.scores.clamp_min(0))
    return explanations


def explain_with(configs: dict[str, MethodConfig], case: CaseDraft, number: str) -> dict[str, Explanation]:
    request = make_request(explainer.task, case.tokenized_text, replace(case.target, quantity=number), named=True)
    explanations = explainer.explain_requests([request], configs, RunOptions(progress=False))
    return {name: explanation for name, (explanation,) in explanations.items()}


rows = list(islice(enumerate(read_examples(DataSource(args.data))), args.cases))
drafts, unusable = make_drafts(explainer, Protocol("clean", MEASURES), rows)
print(f"{len(drafts)} cases, {len(unusable)} that cannot be used")
values: dict[Key, list[dict[str, float]]] = {}
for case in track(drafts, "explaining and ablating"):
    assert case.marks is not None, "a case without evidence"
    explained = explain(case)
    one_out = explain_with(LEAVE_ONE_OUT, case, "log_probability")["leave_one_out"]
    marks, others = [case.marks] * len(explained), [one_out] * len(explained)
    measured = evaluate(explainer, list(explained.values()), MEASURES, marks=marks, others=others)
    for key, numbers in zip(explained, measured, strict=True):
        values.setdefault(key, []).append(numbers)


def with_interval(numbers: torch.Tensor, sign: str = "") -> str:
    low, high = mean_interval(numbers.numpy())
    return f"{float(numbers.mean()):{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def of(key: Key, metric: str) -> torch.Tensor:
    return torch.tensor([numbers[metric] for numbers in values[key]], dtype=torch.float64)


names = [measure.label for measure in MEASURES]
print("| method | number | scores | " + " | ".join(names) + " |")
for method, number, part in values:
    cells = [with_interval(of((method, number, part), name)) for name in names]
    print("| " + " | ".join([method, number, part or "all", *cells]) + " |")
print("log_probability minus logit")
for method in method_configs:
    pair = [(method, number, "") for number in reversed(NUMBERS)]
    cells = [with_interval(of(pair[0], name) - of(pair[1], name), "+") for name in names]
    print("| " + " | ".join([method, "difference", "all", *cells]) + " |")
