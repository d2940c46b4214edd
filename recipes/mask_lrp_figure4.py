"""Mask-LRP, figure 4: what happens as the mask is corrupted, that is, as dark heads are lit too? Read it top to bottom.

    python recipes/mask_lrp_figure4.py --output results
    python recipes/mask_lrp_figure4.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

0 % is the mask, 100 % is every head. The paper says that 100 % is its "GAE"; that holds for variant "paper" (there GAE
is TransAtt), and not for the released code. recipes/head_masks.py asks the same of many more masks and methods.
"""

from pathlib import Path

from mask_lrp_published import DATASETS, find_mask, masked
from side_by_side import arguments, differences, mean_cells, show

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.views.benchmark_table import ARROWS, minus
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--dataset", choices=DATASETS, default="sst2")
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
parser.add_argument("--seeds", type=int, default=5, help="corruptions of each share")
parser.add_argument("--shares", type=float, nargs="+", default=[i / 10 for i in range(1, 11)])
parser.add_argument("--variant", choices=["released", "paper"], action="append", help="repeat; default: both")
args = parser.parse_args()

paper = DATASETS[args.dataset]
model, data = args.model or paper.model, args.data or paper.data
explainer = load_model(model, None)
mask = find_mask(args.heads, explainer)
specs = {}  # (variant, share) -> one for each seed
for variant in args.variant or ["released", "paper"]:
    specs[variant, 0.0] = [masked(f"{variant}, 0 %", mask, variant)]
    for share in args.shares:
        seeds = range(args.seeds if share < 1 else 1)  # all heads are all heads
        specs[variant, share] = [
            masked(f"{variant}, {share:.0%}, seed {seed}", mask.corrupted(share, seed), variant) for seed in seeds
        ]
table = bench(
    explainer,
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    [*(spec for some in specs.values() for spec in some), "transformer_attribution"],
    protocol=paper.protocol,
    output=args.output / "mask_lrp_figure4" / args.dataset,
    erasure=False,
)
cells = {key: mean_cells(table, [spec.label for spec in some]) for key, some in specs.items()}

rows = [
    [variant, f"{share:.0%}", *(minus(f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]") for cell in row)]
    for (variant, share), row in cells.items()
]
unmasked = [table.cell("transformer_attribution", column.label) for column in table.columns]
rows.append(["TransAtt", "", *(minus(f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]") for cell in unmasked)])
folder = args.output / "mask_lrp_figure4" / args.dataset
show(
    f"Mask-LRP, figure 4, {args.dataset}",
    ["variant", "dark heads lit", *(f"{column.title} {ARROWS[column.direction]}" for column in table.columns)],
    rows,
    [*differences(model, data, paper.model, paper.data, args.limit), "the paper's points are not at hand"],
    folder / "mask_lrp_figure4.md",
)

figure = new_figure(4.4 * len(table.columns), 3.4)
for k, (axes, column) in enumerate(zip(figure.subplots(1, len(table.columns)), table.columns, strict=True)):
    for variant, colour in (("released", "#cc5500"), ("paper", "#2166ac")):
        points = [(share, row[k]) for (own, share), row in cells.items() if own == variant]
        if not points:
            continue
        places, values = zip(*points, strict=True)
        axes.plot(places, [cell.mean for cell in values], color=colour, marker="o", markersize=3, label=variant)
        low, high = [cell.low for cell in values], [cell.high for cell in values]
        axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.axhline(unmasked[k].mean, color="grey", linestyle=":", label="TransAtt")
    axes.set(title=f"{column.title} {ARROWS[column.direction]}", xlabel="share of dark heads that are lit")
    axes.legend(fontsize=7, frameon=False)
save(figure, folder / "mask_lrp_figure4.png")
