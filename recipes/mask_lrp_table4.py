"""Mask-LRP, table 4: the thresholds ξ of the mask, and ALTI (there "ALTC") beside it. Read it top to bottom.

    python recipes/mask_lrp_table4.py --output results
    python recipes/mask_lrp_table4.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

A head is syntactic above max λ + ξ_synt and positional above ξ_pos; the paper has 0.1 and 0.8. Other thresholds need no
other statistics: the mask file holds all counts.
"""

from pathlib import Path

from mask_lrp_published import DATASETS, every_head, find_mask, masked
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source

parser = arguments(__doc__)
parser.add_argument("--dataset", choices=DATASETS, default="sst2")
parser.add_argument("--heads", type=Path, help="head mask with its statistics; default: the model's own")
parser.add_argument("--margin", type=float, nargs="+", default=[-0.3, -0.2, -0.1, 0.0, 0.1, 0.2], help="ξ_synt")
parser.add_argument("--share", type=float, nargs="+", default=[0.2, 0.4, 0.6, 0.8, 0.9], help="ξ_pos")
parser.add_argument("--variant", choices=["released", "paper"], default="released")
args = parser.parse_args()

paper = DATASETS[args.dataset]
model, data = args.model or paper.model, args.data or paper.data
explainer = load_model(model, None)
mask = find_mask(args.heads, explainer)
counts = mask.statistics
if counts is None:
    parser.error("this mask was not made from statistics, so it has no thresholds to change")
made = {(0.1, 0.8): counts.mask()}
made |= {(margin, 0.8): counts.mask(margin) for margin in args.margin}
made |= {(0.1, share): counts.mask(position_share=share) for share in args.share}
lit = {(margin, share): heads for (margin, share), heads in made.items() if heads.count}
methods = [
    masked(f"ξ_synt {margin}, ξ_pos {share} ({heads.count} lit)", heads, args.variant)
    for (margin, share), heads in lit.items()
]
methods.append(masked("every head", every_head(mask), args.variant))

table = bench(
    explainer,
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    [*methods, "alti", "transformer_attribution"],
    protocol=paper.protocol,
    output=args.output / "mask_lrp_table4" / args.dataset,
    erasure=False,
)
dark = [f"ξ_synt {margin} with ξ_pos {share} lights no head" for margin, share in made if (margin, share) not in lit]
known = {label: paper.numbers[label] for label in ("alti", "transformer_attribution")}
if (0.1, 0.8) in lit:
    known[methods[list(lit).index((0.1, 0.8))].label] = paper.numbers["released"]
side_by_side(
    f"Mask-LRP, table 4 (thresholds), {args.dataset}, variant {args.variant}",
    table,
    known,
    [
        *differences(model, data, paper.model, paper.data, args.limit),
        *dark,
        "of the paper's table 4 only ALTI's numbers are at hand; those of TransAtt and of ξ_synt 0.1, ξ_pos 0.8 are "
        "from its table 1",
    ],
    path=args.output / "mask_lrp_table4" / args.dataset / "side_by_side.md",
)
