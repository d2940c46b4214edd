"""AttCAT, figure 4: the scores of every layer and token, by AttCAT and by CAT. Read it top to bottom.

    python recipes/attcat_figure4.py --output results
    python recipes/attcat_figure4.py --model default --text "A charming and often affecting journey." --output results

The sum over layers is the method's score. As in the release, no token may look at [CLS] or [SEP] in the explained pass
(--plain: they may).
"""

import textwrap

from attcat_published import DATASETS
from side_by_side import arguments, differences

from tokenlight.bench.presets import ATTCAT
from tokenlight.cli.loading import load_model
from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import Source
from tokenlight.explain.running import Running
from tokenlight.foundation.first_look import SENTENCES
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.figure import new_figure, save

parser = arguments(__doc__)
parser.add_argument("--text", action="append", help="repeat; default: our own sentences, or those of --data")
parser.add_argument("--target", help="the class that is explained; default: the predicted one")
parser.add_argument("--plain", action="store_true", help="explain the model as it is")
args = parser.parse_args()

model = args.model or DATASETS["sst2"].model
explainer = load_model(model, None)
texts = args.text or list(SENTENCES)
if args.data:
    rows = read_examples(Source(args.data, split=args.split, limit=args.limit or 4), explainer.task.gap)
    texts = [row.text for row in rows if isinstance(row, Example)]
specs = [MethodSpec(title, title.lower(), {"detail": "layers"}) for title in ("AttCAT", "CAT")]
jobs = {spec.label: spec.job(explainer.inner) for spec in specs}
prepare = None if args.plain else ATTCAT.prepare(explainer.tokenizer)
explained = explainer.explain_jobs(texts, jobs, target=args.target, running=Running(prepare=prepare))

args.output.mkdir(parents=True, exist_ok=True)
for number in range(len(texts)):
    own = [explained[title][number] for title in jobs]
    layers, tokens = own[0].maps["layers"].shape
    figure = new_figure(2 + 0.28 * tokens, 2 * (1.3 + 0.24 * layers))
    for axes, title, explanation in zip(figure.subplots(len(own), 1), jobs, own, strict=True):
        terms = explanation.maps["layers"]  # [layer, token]
        high = float(terms.abs().max()) or 1.0
        image = axes.imshow(terms.numpy(), cmap="RdBu", vmin=-high, vmax=high, aspect="auto")
        axes.set(ylabel="layer", title=f"{title}: {explanation.target}, model says {explanation.prediction}")
        axes.set_xticks(range(tokens), explanation.tokens, rotation=90, fontsize=7)
        axes.set_yticks(range(layers), range(1, layers + 1), fontsize=7)
        figure.colorbar(image, ax=axes)
    save(figure, args.output / f"attcat_figure4_{number + 1}.png")
    print(f"{number + 1}. {textwrap.shorten(str(texts[number]), 80)}")
    for title, explanation in zip(jobs, own, strict=True):
        share = explanation.maps["layers"].abs().sum(1)
        print(f"   {title}: share of |score| by layer", *(f"{x:.0%}" for x in share / (share.sum() or 1)))
print(f"{len(texts)} figures are in {args.output}. The paper's scores are not at hand.")
for remark in differences(model, args.data or "our own sentences", DATASETS["sst2"].model, "its own", args.limit):
    print("-", remark)
