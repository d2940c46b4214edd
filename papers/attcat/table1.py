"""AttCAT, table 1: AOPC and LOdds of eight methods on six data sets.

python -m papers.attcat.table1 --dataset sst2
python -m papers.attcat.table1 --dataset imdb --released      # as the authors' code does it
python -m papers.attcat.table1 --small
python -m papers.attcat.table1 --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --sample 200

Without --sample, Amazon, Yelp and IMDB are 2,000 random samples each, as in the paper, and the others are whole.
"""

from collections.abc import Sequence
from dataclasses import replace

import tokenlight as tl
from papers.attcat.choices import add_released, choose_methods, choose_protocol, name_run
from papers.attcat.facts import DATASETS, METHODS, METRICS, PAPER, TABLE_1
from papers.options import choose_runs, make_parser
from papers.small import INFERENCES, PAIRS, REVIEWS, SENTIMENT
from papers.tables import compare, describe_run, finish

SCRIPT = "table1"
SMALL = {"sst2": SENTIMENT, "qqp": PAIRS, "mnli": INFERENCES, "yelp": REVIEWS}


def main(arguments: Sequence[str] | None = None) -> None:
    options = add_released(make_parser(__doc__, PAPER, list(DATASETS))).parse_args(arguments)
    for plain_run in choose_runs(options, SCRIPT, SMALL):
        dataset = DATASETS[plain_run.name]
        protocol = choose_protocol(plain_run.name, options.released)
        measures = [measure for measure in protocol.measures if measure.metric in ("aopc", "log_odds")]
        run, form = name_run(plain_run, options.released)
        table = tl.benchmark(
            run.load(),
            run.source,
            choose_methods(METHODS, options.released),
            protocol=replace(protocol, measures=tuple(measures)),
            output=run.folder,
            erasure=False,
        )
        columns = [TABLE_1.column(f"{dataset} {metric}") for metric in METRICS]
        published = {method: [column[method] for column in columns] for method in METHODS}
        heading = f"AttCAT, table 1, {dataset}, {form}: {describe_run(run, table)}"
        finish(compare(heading, run, table, published), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
