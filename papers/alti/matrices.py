"""What figures 5 and 10 to 12 share: the matrices R^l of a method for one sentence."""

from collections.abc import Sequence

import numpy as np

from papers.alti.facts import PAPER
from papers.alti.runs import load
from papers.alti.small import SMALL
from papers.alti.texts import SMALL_SENTENCE, choose_text, text_parser
from papers.figures import draw_maps, save_figure
from papers.options import Run, choose_runs
from tokenlight.results.explanation import Explanation

NAMES = ("bert-sst2",)
WORDS = "meditation on the nature of revolution"  # of the sentence in the picture of the authors' repository


def explain_layers(run: Run, text: str, method: str) -> Explanation:
    return load(run).explain(text, method, layers=True)


def draw_layers(script: str, method: str, description: str | None, arguments: Sequence[str] | None) -> None:
    """A panel for each layer's R^l (eq. 8 and 11)."""
    options = text_parser(description, NAMES).parse_args(arguments)
    for run in choose_runs(options, script, SMALL):
        explanation = explain_layers(run, choose_text(options, run, WORDS, SMALL_SENTENCE), method)
        mixing: np.ndarray = explanation.maps["mixing"].numpy()  # [layer, query, key]
        maps = {f"layer {layer + 1}": matrix for layer, matrix in enumerate(mixing)}
        columns = 4 if len(maps) > 6 else 3
        save_figure(draw_maps(maps, explanation.tokens, columns), PAPER, script, run, options.record)
