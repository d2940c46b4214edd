"""Arras et al., table 2: do explanations point at the subject that decides the form of a verb?

python -m papers.arras.table2 --dataset bert-base --data PATH/TO/lgd_dataset.tsv
python -m papers.arras.table2 --small
python -m papers.arras.table2 --small --dataset llama-1b --method lrp:gamma=0.25 --method alpha_beta_lrp
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import tokenlight as tl
from papers.arras.agreement import agreement_parser, agreement_runs, annotated, data_remarks, load, paper_methods
from papers.arras.facts import METHODS, MODELS, PAPER, TABLE_2, TITLES, family_of
from papers.tables import Numbers, compare, finish
from tokenlight.bench.tabulate import STAGES
from tokenlight.results.tables import Table
from tokenlight.runs.run_folder import Journal

SCRIPT = "table2"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = agreement_parser(__doc__, list(MODELS))
    parser.add_argument("--method", action="append", default=[], help="one more row, such as lrp:epsilon=0.01")
    options = parser.parse_args(arguments)
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision)
        methods = [*paper_methods(explainer), *options.method]
        source = annotated(run, options.spacy)
        table = tl.benchmark(explainer, source, methods, protocol="arras", output=run.folder, erasure=False)
        heading = f"Arras et al., table 2, {MODELS[run.name]}"
        remarks = [*data_remarks(run, options.spacy), check_marks(table, run.folder)]
        comparison = compare(heading, run, table, published_for(run.name), remarks, titles=TITLES)
        finish(comparison, PAPER, SCRIPT, run, options.record)


def published_for(name: str) -> Numbers:
    """The numbers of a model by our methods, and those of random scores for its tokenizer."""
    model, rows = MODELS[name], TABLE_2.rows
    numbers = {ours: rows[f"{model}, {row}"] for ours, row in METHODS.items() if f"{model}, {row}" in rows}
    return {**numbers, "random": rows[f"{family_of(name)}, Random"]}


def check_marks(table: Table, folder: Path) -> str:
    """A gradient's length is positive everywhere, so its PTA is the mean share of subject tokens."""
    records = [record for record in Journal(folder / STAGES[0]) if "methods" in record]
    share = fmean(record["marked"] / record["tokens"] for record in records)
    accuracy = table.cell("gradient_l1", "per_token_accuracy").mean
    agrees = "is the same, as it must be" if abs(share - accuracy) < 1e-6 else f"is {accuracy:.4f}, which is wrong"
    return f"check: on average the subject is {share:.4f} of the tokens of an input; the PTA of Gradient {agrees}"


if __name__ == "__main__":
    main()
