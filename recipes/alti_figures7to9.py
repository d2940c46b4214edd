"""ALTI, figures 7 to 9: likeness of explanations between seeds, as boxplots. Read it top to bottom.

    python recipes/alti_figures7to9.py --model SEED_0 --seed-model SEED_1 --seed-model SEED_2 \\
        --data PATH/TO/SST-2/dev.tsv --limit 1000 --output results/figures7to9

A box for each method over all pairs of models: Jaccard-25 % on the left, Spearman as the release computes it on the
right, each pair's mean over the texts for which both models predict the same class. Figure 7 is about ten fine-tuned
MultiBERTs, figures 8 and 9 about other models: run it on models of another kind for those. The values behind the
paper's boxes are not at hand; means with intervals over texts are in alti_tables6and7.py.
"""

import json
from dataclasses import asdict

from alti_published import BETWEEN_SEEDS, SETTINGS, load, source
from side_by_side import arguments

from tokenlight.bench.presets import ALTI_ROBUSTNESS
from tokenlight.bench.robustness import robustness
from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--seed-model", action="append", required=True, help="repeat; 'default' is the one inside")
args = parser.parse_args()
setting = SETTINGS["bert-sst2"]

rows = read_examples(source(args.data or setting.data, args.split or setting.split, args.limit))
texts = [row.text for row in rows if isinstance(row, Example)]
models = [load(name) for name in (args.model or "default", *args.seed_model)]
likenesses = robustness(models, texts, BETWEEN_SEEDS, ALTI_ROBUSTNESS)
args.output.mkdir(parents=True, exist_ok=True)
(args.output / "pairs.json").write_text(json.dumps([asdict(one) for one in likenesses], indent=1), encoding="utf-8")

shared = {one.pair: one.texts for one in likenesses}
print(f"{len(texts)} texts, {len(shared)} ordered pairs; any two models agree on {min(shared.values())} texts or more")
figure = new_figure(9, 3.6)
labels = list(dict.fromkeys(one.method for one in likenesses))[::-1]  # boxes are drawn from below
for axes, measure in zip(figure.subplots(1, 2, sharey=True), ALTI_ROBUSTNESS, strict=True):
    values = [[one.mean for one in likenesses if (one.method, one.metric) == (m, measure.label)] for m in labels]
    axes.boxplot(values, orientation="horizontal", tick_labels=labels, widths=0.6)
    axes.set_title(f"{measure.entry.title} (higher: more alike)", fontsize=9)
    axes.tick_params(labelsize=8)
    for label, some in zip(labels, values, strict=True):
        low, middle, high = min(some), sum(some) / len(some), max(some)
        print(f"{measure.entry.title:12} {label:16} {middle:.3f}, from {low:.3f} to {high:.3f} over pairs")
save(figure, args.output / "boxplots.png")
