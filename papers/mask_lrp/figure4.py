"""Mask-LRP, figure 4: AOPC and LOdds while a growing share of the heads that the mask leaves out is added.

python -m papers.mask_lrp.figure4
python -m papers.mask_lrp.figure4 --small

The paper shows SST-2; others run with --dataset. 100 % is every head, which the paper says is its GAE.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import tokenlight as tl
from papers.figures import save_figure
from papers.mask_lrp import table1
from papers.mask_lrp.facts import DATASETS, PAPER
from papers.mask_lrp.masks import VARIANTS, Masks, find_masks
from papers.mask_lrp.methods import NAMES, TRANS_ATT, choose_protocol, masked
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs
from papers.tables import compare, finish
from tokenlight.results.tables import Table
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.benchmark_table import ARROWS
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure4"
SHARES = [i / 10 for i in range(11)]
COLORS = {"paper": "#2166ac", "released": "#cc5500"}
REFERENCES = {TRANS_ATT: "TransAtt", f"{TRANS_ATT}:normalize=False": "TransAtt (rows not normalized)"}


def line_of(variant: str, share: float) -> str:
    return f"{NAMES[variant]}, {share:.0%}"


def corrupted(masks: Masks, variant: str, runs: int, empty: str) -> list[MethodSpec]:
    """Several masks for each share; there is only one for 0 % and for 100 %."""
    mask, methods = masks.of[variant], []
    for share in SHARES:
        line = line_of(variant, share)
        if share in (0, 1):
            methods.append(masked(line, mask.corrupted(share), variant, empty))
            continue
        methods += [
            masked(f"{line}, run {seed + 1}", mask.corrupted(share, seed), variant, empty, line) for seed in range(runs)
        ]
    return methods


def draw(table: Table, variants: Sequence[str]) -> "Figure":
    """A panel per metric: the mean over runs, shaded by their standard deviation."""
    lines = {line.label: line for line in table.lines}
    figure = new_figure(4.4 * len(table.columns), 3.4)
    for k, (axes, column) in enumerate(zip(figure.subplots(1, len(table.columns)), table.columns, strict=True)):
        for variant in variants:
            points = [lines[line_of(variant, share)] for share in SHARES]
            means = np.array([point.cells[k].mean for point in points])
            spread = np.array([point.spreads[k] if point.spreads else 0.0 for point in points])
            axes.plot(SHARES, means, color=COLORS[variant], marker="o", markersize=3, label=f"Ours ({NAMES[variant]})")
            axes.fill_between(SHARES, means - spread, means + spread, color=COLORS[variant], alpha=0.2, linewidth=0)
        for (label, title), style in zip(REFERENCES.items(), (":", "--"), strict=True):
            axes.axhline(lines[label].cells[k].mean, color="gray", linestyle=style, label=title)
        axes.set(title=f"{column.title} {ARROWS[column.direction]}", xlabel="share of left-out heads that are added")
        axes.legend(fontsize=7, frameon=False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = table1.parse(arguments, __doc__, list(DATASETS))
    options.dataset = options.dataset or ["sst2"]
    variants = options.variant or VARIANTS
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load()
        masks = find_masks(run, explainer, options)
        methods: list[str | MethodSpec] = [*REFERENCES]
        for variant in variants:
            methods += corrupted(masks, variant, options.runs, options.empty)
        protocol = choose_protocol(run.name, options.released)
        output = run.folder / protocol
        table = tl.benchmark(explainer, run.source, methods, protocol=protocol, output=output, erasure=False)
        heading = f"Mask-LRP, figure 4, {DATASETS[run.name]}"
        finish(compare(heading, run, table, {}, masks.remarks, titles=REFERENCES), PAPER, SCRIPT, run, options.record)
        save_figure(draw(table, variants), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
