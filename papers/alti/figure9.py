"""ALTI, figure 9: the second norm (LN2) in ALTI and Globenc, over models that differ in their seed.

python -m papers.alti.figure9 --limit 1000 --device cuda      # fine-tunes ten MultiBERTs on SST-2 first
python -m papers.alti.figure9 --small

The fall of the probability while tokens are deleted one by one: mean and standard deviation over models of the mean
over texts. `--dataset multiberts-0 --dataset multiberts-1` takes two of the ten models. `--released`: as in figure 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from papers.alti.curves import make_protocol, released_curves
from papers.alti.facts import PAPER, SEEDS
from papers.alti.runs import alti_parser, differences_of, make_specs, measure
from papers.alti.small import SMALL
from papers.figures import save_figure
from papers.options import Run, choose_runs
from papers.tables import Comparison, finish
from tokenlight.results.tables import Table
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure9"
TITLES = ("ALTI + LN2", "ALTI", "Globenc")
DELETED = 18  # tokens, as in the authors' notebook
SHOWN = (1, 2, 3, 5, 10, 18)  # tokens in the terminal and in the docs; with --released from 0 on


def curves_of(tables: Sequence[Table]) -> tuple[Sequence[float], dict[str, np.ndarray]]:
    """Numbers of deleted tokens, and by title [model, number], the mean over texts."""
    panels = [table.panels[0] for table in tables]
    curves = {title: np.array([[point.mean for point in panel.curves[title]] for panel in panels]) for title in TITLES}
    return panels[0].places, curves


def curves_as_released(runs: Sequence[Run]) -> tuple[Sequence[float], dict[str, np.ndarray]]:
    """The same of the lowest probabilities so far, up to the number of tokens that all models have a point for."""
    by_model = [released_curves(run.folder, agreement=False) for run in runs]
    points = min(len(curve) for curves in by_model for curve in curves.values())
    return range(points), {title: np.array([curves[title][:points] for curves in by_model]) for title in TITLES}


def draw(places: Sequence[float], curves: Mapping[str, np.ndarray], quantity: str) -> "Figure":
    figure = new_figure(5.5, 3.6)
    axes = figure.subplots()
    for number, (title, values) in enumerate(curves.items()):
        mean, spread = values.mean(0), values.std(0)
        axes.plot(places, mean, color=f"C{number}", label=title)
        axes.fill_between(places, mean - spread, mean + spread, color=f"C{number}", alpha=0.15, linewidth=0)
    axes.set(xlabel="deleted tokens", ylabel=quantity)
    axes.legend(fontsize=8)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, SEEDS).parse_args(arguments)
    runs = list(choose_runs(options, SCRIPT, SMALL))
    protocol = make_protocol(DELETED, options.released)
    tables = [measure(run, make_specs(TITLES), protocol, options.released) for run in runs]
    places, curves = curves_as_released(runs) if options.released else curves_of(tables)
    quantity = "lowest probability so far" if options.released else "fall of the probability"
    shown = (0, *SHOWN) if options.released else SHOWN
    columns = [list(places).index(place) for place in shown if place in places]
    rows = [
        [title, *(f"{values[:, c].mean():.3f} ± {values[:, c].std():.3f}" for c in columns)]
        for title, values in curves.items()
    ]
    data = f"{tables[0].run.examples} texts of {runs[0].data_name}"
    heading = f"ALTI, figure 9: {quantity}, mean and standard deviation over {len(runs)} models on {data}"
    head = ["deleted tokens", *(f"{places[c]:g}" for c in columns)]
    remarks = differences_of(runs)
    together = replace(runs[0], name="seeds", folder=options.output / SCRIPT)
    finish(Comparison(heading, head, rows, remarks), PAPER, SCRIPT, together, options.record)
    save_figure(draw(places, curves, quantity), PAPER, SCRIPT, together, options.record)


if __name__ == "__main__":
    main()
