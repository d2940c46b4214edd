"""ALTI, figures 10 to 12: what each token contributes to [CLS], layer after layer. Read it top to bottom.

    python recipes/alti_figures10to12.py --output results/figures10to12
    python recipes/alti_figures10to12.py --model default --data PATH/TO/SST-2/dev.tsv --limit 3 --output results/f10

A heatmap for each text: row l is the [CLS] row of C^l ... C^1, so the last row is the attribution itself, and every row
sums to 1. Which sentences the paper shows is not at hand: they are those of --text, or the first of --data.
"""

import torch
from alti_published import SETTINGS, load
from side_by_side import arguments

from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import Source
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--text", action="append", help="repeat for several; default: the first of --data")
args = parser.parse_args()
setting = SETTINGS["bert-sst2"]
explainer = load(args.model or setting.model)
data = args.data or setting.data
split = args.split or (setting.split if data.startswith("hf:") else None)
rows = [] if args.text else read_examples(Source(data, split=split, limit=args.limit or 3))
texts = args.text or [row.text for row in rows if isinstance(row, Example)]
args.output.mkdir(parents=True, exist_ok=True)
for number, explanation in enumerate(explainer.explain(texts, "alti", layers=True, position=0)):
    matrices = explanation.maps["contributions"]  # [layer, query, key]
    state = torch.eye(matrices.shape[1], dtype=matrices.dtype)
    reached = []
    for matrix in matrices:
        state = matrix @ state
        reached.append(state[0])
    grid = torch.stack(reached)  # [layer, token]
    assert torch.allclose(grid[-1], explanation.scores.to(grid), atol=1e-5)
    figure = new_figure(1.5 + 0.35 * len(explanation.tokens), 1.5 + 0.25 * len(grid))
    axes = figure.subplots()
    drawn = axes.imshow(grid.numpy(), cmap="Blues", vmin=0, origin="lower", aspect="auto")
    axes.set_xticks(range(len(explanation.tokens)), explanation.tokens, rotation=90, fontsize=7)
    axes.set_yticks(range(len(grid)), [str(layer + 1) for layer in range(len(grid))], fontsize=7)
    axes.set(ylabel="layer", title=f"predicted: {explanation.prediction}")
    figure.colorbar(drawn, ax=axes)
    path = args.output / f"text{number}.png"
    save(figure, path)
    print(f"{path}: {explanation.text}")
