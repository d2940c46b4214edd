"""AttCAT, figure 3: AOPC and LOdds over the share of tokens taken away; for questions, Precision@K. Top to bottom.

    python recipes/attcat_figure3.py --output results
    python recipes/attcat_figure3.py --set sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results
    python recipes/attcat_figure3.py --set squad1 --model PATH/TO/QA-MODEL --data PATH/TO/held_out.json --output results

With a dataset of texts it is the same run as attcat_table1.py: with the same options and the same --output, nothing is
computed again. Precision@K is the mean number of answer tokens among the K highest scores.
"""

from dataclasses import replace

from attcat_published import DATASETS, QUESTION_ROWS, QUESTIONS, ROWS
from side_by_side import arguments, curve_figure, differences

from tokenlight.bench.benchmark import bench
from tokenlight.cli.app import wide_console
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.metrics.evaluate import Measure
from tokenlight.views.benchmark_table import show_table
from tokenlight.views.curve_chart import COLOURS
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--set", choices=[*DATASETS, *QUESTIONS], default="sst2")
parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 5, 10, 15, 20, 25, 30, 40, 50], help="for questions")
parser.add_argument("--erasure", action="store_true", help="the costly control: one pass for every token")
args = parser.parse_args()

asks = args.set in QUESTIONS
paper = (QUESTIONS if asks else DATASETS)[args.set]
judge = paper.protocol
if asks:
    tops = [Measure("precision_at_k", options={"k": k, "ties": "first"}, eligible="all", name=f"k={k}") for k in args.k]
    judge = replace(judge, name=f"{judge.name} over K", measures=tuple(tops))
model, data = args.model or paper.model, args.data or paper.data
folder = args.output / ("attcat_figure3" if asks else "attcat_table1") / args.set
table = bench(
    load_model(model, None),
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    QUESTION_ROWS if asks else ROWS,
    protocol=judge,
    output=folder,
    erasure=args.erasure,
)

if asks:
    figure = new_figure(5, 4)
    axes = figure.subplots()
    for line, colour in zip(table.methods, COLOURS, strict=False):
        axes.plot(args.k, [cell.mean for cell in line.cells], color=colour, marker="o", markersize=3, label=line.title)
        low, high = [cell.low for cell in line.cells], [cell.high for cell in line.cells]
        axes.fill_between(args.k, low, high, color=colour, alpha=0.12, linewidth=0)
    for line, dashes in zip(table.controls, ("dotted", "dashed"), strict=False):
        axes.plot(args.k, [cell.mean for cell in line.cells], color="grey", linestyle=dashes, label=line.title)
    axes.set(xlabel="K", ylabel="answer tokens among the top K")
    axes.legend(fontsize=7, frameon=False)
else:
    figure = curve_figure(table)
save(figure, folder / "attcat_figure3.png")
show_table(table, wide_console())
print(f"attcat_figure3.png is in {folder}. The paper's points are not at hand.")
for remark in differences(model, data, paper.model, paper.data, args.limit):
    print("-", remark)
