"""Mask-LRP, table 1: AOPC and LOdds of the baselines, of random masks and of the paper's method on five data sets.

python -m papers.mask_lrp.table1 --dataset sst2
python -m papers.mask_lrp.table1 --small
python -m papers.mask_lrp.table1 --dataset sst2 --released --sample 500
python -m papers.mask_lrp.table1 --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv
"""

import argparse
from collections.abc import Sequence

import tokenlight as tl
from papers.facts import Published
from papers.mask_lrp.facts import DATASETS, METRICS, PAPER, TABLE_1
from papers.mask_lrp.masks import VARIANTS, Masks, add_mask_options, find_masks
from papers.mask_lrp.methods import add_method_options, baselines, by_label, choose_protocol, own_methods, titles
from papers.mask_lrp.small_runs import SMALL
from papers.options import Run, choose_runs, make_parser
from papers.tables import compare, finish
from tokenlight.results.tables import Table

SCRIPT = "table1"


def parse(arguments: Sequence[str] | None, description: str | None, names: Sequence[str]) -> argparse.Namespace:
    """The options of the scripts that evaluate methods on classification."""
    parser = add_method_options(add_mask_options(make_parser(description, PAPER, names)))
    parser.add_argument("--runs", type=int, default=5, help="random masks (in figure 4, of each share)")
    return parser.parse_args(arguments)


def measure(run: Run, options: argparse.Namespace) -> tuple[Table, Masks]:
    """The benchmark of table 1 and figure 3. A run that was stopped continues in its folder."""
    explainer = run.load()
    masks = find_masks(run, explainer, options)
    methods = baselines() + own_methods(masks, options.variant or VARIANTS, options.runs, options.empty)
    protocol = choose_protocol(run.name, options.released)
    return tl.benchmark(
        explainer, run.source, methods, protocol=protocol, output=run.folder / protocol, erasure=False
    ), masks


def published_numbers(name: str) -> dict[str, list[Published]]:
    """By the paper's names of methods: AOPC and LOdds on a data set."""
    columns = [TABLE_1.column(f"{DATASETS[name]} {metric}") for metric in METRICS]
    return {row: [column[row] for column in columns] for row in TABLE_1.rows}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments, __doc__, list(DATASETS))
    for run in choose_runs(options, SCRIPT, SMALL):
        table, masks = measure(run, options)
        published = published_numbers(run.name)
        deviations = " and ".join(f"{number:.3f}" for number in published["Random, standard deviation"] if number)
        remarks = [*masks.remarks, f"published standard deviations of random masks: {deviations}"]
        heading = f"Mask-LRP, table 1, {DATASETS[run.name]}"
        comparison = compare(heading, run, table, by_label(published), remarks, titles=titles())
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
