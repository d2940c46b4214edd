"""ALTI, table 4: the l1 distance against the l2 distance, and against Norms, on SST-2. Read it top to bottom.

    python recipes/alti_table4.py --output results/table4
    python recipes/alti_table4.py --model default --data PATH/TO/SST-2/dev.tsv --limit 200 --output results/table4

ALTI measures how near each token's vector is to the layer's output, by the l1 or the l2 distance; Norms (Kobayashi
et al. 2021) measures how long the vector is. All three are multiplied over layers. ALTI behind the block's second norm
is measured too. Protocol: see alti_table2.py.
"""

import argparse

from alti_published import PAPER_MODEL, SETTINGS, TABLE_4, load, source
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench

parser = arguments(__doc__)
parser.add_argument("--erasure", action=argparse.BooleanOptionalAction, default=True, help="the costly control")
args = parser.parse_args()
setting = SETTINGS["bert-sst2"]
model, data = args.model or setting.model, args.data or setting.data

table = bench(
    load(model),
    source(data, args.split or setting.split, args.limit),
    ["alti", "alti:norm=l2", "alti:second_norm=true", "value_norms"],
    protocol="alti",
    output=args.output,
    erasure=args.erasure,
)
side_by_side(
    "ALTI, table 4, BERT on SST-2",
    table,
    TABLE_4,
    differences(model, data, PAPER_MODEL, setting.data, args.limit),
    path=args.output / "side_by_side.md",
)
