"""Arras et al., figure 2, from the results of arras_table2.py. Read it top to bottom.

    python recipes/arras_table2.py --model PATH/TO/smollm2 --data PATH/TO/lgd_dataset.tsv --output results/table2
    python recipes/arras_figure2.py --results results/table2 --output results/figure2

What the paper's figure shows is not at hand. Here it is two drawings of the table's results. groups.png has each metric
by the number of attractors (nouns of the other number between subject and verb; in other data whatever the examples
are grouped by), with 95 % intervals, where a group has enough examples for one. examples.png has a few examples as
heatmaps, token by method. Treebanks hold few examples with attractors; the LGD file has one to four in every example.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from arras_published import measured_records

from tokenlight.bench.shown_examples import read_shown
from tokenlight.bench.stored_results import measure_from
from tokenlight.bench.tabulate import intervals, read_table
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.figure import new_figure, save

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--results", type=Path, required=True, help="the folder that arras_table2.py has written")
parser.add_argument("--output", type=Path, required=True, help="folder for the figures")
parser.add_argument("--least", type=int, default=10, help="examples of a group that is drawn")
args = parser.parse_args()
table = read_table(args.results)
records = measured_records(args.results)
args.output.mkdir(parents=True, exist_ok=True)

# By group: the mean of each metric for each method.
counts = Counter(record["group"] or "all" for record in records)
groups = sorted(group for group, count in counts.items() if count >= args.least)
for group, count in sorted(counts.items()):
    print(f"group {group}: {count:,} examples{'' if group in groups else ', too few to be drawn'}")
if not groups:
    parser.error(f"no group has {args.least} examples: measure more, or lower --least")
ticks = [f"{group}\nn = {counts[group]:,}" for group in groups]
settings = table.run.settings["methods"]
runs_of: dict[str, list[str]] = {}  # label of a line -> labels of its runs
for name in records[0]["methods"]:
    runs_of.setdefault(settings.get(name, {}).get("run_of") or name, []).append(name)
labels = list(runs_of)
styles = styles_of([line.label for line in table.methods], [line.label for line in table.controls])
figure = new_figure(3.1 * len(table.columns), 3.4)
panels = np.atleast_1d(figure.subplots(1, len(table.columns)))
measures = [measure_from(plain) for plain in table.run.settings["protocol"]["measures"]]
for axes, column, measure in zip(panels, table.columns, measures, strict=True):
    for m, label in enumerate(labels):
        middle, spread = [], []
        for group in groups:
            values = np.array(
                [
                    [np.mean([record["methods"][name]["values"][column.label] for name in runs_of[label]])]
                    for record in records
                    if (record["group"] or "all") == group
                ]
            )
            (low,), (high,) = intervals(values, np.ones_like(values), measure.entry, seed=0)
            middle.append(values.mean())
            spread.append((middle[-1] - low, high - middle[-1]))
        places = np.arange(len(groups)) + (m - (len(labels) - 1) / 2) * 0.08
        colour = styles[label][0]
        axes.errorbar(
            places,
            middle,
            np.array(spread).T,
            color=colour,
            marker="o",
            markersize=3,
            linestyle="",
            elinewidth=1,
            label=label,
        )
    axes.set_xticks(range(len(groups)), ticks, fontsize=7)
    axes.margins(x=0.3)
    axes.set_title(f"{column.title}", fontsize=9)
panels[0].set_xlabel("group (attractors)", fontsize=8)
handles, names = panels[0].get_legend_handles_labels()
figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
save(figure, args.output / "groups.png")

# Examples: each method's scores divided by their largest absolute value, so that methods can be compared.
shown = read_shown(args.results)
figure = new_figure(9, 0.6 + 2.4 * len(shown))
for axes, explained in zip(np.atleast_1d(figure.subplots(len(shown), 1)), shown, strict=True):
    scores = np.stack([one.scores.numpy() / max(1e-12, float(one.scores.abs().max())) for one in explained])
    axes.imshow(scores, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    read = zip(explained[0].tokens, explained[0].spans, strict=True)
    words = [str(explained[0].text)[start:end].strip() or token for token, (start, end) in read]
    axes.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(explained)), [one.method for one in explained], fontsize=7)
    axes.set_title(f"{explained[0].target.strip()} against {(explained[0].foil or '').strip()}", fontsize=8)
save(figure, args.output / "examples.png")
print(f"{args.output / 'groups.png'} and {args.output / 'examples.png'}: {len(records):,} examples")
