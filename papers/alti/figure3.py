"""ALTI, figure 3: cosine similarities of vectors, layer by layer.

python -m papers.alti.figure3
python -m papers.alti.figure3 --small

Solid: the mean cosine similarity of two tokens' attention-block outputs. Dashed: of the vectors that two tokens send
to the same position. Both are means over all pairs of a sentence's tokens, and then over sentences. `--released` draws
the states between layers as the solid line, as the authors' code does.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import tokenlight as tl
from papers.alti.cosines import mean_cosines
from papers.alti.facts import MODELS, PAPER
from papers.alti.runs import alti_parser, describe, load
from papers.alti.small import SMALL
from papers.figures import save_figure
from papers.options import choose_runs, plain_name
from papers.tables import Comparison, finish
from tokenlight.data.read import read_examples
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure3"
SENTENCES = 500  # random ones; in the authors' code the first ones
NAMES = tuple(f"{model}-sst2" for model in MODELS)
SMALL_RUNS = {"bert-sst2": SMALL["bert-sst2"]} | {
    f"{model}-sst2": SMALL[f"{model}-yelp"] for model in ("roberta", "distilbert")
}


def draw(cosines_by_model: dict[str, dict[str, list[float]]]) -> "Figure":
    figure = new_figure(6, 3.4)
    axes = figure.subplots()
    for number, (model, lines) in enumerate(cosines_by_model.items()):
        for of, dashes in (("outputs", "solid"), ("vectors", "dashed")):
            positions = [layer + (len(lines[of]) == len(lines["vectors"])) for layer in range(len(lines[of]))]
            axes.plot(positions, lines[of], color=f"C{number}", linestyle=dashes, marker="o", label=f"{model}, {of}")
    axes.set(xlabel="layer", ylabel="mean cosine similarity", ylim=(None, 1))
    axes.legend(fontsize=7)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, NAMES).parse_args(arguments)
    if not options.small and options.limit is None and options.sample is None:
        options.limit, options.sample = (SENTENCES, None) if options.released else (None, SENTENCES)
    cosines_by_model, runs = {}, list(choose_runs(options, SCRIPT, SMALL_RUNS))
    for run in runs:
        model = MODELS[run.name.partition("-")[0]]
        texts = [str(row.text) for row in read_examples(run.source, None) if isinstance(row, tl.Example)]
        lines = cosines_by_model[model] = mean_cosines(load(run), texts, options.released)
        longest = max(map(len, lines.values()))
        rows = [[of, *[""] * (longest - len(line)), *(f"{value:.3f}" for value in line)] for of, line in lines.items()]
        first = 0 if options.released else 1  # the release's states begin with the embeddings
        head = ["cosine similarity of", *(str(first + layer) for layer in range(longest))]
        remarks = run.differences
        heading = f"ALTI, figure 3, {describe(run)}, by layer: {plain_name(run.model)} on {len(texts)} texts of "
        comparison = Comparison(heading + run.data_name, head, rows, remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)
    together = replace(runs[0], name="models", folder=options.output / SCRIPT)
    save_figure(draw(cosines_by_model), PAPER, SCRIPT, together, options.record)


if __name__ == "__main__":
    main()
