"""ALTI, table 6: comprehensiveness and sufficiency of eight methods for DistilBERT.

python -m papers.alti.table6 --dataset distilbert-imdb --limit 1000
python -m papers.alti.table6 --dataset distilbert-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.table6 --small
"""

from collections.abc import Sequence

from papers.alti.facts import IN_TABLE_6, METHODS, TABLE_6
from papers.alti.runs import alti_parser, measure_faithfulness
from papers.alti.small import SMALL
from papers.options import choose_runs

SCRIPT = "table6"
TITLES = METHODS


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, IN_TABLE_6).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        measure_faithfulness(options, run, SCRIPT, TITLES, TABLE_6)


if __name__ == "__main__":
    main()
