"""Mask-LRP, figure 3: the metrics of table 1 as curves over the share of tokens that are replaced.

python -m papers.mask_lrp.figure3 --dataset sst2
python -m papers.mask_lrp.figure3 --small

The runs are those of table 1: with the same options, whichever script comes second computes nothing again.
"""

from collections.abc import Sequence

from papers.figures import draw_curves, save_figure
from papers.mask_lrp import table1
from papers.mask_lrp.facts import DATASETS, PAPER
from papers.mask_lrp.methods import titles
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs

SCRIPT = "figure3"


def main(arguments: Sequence[str] | None = None) -> None:
    options = table1.parse(arguments, __doc__, list(DATASETS))
    for run in choose_runs(options, table1.SCRIPT, SMALL):
        table, _ = table1.measure(run, options)
        controls = [line.label for line in table.controls]
        save_figure(draw_curves(table, controls, titles()), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
