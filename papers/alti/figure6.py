"""ALTI, figure 6: how far BERT's probability falls while the highest-ranked tokens are deleted one by one.

python -m papers.alti.figure6 --dataset bert-imdb --limit 1000
python -m papers.alti.figure6 --dataset bert-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.figure6 --small

The mean over texts with its 95 % interval. A text with fewer tokens stays at its end. `--released` draws what the
authors' notebook draws: the lowest probability so far, from the whole text on, as a mean over the texts that still have
tokens to delete.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from papers.alti.curves import list_points, make_protocol, released_curves
from papers.alti.facts import METHODS, PAPER
from papers.alti.runs import alti_parser, describe, is_agreement, make_specs, measure
from papers.alti.small import SMALL
from papers.figures import draw_curves, save_figure
from papers.options import Run, choose_runs
from papers.tables import Comparison, compare, describe_run, finish
from tokenlight.results.tables import Table
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure6"
DELETED = {"bert-imdb": 60, "bert-yelp": 60, "bert-sva": 30}  # tokens, as in the authors' code, which stops before
DELETED_SMALL = 12  # of texts with about 15
SHOWN = (0, 1, 2, 3, 5, 10, 20, 29, 40, 59)  # deleted tokens in the terminal, with --released


def draw_probabilities(curves: Mapping[str, np.ndarray]) -> "Figure":
    figure = new_figure(5.5, 3.6)
    axes = figure.subplots()
    for method, values in curves.items():
        axes.plot(range(len(values)), values, linestyle="dashed", label=method)
    axes.set(xlabel="number of deleted tokens", ylabel="lowest probability so far", ylim=(0, 1))
    axes.legend(fontsize=7)
    return figure


def show_released(options: argparse.Namespace, run: Run, table: Table) -> None:
    curves = {
        method: own for method, own in released_curves(run.folder, is_agreement(run)).items() if method in METHODS
    }
    heading = f"ALTI, figure 6, {describe(run)}, as released, lowest probability so far: {describe_run(run, table)}"
    finish(Comparison(heading, *list_points(curves, SHOWN), run.differences), PAPER, SCRIPT, run, options.record)
    save_figure(draw_probabilities(curves), PAPER, SCRIPT, run, options.record)


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, list(DELETED)).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        deleted = DELETED_SMALL if run.small else DELETED[run.name] - options.released
        specs = make_specs(METHODS, options.steps, options.released)
        table = measure(run, specs, make_protocol(deleted, options.released), options.released)
        if options.released:
            show_released(options, run, table)
            continue
        heading = f"ALTI, figure 6, {describe(run)}, mean of the curves: {describe_run(run, table)}"
        finish(compare(heading, run, table, {}), PAPER, SCRIPT, run, options.record)
        controls = [line.label for line in table.controls if line.label != "random"]
        save_figure(draw_curves(table, controls), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
