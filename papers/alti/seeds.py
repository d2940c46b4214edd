"""What figures 7 and 8 share: the similarity of explanations of models that differ only in their seed."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import tokenlight as tl
from papers.alti.facts import PAPER, SEEDS
from papers.alti.runs import alti_parser, differences_of, load, make_specs
from papers.alti.small import SMALL
from papers.figures import save_figure
from papers.options import choose_runs
from papers.tables import Comparison, finish
from tokenlight.bench.presets import ALTI_ROBUSTNESS, ALTI_ROBUSTNESS_WRITTEN
from tokenlight.bench.robustness import Similarity, robustness
from tokenlight.data.read import read_examples
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As in the authors' notebook.
TITLES = ("Grad_ℓ2", "IG_ℓ2", "IG_μ", "G×I_ℓ2", "G×I_μ", "ALTI")


def compare_seeds(script: str, metric: int, description: str | None, arguments: Sequence[str] | None) -> None:
    """A box per method over all pairs of models. `metric` is the number of the measure: Jaccard, Spearman."""
    options = alti_parser(description, SEEDS).parse_args(arguments)
    measure = (ALTI_ROBUSTNESS if options.released else ALTI_ROBUSTNESS_WRITTEN)[metric]
    runs = list(choose_runs(options, script, SMALL))
    texts = [str(row.text) for row in read_examples(runs[0].source, None) if isinstance(row, tl.Example)]
    models = [load(run) for run in runs]
    likenesses = robustness(models, texts, make_specs(TITLES, options.steps, options.released), [measure])
    means = {title: [likeness.mean for likeness in likenesses if likeness.method == title] for title in TITLES}
    title = measure.entry.title
    together = replace(runs[0], name="seeds", folder=options.output / script)
    heading = (
        f"ALTI, figure {script.removeprefix('figure')}: {title} between {len(runs)} models, {len(texts)} texts of "
    )
    remarks = [*describe_pairs(likenesses, len(texts)), *differences_of(runs)]
    finish(list_means(heading + runs[0].data_name, means, remarks), PAPER, script, together, options.record)
    save_figure(draw(title, means), PAPER, script, together, options.record)


def describe_pairs(similarities: Sequence[Similarity], texts: int) -> list[str]:
    shared = {similarity.pair: similarity.texts for similarity in similarities}
    models = len({number for pair in shared for number in pair})
    return [
        f"{models} models, {len(shared)} ordered pairs, {texts} texts, of which two models agree on "
        f"{min(shared.values())} or more"
    ]


def list_means(heading: str, means: dict[str, list[float]], remarks: list[str]) -> Comparison:
    rows = [
        [title, f"{median(values):.3f}", f"{min(values):.3f}", f"{max(values):.3f}"] for title, values in means.items()
    ]
    return Comparison(heading, ["method", "median over pairs", "lowest", "highest"], rows, remarks)


def draw(title: str, means: dict[str, list[float]]) -> "Figure":
    figure = new_figure(6, 3.2)
    axes = figure.subplots()
    axes.boxplot(list(means.values()), tick_labels=list(means), widths=0.6)
    axes.set(ylabel=title, ylim=(0, 1) if min(map(min, means.values())) >= 0 else (-1, 1))
    axes.tick_params(labelsize=8)
    return figure
