"""Mask-LRP, table 3: which part of the mask helps? Syntactic heads, positional heads, both, none of it. Top to bottom.

    python recipes/mask_lrp_table3.py --output results
    python recipes/mask_lrp_table3.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

Every mask runs through both variants: as the paper says and as its code does. The controls are as many heads anywhere
(five seeds, for each group and for both together) and every head.
"""

from pathlib import Path

from mask_lrp_published import DATASETS, every_head, find_mask, masked
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source

parser = arguments(__doc__)
parser.add_argument("--dataset", choices=DATASETS, default="sst2")
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
parser.add_argument("--seeds", type=int, default=5, help="random masks for each mask")
args = parser.parse_args()

paper = DATASETS[args.dataset]
model, data = args.model or paper.model, args.data or paper.data
explainer = load_model(model, None)
mask = find_mask(args.heads, explainer)
masks = {"both": mask, "syntactic": mask.only("syntactic"), "positional": mask.only("positional")}
methods, means = [], {}
for variant in ("paper", "released"):
    for group, heads in masks.items():
        if not heads.count:
            continue
        label = f"{variant}: {group} ({heads.count} lit)"
        drawn = [masked(f"{label}, random, seed {seed}", heads.random(seed), variant) for seed in range(args.seeds)]
        methods += [masked(label, heads, variant), *drawn]
        means[f"{label}, as many at random, mean of {args.seeds}"] = [spec.label for spec in drawn]
    methods.append(masked(f"{variant}: every head", every_head(mask), variant))

table = bench(
    explainer,
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    [*methods, "transformer_attribution"],
    protocol=paper.protocol,
    output=args.output / "mask_lrp_table3" / args.dataset,
    erasure=False,
)
missing = [
    f"the mask has no {group} head, so there is no such row" for group, heads in masks.items() if not heads.count
]
side_by_side(
    f"Mask-LRP, table 3 (parts of the mask), {args.dataset}",
    table,
    {"transformer_attribution": paper.numbers["transformer_attribution"]},
    [
        *differences(model, data, paper.model, paper.data, args.limit),
        *missing,
        "the numbers of the paper's table 3 are not at hand",
        f"the head mask lights {mask}",
    ],
    means=means if args.seeds else None,
    path=args.output / "mask_lrp_table3" / args.dataset / "side_by_side.md",
)
