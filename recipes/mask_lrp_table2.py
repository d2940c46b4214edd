"""Mask-LRP, table 2: Precision@20 in question answering, which is the recall of answer tokens. Read it top to bottom.

    python recipes/mask_lrp_table2.py --output results
    python recipes/mask_lrp_table2.py --set squad1-bert --model QA-MODEL --data QA-MODEL/held_out.json --output results

recipes/qa_model.py makes a small model and its held-out questions. Protocol "mask_lrp_squad" (docs/presets.md): start
and end are each the model's favourite token, and 100 · Σ found / Σ answer tokens is reported.

The release never hands the head mask on in question answering, so the paper's "Ours" is TransAtt. It also starts from
all positions instead of the answer's, and averages RawAtt and Rollout over all query rows. Here every method reads the
answer's own rows. With --heads, Mask-LRP itself is measured too.
"""

from pathlib import Path

from mask_lrp_published import QUESTIONS, every_head, find_mask, masked
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.runs.method_specs import MethodSpec

parser = arguments(__doc__)
parser.add_argument("--set", action="append", choices=QUESTIONS, help="model and data; repeat; default: all six")
parser.add_argument("--heads", type=Path, help="head mask of the model")
args = parser.parse_args()
names = args.set or list(QUESTIONS)
if (args.model or args.data or args.heads) and len(names) > 1:
    parser.error("name the one --set that your --model, --data or --heads stand in for")

for name in names:
    paper = QUESTIONS[name]
    model, data = args.model or paper.model, args.data or paper.data
    explainer = load_model(model, "question-answering")
    methods: list[str | MethodSpec] = [*paper.numbers, "generic_attention", "attn_lrp"]
    if args.heads:
        mask = find_mask(args.heads, explainer)
        methods += [masked("released", mask), masked("paper", mask, "paper"), masked("all heads", every_head(mask))]
    table = bench(
        explainer,
        Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
        methods,
        protocol=paper.protocol,
        output=args.output / "mask_lrp_table2" / name,
        erasure=False,
    )
    remarks = [
        *differences(model, data, paper.model, paper.data, args.limit),
        "RawAtt and Rollout read the answer's rows here and the mean of all rows in the paper",
        "the paper's Ours is TransAtt: its code passes no head mask in question answering",
    ]
    side_by_side(
        f"Mask-LRP, table 2, {name}",
        table,
        paper.numbers,
        remarks,
        titles={"transformer_attribution": "TransAtt (the paper's Ours)"},
        path=args.output / "mask_lrp_table2" / name / "side_by_side.md",
    )
