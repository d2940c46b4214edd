"""Do methods find the subject of a verb less well if more nouns of the other number stand in between?

python -m papers.arras.table2 --small --dataset bert-base --output results/arras
python -m studies.attractors --results results/arras/table2/bert-base --output results/attractors

Draws each metric of a run of papers.arras.table2 by the number of attractors, with 95 % intervals. Arras et al. do not
show this. The LGD file has one to four attractors in every sentence; in other data, groups are whatever they name.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenlight.bench.stored_results import measure_from
from tokenlight.bench.tabulate import STAGES, intervals, read_table
from tokenlight.results.tables import Table
from tokenlight.runs.run_folder import Journal
from tokenlight.views.curve_chart import styles_of
from tokenlight.views.drawing import new_figure, save

Records = Sequence[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder that papers.arras.table2 has written")
    parser.add_argument("--output", type=Path, required=True, help="folder for the figure")
    parser.add_argument("--least", type=int, default=10, help="examples that a group needs to be drawn")
    options = parser.parse_args(arguments)
    table = read_table(options.results)
    records = [record for record in Journal(options.results / STAGES[0]) if "methods" in record]
    counts = Counter(group_of(record) for record in records)
    groups = sorted(group for group, count in counts.items() if count >= options.least)
    for group, count in sorted(counts.items()):
        print(f"{group} attractors: {count:,} examples{'' if group in groups else ', too few to be drawn'}")
    if not groups:
        parser.error(f"no group has {options.least} examples: measure more, or lower --least")
    options.output.mkdir(parents=True, exist_ok=True)
    save(draw(table, records, groups), options.output / "attractors.png")


def group_of(record: dict[str, Any]) -> str:
    return record["group"] or "all"


def runs_by_line(table: Table, records: Records) -> dict[str, list[str]]:
    """The labels of a line's runs: several for random scores."""
    settings, lines = table.run.settings["methods"], dict[str, list[str]]()
    for name in records[0]["methods"]:
        lines.setdefault(settings.get(name, {}).get("run_of") or name, []).append(name)
    return lines


def draw(table: Table, records: Records, groups: Sequence[str]) -> Any:
    """A panel per metric, a point with its interval per group and method."""
    lines = runs_by_line(table, records)
    styles = styles_of([line.label for line in table.methods], [line.label for line in table.controls])
    figure = new_figure(3.1 * len(table.columns), 3.4)
    panels = np.atleast_1d(figure.subplots(1, len(table.columns)))
    measures = [measure_from(plain) for plain in table.run.settings["protocol"]["measures"]]
    for axes, column, measure in zip(panels, table.columns, measures, strict=True):
        for m, (label, runs) in enumerate(lines.items()):
            values = [values_of(records, group, runs, column.label) for group in groups]
            bounds = measure.entry.bounds_for(measure.options, None)
            limits = [intervals(x, np.ones_like(x), measure.entry, bounds, seed=0)[:, 0] for x in values]
            means = np.array([x.mean() for x in values])
            spread = np.abs(np.array(limits).T - means)
            positions = np.arange(len(groups)) + (m - (len(lines) - 1) / 2) * 0.08
            axes.errorbar(positions, means, spread, color=styles[label][0], marker="o", ms=3, ls="", lw=1, label=label)
        axes.set_xticks(range(len(groups)), groups)
        axes.set(title=column.title, xlabel="attractors")
        axes.margins(x=0.3)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def values_of(records: Records, group: str, runs: Sequence[str], metric: str) -> np.ndarray:
    """[example, 1]: the mean over runs of a metric on each example of a group."""
    methods_of_examples = [record["methods"] for record in records if group_of(record) == group]
    return np.array([[np.mean([methods[run]["values"][metric] for run in runs])] for methods in methods_of_examples])


if __name__ == "__main__":
    main()
