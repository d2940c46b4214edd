"""ALTI, table 4: ALTI with ℓ2 distances against Norms, for three models on four data sets.

python -m papers.alti.table4 --dataset bert-sst2 --limit 1000
python -m papers.alti.table4 --dataset bert-sva --data PATH/TO/lgd_dataset.tsv
python -m papers.alti.table4 --small
"""

from collections.abc import Sequence

from papers.alti.facts import IN_ABLATIONS, TABLE_4
from papers.alti.runs import alti_parser, measure_faithfulness
from papers.alti.small import SMALL
from papers.options import choose_runs

SCRIPT = "table4"
TITLES = ("ALTI ℓ2", "Norms")


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, IN_ABLATIONS).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        measure_faithfulness(options, run, SCRIPT, TITLES, TABLE_4)


if __name__ == "__main__":
    main()
