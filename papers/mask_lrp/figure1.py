"""Mask-LRP, figure 1: how far words stand from their syntactic heads, for each relation.

python -m papers.mask_lrp.figure1
python -m papers.mask_lrp.figure1 --small
python -m papers.mask_lrp.figure1 --model default --train-data PATH/TO/treebank.conllu --train-texts 0

The paper shows SST-2; others run with --dataset. The table has max λ: how often a head that always attends to the most
frequent distance is right, and with ξ_synt the threshold of a syntactic head (equation 7).
"""

from collections.abc import Sequence

from papers.figures import save_figure
from papers.mask_lrp.facts import DATASETS, PAPER
from papers.mask_lrp.masks import add_mask_options, find_counts
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs, make_parser
from papers.tables import Comparison, finish
from tokenlight.heads.statistics import SYNTAX_MARGIN, HeadStatistics
from tokenlight.views.benchmark_table import minus
from tokenlight.views.heads import distance_figure

SCRIPT = "figure1"
HEAD = ["relation", "words", "most frequent distance", "max λ", f"threshold, ξ_synt = {SYNTAX_MARGIN}"]


def distance_rows(counts: HeadStatistics) -> list[list[str]]:
    rows = []
    for i, relation in enumerate(counts.relations):
        most_frequent = counts.distances[i].most_common(1)
        distance = minus(f"{most_frequent[0][0]:+d}") if most_frequent else "–"
        share = float(counts.usual_share[i])
        rows.append([relation, f"{int(counts.pairs[i]):,}", distance, f"{share:.3f}", f"{share + SYNTAX_MARGIN:.3f}"])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = add_mask_options(make_parser(__doc__, PAPER, list(DATASETS))).parse_args(arguments)
    options.dataset = options.dataset or ["sst2"]
    for run in choose_runs(options, SCRIPT, SMALL):
        counts = find_counts(run, run.load(), options)
        heading = f"Mask-LRP, figure 1, {DATASETS[run.name]}"
        remarks = [f"counted on {counts.source}, {counts.texts:,} texts"]
        finish(Comparison(heading, HEAD, distance_rows(counts), remarks), PAPER, SCRIPT, run, options.record)
        save_figure(distance_figure(counts), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
