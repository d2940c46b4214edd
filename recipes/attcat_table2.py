"""AttCAT, table 2: how many answer tokens are among the 20 with the highest scores? Read it top to bottom.

    python recipes/attcat_table2.py --output results
    python recipes/attcat_table2.py --set squad1 --model PATH/TO/QA-MODEL --data PATH/TO/held_out.json --output results

recipes/qa_model.py makes a small model and its held-out questions. Protocol "attcat_squad" (docs/presets.md): the mean
count over questions, which cannot be more than the mean length of an answer.

The release reads RawAtt (mean of all layers) at the last token, and Rollout without residual connections as a mean of
all layers and rows. Here every method reads the answer's own rows.
"""

from attcat_published import LONGEST_ANSWERS, QUESTION_ROWS, QUESTIONS
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.bench.tabulate import STAGES
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.runs.journal import Journal

parser = arguments(__doc__)
parser.add_argument("--set", action="append", choices=QUESTIONS, help="model and data; repeat; default: both")
args = parser.parse_args()
names = args.set or list(QUESTIONS)
if (args.model or args.data) and len(names) > 1:
    parser.error("name the one --set that your --model or --data stands in for")

for name in names:
    paper = QUESTIONS[name]
    model, data = args.model or paper.model, args.data or paper.data
    table = bench(
        load_model(model, "question-answering"),
        Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
        QUESTION_ROWS,
        protocol=paper.protocol,
        output=args.output / "attcat_table2" / name,
        erasure=False,
    )
    lengths = [r["marked"] for r in Journal(args.output / "attcat_table2" / name / STAGES[0]) if r.get("methods")]
    remarks = [
        *differences(model, data, paper.model, paper.data, args.limit),
        f"the most that can be reached: {sum(lengths) / len(lengths):.2f}, the mean length of an answer in tokens "
        f"(published: {LONGEST_ANSWERS[name]:.2f})",
        "the other numbers of the paper's table 2 are not at hand",
        *([paper.remark] if paper.remark else []),
    ]
    side_by_side(
        f"AttCAT, table 2, {name}", table, {}, remarks, path=args.output / "attcat_table2" / name / "side_by_side.md"
    )
