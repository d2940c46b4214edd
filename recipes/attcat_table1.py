"""AttCAT, table 1: AOPC and LOdds of eight methods on six datasets, and Kendall's τ between classes. Top to bottom.

    python recipes/attcat_table1.py --output results
    python recipes/attcat_table1.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

Protocol "attcat", on pairs "attcat_qqp" and "attcat_mnli", as the release does it (docs/presets.md): AOPC deletes
tokens and LOdds puts padding in their place. Each dataset's folder also holds the whole benchmark (report.html,
table.md).
"""

from attcat_published import DATASETS, ROWS, published
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source

parser = arguments(__doc__)
parser.add_argument("--dataset", action="append", choices=DATASETS, help="repeat; default: all six")
parser.add_argument("--erasure", action="store_true", help="the costly control: one pass for every token")
args = parser.parse_args()
names = args.dataset or list(DATASETS)
if (args.model or args.data) and len(names) > 1:
    parser.error("name the one --dataset that your --model or --data stands in for")

for name in names:
    paper = DATASETS[name]
    model, data = args.model or paper.model, args.data or paper.data
    table = bench(
        load_model(model, None),
        Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
        ROWS,
        protocol=paper.protocol,
        output=args.output / "attcat_table1" / name,
        erasure=args.erasure,
    )
    remarks = differences(model, data, paper.model, paper.data, args.limit)
    remarks += [paper.remark] if paper.remark and model == paper.model else []
    side_by_side(
        f"AttCAT, table 1 and Kendall's τ, {name}",
        table,
        published(name),
        remarks,
        path=args.output / "attcat_table1" / name / "side_by_side.md",
    )
