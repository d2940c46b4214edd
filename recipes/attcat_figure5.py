"""AttCAT, figure 5: does a method tell classes apart? Kendall's τ between the scores for two classes. Top to bottom.

    python recipes/attcat_figure5.py --output results
    python recipes/attcat_figure5.py --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --output results

Lower is better. The paper takes τ between the two arrays of sorted indices, which is not the agreement of two rankings:
a ranking and its reverse do not get −1. Both are measured: "published" and "on ranks".
"""

from dataclasses import replace

from attcat_published import DATASETS, KENDALL, ROWS
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.cli.loading import load_model
from tokenlight.data.source import Source
from tokenlight.metrics.evaluate import Measure
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--dataset", choices=DATASETS, default="sst2")
args = parser.parse_args()

paper = DATASETS[args.dataset]
model, data = args.model or paper.model, args.data or paper.data
measures = (
    Measure("kendall_confidence", options={"variant": "argsort"}, eligible="all", name="τ as published"),
    Measure("kendall_confidence", options={"variant": "ranks"}, eligible="all", name="τ on ranks"),
)
folder = args.output / "attcat_figure5" / args.dataset
table = bench(
    load_model(model, None),
    Source(data, split=args.split or (paper.split if data == paper.data else None), limit=args.limit),
    ROWS,
    protocol=replace(paper.protocol, name=f"{paper.protocol.name}, Kendall alone", measures=measures),
    output=folder,
    erasure=False,
)
side_by_side(
    f"AttCAT, figure 5, {args.dataset}",
    table,
    {row: [number, None] for row, number in KENDALL[args.dataset].items()},
    [*differences(model, data, paper.model, paper.data, args.limit), *([paper.remark] if model == paper.model else [])],
    path=folder / "side_by_side.md",
)

figure = new_figure(9, 3.4)
for k, (axes, column) in enumerate(zip(figure.subplots(1, 2, sharey=True), table.columns, strict=True)):
    values = [table.values[:, i, k] for i, line in enumerate(table.lines) if not line.control]
    axes.boxplot(values, tick_labels=[line.title for line in table.methods], showmeans=True, widths=0.6)
    axes.axhline(0, color="grey", linewidth=0.6)
    axes.tick_params(axis="x", rotation=45, labelsize=7)
    axes.set_title(f"{column.label} (lower is better)", fontsize=9)
save(figure, folder / "attcat_figure5.png")
