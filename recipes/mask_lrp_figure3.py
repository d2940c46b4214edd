"""Mask-LRP, figure 3: AOPC and LOdds over the share of tokens that are replaced. Read it top to bottom.

    python recipes/mask_lrp_figure3.py --output results
    python recipes/mask_lrp_figure3.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

The same run as mask_lrp_table1.py: with the same options and the same --output, nothing is computed again.
"""

from pathlib import Path

from mask_lrp_published import DATASETS, TITLES, find_mask, random_masks, table_1_methods
from side_by_side import arguments, curve_figure, differences

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.views.figure import save

parser = arguments(__doc__)
parser.add_argument("--dataset", choices=DATASETS, default="sst2")
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
parser.add_argument("--seeds", type=int, default=5, help="random masks; only the first is drawn")
parser.add_argument("--erasure", action="store_true", help="the costly control: one pass for every token")
args = parser.parse_args()

paper = DATASETS[args.dataset]
model, data = args.model or paper.model, args.data or paper.data
explainer = load_model(model, None)
mask = find_mask(args.heads, explainer)
table = bench(
    explainer,
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    table_1_methods(mask, args.seeds),
    protocol=paper.protocol,
    output=args.output / "mask_lrp_table1" / args.dataset,
    erasure=args.erasure,
)
more_seeds = [spec.label for spec in random_masks(mask, args.seeds)[1:]]
figure = curve_figure(table, more_seeds, TITLES)
save(figure, args.output / "mask_lrp_table1" / args.dataset / "mask_lrp_figure3.png")
print(
    f"mask_lrp_figure3.png is in {args.output / 'mask_lrp_table1' / args.dataset}. The paper's points are not at hand."
)
for remark in differences(model, data, paper.model, paper.data, args.limit):
    print("-", remark)
