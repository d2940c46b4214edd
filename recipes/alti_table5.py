"""ALTI, table 5: l1, l2 and Norms on the other datasets and models. Read it top to bottom.

    python recipes/alti_table5.py --setting bert-yelp --output results/table5
    python recipes/alti_table5.py --model default --data PATH/TO/IMDB/test.tsv --limit 100 --output results/table5

As alti_table4.py, elsewhere. Of the published numbers only one is at hand, the comprehensiveness of ALTI for BERT on
Yelp: .221 in this table, and .255 in the paper's table 2.
"""

import argparse

from alti_published import PAPER_MODEL, SETTINGS, TABLE_5, load, source
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench

parser = arguments(__doc__)
parser.add_argument("--setting", choices=SETTINGS, default="bert-yelp", help="model, data and published numbers")
parser.add_argument("--erasure", action=argparse.BooleanOptionalAction, default=True, help="the costly control")
args = parser.parse_args()
setting = SETTINGS[args.setting]
model, data = args.model or setting.model, args.data or setting.data

table = bench(
    load(model),
    source(data, args.split or setting.split, args.limit),
    ["alti", "alti:norm=l2", "value_norms"],
    protocol="alti",
    output=args.output,
    erasure=args.erasure,
)
side_by_side(
    f"ALTI, table 5, {args.setting}",
    table,
    TABLE_5.get(args.setting, {}),
    differences(model, data, PAPER_MODEL, setting.data, args.limit),
    path=args.output / "side_by_side.md",
)
