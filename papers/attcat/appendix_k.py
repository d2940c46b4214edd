"""AttCAT, appendix: figure 3 with other values of K.

python -m papers.attcat.appendix_k --dataset squad1-bert --k 5 10 20 40
python -m papers.attcat.appendix_k --small
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from papers.attcat.facts import PAPER
from papers.attcat.figure3 import NAMES, make_question_parser, measure_runs
from papers.figures import save_figure
from papers.tables import Comparison, compare, describe_run, finish
from tokenlight.results.tables import Table
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "appendix_k"
KS = (1, 2, 5, 10, 20, 30, 50)


def draw_lines(table: Table, ks: Sequence[int]) -> "Figure":
    """A line over K for each method and control."""
    figure = new_figure(5, 3.6)
    axes = figure.subplots()
    for line in table.lines:
        style = "dotted" if line.control else "solid"
        axes.plot(ks, [cell.mean for cell in line.cells], linestyle=style, marker="o", markersize=3, label=line.title)
        axes.fill_between(
            ks, [cell.low for cell in line.cells], [cell.high for cell in line.cells], alpha=0.1, linewidth=0
        )
    axes.set(xlabel="K", ylabel="answer tokens among the K highest")
    axes.legend(fontsize=7, frameon=False)
    return figure


def means_only(comparison: Comparison) -> Comparison:
    """Without the two columns behind each mean: intervals are in the figure, and no numbers are published."""
    head, *rows = [[row[0], *row[1::3]] for row in (comparison.head, *comparison.rows)]
    return replace(comparison, head=head, rows=rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_question_parser(__doc__)
    parser.add_argument("--k", type=int, nargs="+", default=KS)
    options = parser.parse_args(arguments)
    for name, run, form, table in measure_runs(options, SCRIPT, options.k):
        heading = f"AttCAT, appendix, {NAMES[name][1]} on {NAMES[name][0]}, {form}: {describe_run(run, table)}"
        finish(means_only(compare(heading, run, table, {})), PAPER, SCRIPT, run, options.record)
        save_figure(draw_lines(table, options.k), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
