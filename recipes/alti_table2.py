"""ALTI, table 2: comprehensiveness (higher is better) and sufficiency (lower is better). Read it top to bottom.

    python recipes/alti_table2.py --output results/table2                              # BERT on SST-2, from the Hub
    python recipes/alti_table2.py --setting distilbert-sst2 --output results/table2d
    python recipes/alti_table2.py --model default --data PATH/TO/SST-2/dev.tsv --limit 200 --output results/table2

The protocol is that of the paper's release: tokens are deleted, bins of 1, 5, 10, 20 and 50 %, the monotone envelope,
sums of five terms divided by six, the predicted class, no text above 200 tokens. Gradients are those of the logit at
the word embeddings; the release took the probability's, with position embeddings and norm applied twice.
"""

import argparse

from alti_published import PAPER_MODEL, SETTINGS, TABLE_2, load, source
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.runs.method_specs import MethodSpec

parser = arguments(__doc__)
parser.add_argument("--setting", choices=SETTINGS, default="bert-sst2", help="model, data and published numbers")
parser.add_argument("--steps", type=int, default=100, help="of integrated gradients")
parser.add_argument("--erasure", action=argparse.BooleanOptionalAction, default=True, help="the costly control")
args = parser.parse_args()
setting = SETTINGS[args.setting]
model, data = args.model or setting.model, args.data or setting.data

table = bench(
    load(model),
    source(data, args.split or setting.split, args.limit),
    [
        "alti",
        MethodSpec("IG l2", "integrated_gradients", {"steps": args.steps, "baseline": "mask", "reduce": "l2"}),
        "gradient_l2",
        "globenc",
        "rollout",
    ],
    protocol="alti",
    output=args.output,
    erasure=args.erasure,
)
side_by_side(
    f"ALTI, table 2, {args.setting}",
    table,
    TABLE_2[args.setting],
    differences(model, data, PAPER_MODEL, setting.data, args.limit),
    path=args.output / "side_by_side.md",
)
