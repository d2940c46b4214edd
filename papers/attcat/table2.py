"""AttCAT, table 2: Kendall's τ between the explanations of two classes, for six methods on six data sets.

python -m papers.attcat.table2 --dataset sst2
python -m papers.attcat.table2 --dataset qqp --released      # as the authors' code does it
python -m papers.attcat.table2 --small

As in equation 15, τ is taken between arrays of sorted token indices. A second column has τ between the rankings.
"""

from collections.abc import Sequence
from dataclasses import replace

import tokenlight as tl
from papers.attcat.choices import add_released, choose_methods, choose_protocol, name_run
from papers.attcat.facts import DATASETS, PAPER, TABLE_2
from papers.options import choose_runs, make_parser
from papers.small import INFERENCES, PAIRS, REVIEWS, SENTIMENT
from papers.tables import compare, describe_run, finish
from tokenlight.metrics.evaluate import Measure

SCRIPT = "table2"
SMALL = {"sst2": SENTIMENT, "qqp": PAIRS, "mnli": INFERENCES, "yelp": REVIEWS}
MEASURES = (
    Measure("kendall_confidence", options={"variant": "argsort"}, eligible="all", name="τ, equation 15"),
    Measure("kendall_confidence", options={"variant": "ranks"}, eligible="all", name="τ on ranks"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    options = add_released(make_parser(__doc__, PAPER, list(DATASETS))).parse_args(arguments)
    for plain_run in choose_runs(options, SCRIPT, SMALL):
        dataset = DATASETS[plain_run.name]
        protocol = choose_protocol(plain_run.name, options.released)
        run, form = name_run(plain_run, options.released)
        table = tl.benchmark(
            run.load(),
            run.source,
            choose_methods(TABLE_2.rows, options.released),
            protocol=replace(protocol, measures=MEASURES),
            output=run.folder,
            erasure=False,
        )
        published = {method: [number, None] for method, number in TABLE_2.column(dataset).items()}
        heading = f"AttCAT, table 2, {dataset}, {form}: {describe_run(run, table)}"
        finish(compare(heading, run, table, published), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
