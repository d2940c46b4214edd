"""Mask-LRP, table 3: the whole mask against its positional and its syntactic part alone, on SST-2 and QQP.

python -m papers.mask_lrp.table3
python -m papers.mask_lrp.table3 --small
python -m papers.mask_lrp.table3 --dataset imdb

A control stands below each variant: the mean of random masks with as many heads as the whole mask.
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.mask_lrp import table1
from papers.mask_lrp.facts import DATASETS, PAPER
from papers.mask_lrp.masks import VARIANTS, Masks, find_masks
from papers.mask_lrp.methods import NAMES, choose_protocol, masked, random_masks
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs
from papers.tables import compare, finish
from tokenlight.runs.method_specs import MethodSpec

SCRIPT = "table3"
PUBLISHED_FOR = ("sst2", "qqp")  # the others run with --dataset
PARTS = {"M": None, "only M_pos": "positional", "only M_synt": "syntactic"}


def methods_of(masks: Masks, variant: str, runs: int, empty: str) -> list[MethodSpec]:
    whole, methods = masks.of[variant], []
    for name, group in PARTS.items():
        mask = whole if group is None else whole.only(group)
        heads = f"{mask.count} head{'' if mask.count == 1 else 's'}"
        methods.append(masked(f"{name} ({NAMES[variant]}, {heads})", mask, variant, empty))
    return methods + random_masks(masks, variant, runs, empty)


def main(arguments: Sequence[str] | None = None) -> None:
    options = table1.parse(arguments, __doc__, list(DATASETS))
    options.dataset = options.dataset or list(PUBLISHED_FOR)
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load()
        masks = find_masks(run, explainer, options)
        methods: list[str | MethodSpec] = []
        for variant in options.variant or VARIANTS:
            methods += methods_of(masks, variant, options.runs, options.empty)
        protocol = choose_protocol(run.name, options.released)
        output = run.folder / protocol
        table = tl.benchmark(explainer, run.source, methods, protocol=protocol, output=output, erasure=False)
        comparison = compare(f"Mask-LRP, table 3, {DATASETS[run.name]}", run, table, {}, masks.remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
