"""Mask-LRP, figure 5: which heads follow syntax and which position, for each data set.

python -m papers.mask_lrp.figure5
python -m papers.mask_lrp.figure5 --small
python -m papers.mask_lrp.figure5 --dataset squad1-gpt2
"""

from collections.abc import Sequence

import torch

from papers.figures import save_figure
from papers.mask_lrp.facts import DATASETS, PAPER, QUESTIONS
from papers.mask_lrp.masks import add_mask_options, find_masks
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs, make_parser
from papers.tables import Comparison, finish
from tokenlight.heads.mask import HeadMask
from tokenlight.views.heads import head_figure

SCRIPT = "figure5"
NAMES = DATASETS | QUESTIONS


def head_names(group: torch.Tensor) -> str:
    """ "layer.head" of each, counted from 0."""
    return ", ".join(f"{layer}.{head}" for layer, head in group.nonzero().tolist()) or "none"


def layer_rows(mask: HeadMask) -> list[list[str]]:
    """How many heads of each group a layer has: the paper finds positional ones in early layers."""
    groups = (mask.positional > 0, mask.syntactic > 0)
    counts = [[str(int(group[layer].sum())) for group in groups] for layer in range(len(mask.lit))]
    rows = [[str(layer), *count] for layer, count in enumerate(counts)]
    return [*rows, ["layer.head", *map(head_names, groups)]]


def main(arguments: Sequence[str] | None = None) -> None:
    options = add_mask_options(make_parser(__doc__, PAPER, list(NAMES))).parse_args(arguments)
    options.dataset = options.dataset or list(DATASETS)
    for run in choose_runs(options, SCRIPT, SMALL):
        masks = find_masks(run, run.load("question-answering" if run.name in QUESTIONS else None), options)
        mask = masks.of["paper"]
        heading = f"Mask-LRP, figure 5, {NAMES[run.name]}"
        head = ["layer", "positional heads", "syntactic heads"]
        finish(Comparison(heading, head, layer_rows(mask), masks.remarks), PAPER, SCRIPT, run, options.record)
        title = f"{NAMES[run.name]}: {mask.count} of {mask.lit.numel()} heads"
        save_figure(head_figure(mask, title), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
