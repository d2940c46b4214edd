"""ALTI, figure 3: the contribution matrices of one layer. Read it top to bottom.

    python recipes/alti_figure3.py --output results/figure3
    python recipes/alti_figure3.py --model default --text "it 's a charming journey ." --output results/figure3

How much of each token's new state (row) comes from each token (column) in one layer: by the lengths of the vectors
(Norms), and by how near they are to the layer's output (ALTI, l2 and l1). Rows sum to 1. Which sentence and layer the
paper shows is not at hand: choose with --text and --layer.
"""

from alti_published import SETTINGS, load
from side_by_side import arguments

from tokenlight.explain.jobs import Job
from tokenlight.methods import find_method
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--text", default="it 's a charming and often affecting journey .")
parser.add_argument("--layer", type=int, help="from 0; default: the middle one")
args = parser.parse_args()
if args.data or args.limit:
    parser.error("this figure shows one sentence: give it with --text")
model = args.model or SETTINGS["bert-sst2"].model

explainer = load(model)
panels = {
    "Norms": ("value_norms", {}),
    "ALTI l2": ("alti", {"norm": "l2"}),
    "ALTI l1": ("alti", {"norm": "l1"}),
}
jobs = {
    title: Job.for_model(find_method(name), {**options, "layers": True}, explainer.model)
    for title, (name, options) in panels.items()
}
explained = explainer.explain_jobs(args.text, jobs)
layers, size, _ = explained["Norms"].maps["contributions"].shape  # [layer, query, key]
layer = layers // 2 if args.layer is None else args.layer
if not 0 <= layer < layers:
    parser.error(f"layer {layer} is not among the {layers} layers from 0 on")

figure = new_figure(0.8 + 3 * max(2.0, 0.22 * size), 0.8 + max(2.0, 0.22 * size))
columns = figure.subplots(1, len(panels), sharey=True)
highest = max(float(e.maps["contributions"][layer].max()) for e in explained.values())
for axes, (title, explanation) in zip(columns, explained.items(), strict=True):
    axes.imshow(explanation.maps["contributions"][layer].numpy(), cmap="Blues", vmin=0, vmax=highest)
    axes.set_title(f"{title}, layer {layer}", fontsize=9)
    axes.set_xticks(range(size), explanation.tokens, rotation=90, fontsize=7)
    axes.set_yticks(range(size), explanation.tokens, fontsize=7)
figure.colorbar(columns[-1].images[0], ax=columns, shrink=0.7)
args.output.mkdir(parents=True, exist_ok=True)
save(figure, args.output / f"layer{layer}.png")
print(f"{args.output / f'layer{layer}.png'}: layer {layer} (the first is 0) of the {layers} of {model}")
