"""ALTI, table 2: comprehensiveness and sufficiency of eight methods: three models, four data sets.

python -m papers.alti.table2 --dataset bert-sst2 --limit 1000
python -m papers.alti.table2 --dataset bert-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.table2 --small
"""

from collections.abc import Sequence

from papers.alti.facts import IN_TABLE_2, METHODS, TABLE_2
from papers.alti.runs import alti_parser, measure_faithfulness
from papers.alti.small import SMALL
from papers.options import choose_runs

SCRIPT = "table2"
TITLES = METHODS


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, IN_TABLE_2).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        measure_faithfulness(options, run, SCRIPT, TITLES, TABLE_2)


if __name__ == "__main__":
    main()
