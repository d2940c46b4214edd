"""AttCAT, figure 3: answer tokens among the 20 highest scores, for BERT, DistilBERT and RoBERTa on two SQuADs.

python -m papers.attcat.figure3 --dataset squad1-bert
python -m papers.attcat.figure3 --dataset squad2-bert --released --sample 800      # about half have no answer
python -m papers.attcat.figure3 --small
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import tokenlight as tl
from papers.attcat.choices import add_released, choose_methods, choose_protocol, name_run
from papers.attcat.facts import METHODS, PAPER
from papers.figures import save_figure
from papers.options import Run, choose_runs, make_parser
from papers.small import DISTILBERT_QUESTIONS, QUESTIONS, ROBERTA_QUESTIONS
from papers.tables import compare, describe_run, finish
from tokenlight.bench.tabulate import STAGES
from tokenlight.metrics.evaluate import Measure
from tokenlight.results.tables import Table
from tokenlight.runs.run_folder import Journal
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure3"
NAMES = {  # our name of a run -> the paper's name of the data set and of the model
    "squad1-bert": ("SQuADv1", "BERT"),
    "squad1-distilbert": ("SQuADv1", "DistilBERT"),
    "squad1-roberta": ("SQuADv1", "RoBERTa"),
    "squad2-bert": ("SQuADv2", "BERT"),
    "squad2-distilbert": ("SQuADv2", "DistilBERT"),
    "squad2-roberta": ("SQuADv2", "RoBERTa"),
}
SMALL = {"squad1-bert": QUESTIONS, "squad1-distilbert": DISTILBERT_QUESTIONS, "squad1-roberta": ROBERTA_QUESTIONS}
RELEASED_METHODS = ("RawAtt", "Rollout", "AttCAT")


def make_question_parser(description: str | None) -> argparse.ArgumentParser:
    parser = add_released(make_parser(description, PAPER, list(NAMES)))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=RELEASED_METHODS, help="the paper's names")
    return parser


def measure_runs(options: argparse.Namespace, script: str, ks: Sequence[int]) -> Iterator[tuple[str, Run, str, Table]]:
    """For each run: its name, the run, whether it is as written or as released, and Precision@K for each K."""
    for plain_run in choose_runs(options, script, SMALL):
        protocol = choose_protocol(plain_run.name, options.released)
        ties = protocol.measures[0].options.get("ties", "expected")
        measures = [
            Measure("precision_at_k", options={"k": k, "ties": ties}, eligible="all", name=f"Precision@{k}") for k in ks
        ]
        run, form = name_run(plain_run, options.released)
        table = tl.benchmark(
            run.load("question-answering"),
            run.source,
            choose_methods(options.methods, options.released),
            protocol=replace(protocol, measures=tuple(measures)),
            output=run.folder,
            erasure=False,
        )
        yield plain_run.name, run, form, table


def mean_answer_length(run: Run) -> float:
    """In tokens: the highest Precision@K that can be reached. `benchmark` stores it with each example."""
    examples = [record for record in Journal(run.folder / STAGES[0]) if record.get("methods")]
    return sum(example["marked"] for example in examples) / len(examples)


def draw_bars(tables: dict[str, Table], highest: dict[str, float], methods: Sequence[str]) -> "Figure":
    """A panel per data set, a group of bars per model; a dashed line is the highest number that can be reached."""
    datasets = list(dict.fromkeys(NAMES[name][0] for name in tables))
    figure = new_figure(4.2 * len(datasets), 3.2)
    for axes, dataset in zip(np.atleast_1d(figure.subplots(1, len(datasets))), datasets, strict=True):
        tables_of_dataset = {name: table for name, table in tables.items() if NAMES[name][0] == dataset}
        positions, width = np.arange(len(tables_of_dataset)), 0.8 / len(methods)
        for number, method in enumerate(methods):
            cells = [table.cell(method, "Precision@20") for table in tables_of_dataset.values()]
            means = np.array([cell.mean for cell in cells])
            errors = np.abs(np.array([[cell.low, cell.high] for cell in cells]).T - means)
            axes.bar(positions + (number - (len(methods) - 1) / 2) * width, means, width, yerr=errors, label=method)
        for position, name in zip(positions, tables_of_dataset, strict=True):
            axes.plot(
                [position - 0.45, position + 0.45], [highest[name]] * 2, color="gray", linestyle="dashed", linewidth=1
            )
        axes.set(title=dataset, ylabel="Precision@20")
        axes.set_xticks(positions, [NAMES[name][1] for name in tables_of_dataset])
        axes.legend(fontsize=7, frameon=False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_question_parser(__doc__).parse_args(arguments)
    tables, highest = {}, {}
    run = None
    for name, run, form, table in measure_runs(options, SCRIPT, [20]):
        tables[name], highest[name] = table, mean_answer_length(run)
        heading = f"AttCAT, figure 3, {NAMES[name][1]} on {NAMES[name][0]}, {form}: {describe_run(run, table)}"
        remark = f"highest number that can be reached, the mean length of an answer: {highest[name]:.2f} tokens"
        finish(compare(heading, run, table, {}, [remark]), PAPER, SCRIPT, run, options.record)
    if run is not None:
        whole, _ = name_run(replace(run, name="all", folder=options.output / SCRIPT / "all"), options.released)
        save_figure(draw_bars(tables, highest, options.methods), PAPER, SCRIPT, whole, options.record)


if __name__ == "__main__":
    main()
