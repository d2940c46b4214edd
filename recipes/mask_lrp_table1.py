"""Mask-LRP, table 1: AOPC and LOdds of ten methods on five datasets. Read it top to bottom.

    python recipes/mask_lrp_table1.py --output results
    python recipes/mask_lrp_table1.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

Protocol "mask_lrp", as the release does it (docs/presets.md). A head mask is made with `tokenlight heads MODEL TEXTS -o
masks.json`, with --count-self as in the release; the model inside the package has one.

Beside the paper's rows stand: Mask-LRP as the paper writes it, which its code does not compute, and the released code
with every head, which is what it should be compared with: the paper's "GAE" lacks a factor of 2 that every masked run
has. Each dataset's folder also holds the whole benchmark (report.html, table.md).
"""

from pathlib import Path

from mask_lrp_published import DATASETS, REMARKS, TITLES, find_mask, random_masks, table_1_methods
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source

parser = arguments(__doc__)
parser.add_argument("--dataset", action="append", choices=DATASETS, help="repeat; default: all five")
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
parser.add_argument("--seeds", type=int, default=5, help="random masks")
parser.add_argument("--erasure", action="store_true", help="the costly control: one pass for every token")
args = parser.parse_args()
names = args.dataset or list(DATASETS)
if (args.model or args.data or args.heads) and len(names) > 1:
    parser.error("name the one --dataset that your --model, --data or --heads stand in for")

for name in names:
    paper = DATASETS[name]
    model, data = args.model or paper.model, args.data or paper.data
    explainer = load_model(model, None)
    mask = find_mask(args.heads, explainer)
    table = bench(
        explainer,
        Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
        table_1_methods(mask, args.seeds),
        protocol=paper.protocol,
        output=args.output / "mask_lrp_table1" / name,
        erasure=args.erasure,
    )
    remarks = [*differences(model, data, paper.model, paper.data, args.limit), f"the head mask lights {mask}"]
    remarks += [REMARKS[name]] if name in REMARKS and model == paper.model else []
    side_by_side(
        f"Mask-LRP, table 1, {name}",
        table,
        paper.numbers,
        remarks,
        titles=TITLES,
        means={"random mask": [spec.label for spec in random_masks(mask, args.seeds)]},
        path=args.output / "mask_lrp_table1" / name / "side_by_side.md",
    )
