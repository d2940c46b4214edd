"""ALTI, figure 6: how far BERT's probability falls while the highest-ranked tokens are deleted one by one.

python -m papers.alti.figure6 --dataset bert-imdb --limit 1000
python -m papers.alti.figure6 --dataset bert-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.figure6 --small

The mean over texts with its 95 % interval. A text with fewer tokens stays at its end.
"""

from collections.abc import Sequence

from papers.alti.curves import make_protocol
from papers.alti.facts import METHODS, PAPER
from papers.alti.runs import alti_parser, describe, make_specs, measure
from papers.alti.small import SMALL
from papers.figures import draw_curves, save_figure
from papers.options import choose_runs
from papers.tables import compare, finish

SCRIPT = "figure6"
DELETED = {"bert-imdb": 60, "bert-yelp": 60, "bert-sva": 30}  # tokens, as in the authors' code
DELETED_SMALL = 12  # of texts with about 15


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, list(DELETED)).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        protocol = make_protocol(DELETED_SMALL if run.small else DELETED[run.name])
        specs = make_specs(METHODS, options.steps, options.released)
        table = measure(run, specs, protocol, options.released)
        heading = f"ALTI, figure 6, {describe(run)}: mean of the curves"
        finish(compare(heading, run, table, {}), PAPER, SCRIPT, run, options.record)
        controls = [line.label for line in table.controls if line.label != "random"]
        save_figure(draw_curves(table, controls), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
