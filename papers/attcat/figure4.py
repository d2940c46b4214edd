"""AttCAT, figure 4: normalized scores of every layer, their product (Rollout) and their sum (Sum).

python -m papers.attcat.figure4
python -m papers.attcat.figure4 --released                  # block inputs; no token attends to [CLS] or [SEP]
python -m papers.attcat.figure4 --model default --text "A charming and often affecting journey."
python -m papers.attcat.figure4 --small
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from papers.attcat.choices import add_released, choose_methods, choose_protocol, name_run
from papers.attcat.facts import FIGURE_4, FIGURE_4_TEXT, PAPER
from papers.figures import save_figure
from papers.options import choose_runs, make_parser, plain_name
from papers.small import SENTIMENT
from papers.tables import Comparison, finish, format_published
from tokenlight.explain.options import Resources
from tokenlight.methods.config import MethodConfig
from tokenlight.results.explanation import Explanation
from tokenlight.views.benchmark_table import minus
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure4"
SMALL = {"sst2": SENTIMENT}


def normalized_rows(explanation: Explanation) -> dict[str, np.ndarray]:
    """Scores by layer, their product and their sum, divided by the norm of all these numbers together."""
    layers = explanation.maps["layers"].double().cpu().numpy()  # [layer, token]
    rows = np.vstack([layers, layers.prod(0), layers.sum(0)])
    names = [*(f"L{number}" for number in range(len(layers))), "Rollout", "Sum"]
    return dict(zip(names, rows / (np.linalg.norm(rows) or 1.0), strict=True))


def draw_heatmap(rows: dict[str, np.ndarray], tokens: Sequence[str]) -> "Figure":
    values = np.array(list(rows.values()))
    high = np.abs(values).max() or 1.0
    figure = new_figure(1.6 + 0.6 * len(tokens), 1 + 0.3 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(values, cmap="PiYG", vmin=-high, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        color = "white" if abs(value) > 0.6 * high else "black"
        axes.text(column, row, minus(f"{value:.2f}"), ha="center", va="center", fontsize=6, color=color)
    axes.set_xticks(range(len(tokens)), [token.replace("$", r"\$") for token in tokens], fontsize=8)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    figure.colorbar(image, ax=axes)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = add_released(make_parser(__doc__, PAPER, ["sst2"]))
    parser.add_argument("--text", default=FIGURE_4_TEXT)
    parser.add_argument("--target", help="class that is explained; default: the predicted one")
    options = parser.parse_args(arguments)
    for plain_run in choose_runs(options, SCRIPT, SMALL):
        protocol = choose_protocol(plain_run.name, options.released)
        run, form = name_run(plain_run, options.released)
        explainer = run.load()
        (method,) = choose_methods(["AttCAT"], options.released)
        method_config = MethodConfig.for_model(method.entry, {**method.options, "detail": "layers"}, explainer.inner)
        resources = Resources(prepare=protocol.prepare(explainer.tokenizer))
        (explanation,) = explainer.explain_configs(
            options.text, {"AttCAT": method_config}, target=options.target, resources=resources
        ).values()
        rows = normalized_rows(explanation)
        save_figure(draw_heatmap(rows, explanation.tokens), PAPER, SCRIPT, run, options.record)
        published = FIGURE_4.column("Sum") if options.text == FIGURE_4_TEXT else {}
        numbers = zip(explanation.tokens, rows["Rollout"], rows["Sum"], strict=True)
        cells = [
            [token, minus(f"{product:.3f}"), minus(f"{total:.3f}"), format_published(published.get(token))]
            for token, product, total in numbers
        ]
        remarks = [f"explained class: {explanation.target}; the model predicts {explanation.prediction}"]
        head = ["token", "Rollout", "Sum", "published Sum"]
        heading = f"AttCAT, figure 4, {form}: {plain_name(run.model)} on one sentence"
        comparison = Comparison(heading, head, cells, [*remarks, *run.model_difference])
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
