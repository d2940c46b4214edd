"""Mask-LRP, table 4: ALTI (the paper writes ALTC) against the paper's method, on SST-2, IMDB and Yelp.

python -m papers.mask_lrp.table4 --dataset sst2
python -m papers.mask_lrp.table4 --small
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.mask_lrp.facts import DATASETS, METRICS, PAPER, TABLE_4
from papers.mask_lrp.masks import VARIANTS, add_mask_options, find_masks
from papers.mask_lrp.methods import add_method_options, by_label, choose_protocol, masked, ours
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs, make_parser
from papers.tables import compare, finish

SCRIPT = "table4"
NAMES = ("sst2", "imdb", "yelp")
ALTC = "alti"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = add_method_options(add_mask_options(make_parser(__doc__, PAPER, NAMES)))
    options = parser.parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load()
        masks = find_masks(run, explainer, options)
        own = [
            masked(ours(variant), masks.of[variant], variant, options.empty) for variant in options.variant or VARIANTS
        ]
        protocol = choose_protocol(run.name, options.released)
        output = run.folder / protocol
        table = tl.benchmark(explainer, run.source, [ALTC, *own], protocol=protocol, output=output, erasure=False)
        columns = [TABLE_4.column(f"{DATASETS[run.name]} {metric}") for metric in METRICS]
        rows = {row: [column[row] for column in columns] for row in TABLE_4.rows}
        heading = f"Mask-LRP, table 4, {DATASETS[run.name]}"
        published = by_label(rows) | {ALTC: rows["ALTC"]}
        comparison = compare(heading, run, table, published, masks.remarks, titles={ALTC: "ALTC (ALTI)"})
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
