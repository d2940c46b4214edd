"""ALTI, figure 5: the matrix R^L for a short sentence and BERT, and below it the row of [CLS].

python -m papers.alti.figure5
python -m papers.alti.figure5 --small
python -m papers.alti.figure5 --text "A sentence of your own."
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from papers.alti.facts import PAPER
from papers.alti.matrices import NAMES, explain_layers
from papers.alti.small import SMALL
from papers.alti.texts import SMALL_SENTENCE, choose_text, text_parser
from papers.figures import save_figure
from papers.options import choose_runs
from tokenlight.results.explanation import Explanation
from tokenlight.views.drawing import css, ink, new_figure, shade

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure5"
WORDS = "clever blend of fact and fiction"


def draw(explanation: Explanation) -> "Figure":
    tokens, last = explanation.tokens, explanation.maps["mixing"][-1]  # [query, key]
    figure = new_figure(1.5 + 0.45 * len(tokens), 2.2 + 0.4 * len(tokens))
    upper, lower = figure.subplots(2, 1, height_ratios=[len(tokens), 1])
    image = upper.imshow(last.numpy(), cmap="Blues", vmin=0)
    upper.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8)
    upper.set_yticks(range(len(tokens)), tokens, fontsize=8)
    figure.colorbar(image, ax=upper, shrink=0.7)
    row = last[0] / last[0].max()
    for column, (token, strength) in enumerate(zip(tokens, row.tolist(), strict=True)):
        color = shade(strength)
        box = {"facecolor": css(color), "edgecolor": "none", "pad": 2}
        lower.text(column, 0, token, color=css(ink(color)), bbox=box, ha="center", va="center", fontsize=7)
    lower.set(xlim=(-0.5, len(tokens) - 0.5), ylim=(-0.5, 0.5))
    lower.axis("off")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = text_parser(__doc__, NAMES).parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        explanation = explain_layers(run, choose_text(options, run, WORDS, SMALL_SENTENCE), "alti")
        save_figure(draw(explanation), PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
