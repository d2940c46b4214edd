"""ALTI, table 7: comprehensiveness and sufficiency of eight methods for RoBERTa.

python -m papers.alti.table7 --dataset roberta-imdb --limit 1000
python -m papers.alti.table7 --dataset roberta-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.table7 --small
"""

from collections.abc import Sequence

from papers.alti.facts import IN_TABLE_7, METHODS, TABLE_7
from papers.alti.runs import alti_parser, measure_faithfulness
from papers.alti.small import SMALL
from papers.options import choose_runs

SCRIPT = "table7"
TITLES = METHODS


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, IN_TABLE_7).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        measure_faithfulness(options, run, SCRIPT, TITLES, TABLE_7)


if __name__ == "__main__":
    main()
