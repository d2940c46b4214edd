"""Mask-LRP, figures 6 to 13: method against method on a text. Read it top to bottom.

    python recipes/mask_lrp_figures6to13.py --output results
    python recipes/mask_lrp_figures6to13.py --model default --data PATH/TO/SST-2/dev.tsv --limit 4 --output results

Green: Mask-LRP gives the word more than the other method. Red and underlined: less. Both are scaled so that their
strongest word has 1. Writes one page (mask_lrp_figures6to13.html) and a figure for each text.
"""

from pathlib import Path

from mask_lrp_published import BASELINES, DATASETS, find_mask, masked
from side_by_side import arguments, differences

from tokenlight.cli.loading import load_model
from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import Source
from tokenlight.foundation.first_look import SENTENCES
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.difference import difference_figure, difference_page
from tokenlight.views.figure import save

parser = arguments(__doc__)
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
parser.add_argument("--variant", choices=["released", "paper"], default="released")
parser.add_argument("--against", nargs="+", default=BASELINES, help="methods; default: those of the paper's table 1")
args = parser.parse_args()

model = args.model or DATASETS["sst2"].model
explainer = load_model(model, None)
mask = find_mask(args.heads, explainer)
texts = list(SENTENCES)
if args.data:
    rows = read_examples(Source(args.data, split=args.split, limit=args.limit), explainer.task.gap)
    texts = [row.text for row in rows if isinstance(row, Example)]
specs = [masked("Mask-LRP", mask, args.variant), *(MethodSpec.parse(name) for name in args.against)]
jobs = {spec.label: spec.job(explainer.inner) for spec in specs}
explained = explainer.explain_jobs(texts, jobs)

args.output.mkdir(parents=True, exist_ok=True)
pairs = [[(own, explained[name][i]) for name in args.against] for i, own in enumerate(explained["Mask-LRP"])]
page = difference_page([pair for some in pairs for pair in some], "Mask-LRP against other methods")
(args.output / "mask_lrp_figures6to13.html").write_text(page, encoding="utf-8")
for number, some in enumerate(pairs, 1):
    save(difference_figure(some), args.output / f"mask_lrp_figures6to13_{number}.png")
print(f"A page and {len(pairs)} figures, mask_lrp_figures6to13*, are in {args.output}.")
print("- the paper's texts and scores are not at hand")
for remark in differences(model, args.data or "our own sentences", DATASETS["sst2"].model, "its own", args.limit):
    print("-", remark)
