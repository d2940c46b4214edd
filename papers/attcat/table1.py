"""AttCAT, table 1: AOPC and LOdds of eight methods on six data sets.

python -m papers.attcat.table1 --dataset sst2
python -m papers.attcat.table1 --small
python -m papers.attcat.table1 --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.attcat.facts import METHODS, METRICS, PAPER, TABLE_1
from papers.options import choose_runs, make_parser
from papers.small import SENTIMENT
from papers.tables import compare, finish

SCRIPT = "table1"
NAMES = {"sst2": "SST2"}  # our name of a data set -> the paper's
PROTOCOLS = {"sst2": "attcat"}
SMALL = {"sst2": SENTIMENT}


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser(__doc__, PAPER, list(NAMES)).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        table = tl.benchmark(
            run.load(),
            run.source,
            list(METHODS.values()),
            protocol=PROTOCOLS[run.name],
            output=run.folder,
            erasure=False,
        )
        columns = [TABLE_1.column(f"{NAMES[run.name]} {metric}") for metric in METRICS]
        published = {ours: [*(column[theirs] for column in columns), None] for theirs, ours in METHODS.items()}
        titles = {ours: theirs for theirs, ours in METHODS.items()}
        heading = f"AttCAT, table 1, {NAMES[run.name]}"
        finish(compare(heading, run, table, published, titles=titles), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
