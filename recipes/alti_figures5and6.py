"""ALTI, figures 5 and 6: the model's probability while tokens are deleted one by one. Read it top to bottom.

    python recipes/alti_figures5and6.py --output results/curves
    python recipes/alti_figures5and6.py --model default --data PATH/TO/SST-2/dev.tsv --limit 200 --output results/curves

Left the fall of the predicted class's probability while the highest-ranked tokens go (higher is better), right while
they alone are there (lower is better): mean over texts with 95 % intervals, up to 30 tokens on SST-2 and 60 elsewhere;
a text that is shorter stays at its end. No envelope here: the curves are as they are. The values behind the paper's
curves are not at hand.
"""

from alti_published import SETTINGS, load, source
from side_by_side import arguments, curve_figure

from tokenlight.bench.benchmark import bench
from tokenlight.bench.protocol import Protocol
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.figure import save

parser = arguments(__doc__)
parser.add_argument("--setting", choices=SETTINGS, default="bert-sst2", help="model, data, length of the curves")
parser.add_argument("--deleted", type=int, help="tokens; default: the setting's")
parser.add_argument("--steps", type=int, default=100, help="of integrated gradients")
args = parser.parse_args()
setting = SETTINGS[args.setting]
model, data = args.model or setting.model, args.data or setting.data

deleting = Perturbation(how="delete", grid=tuple(range(1, (args.deleted or setting.deleted) + 1)))
table = bench(
    load(model),
    source(data, args.split or setting.split, args.limit),
    [
        "alti",
        MethodSpec("IG l2", "integrated_gradients", {"steps": args.steps, "baseline": "mask", "reduce": "l2"}),
        "gradient_l2",
        "globenc",
        "rollout",
    ],
    protocol=Protocol(
        "alti_curves",
        (Measure("comprehensiveness", deleting), Measure("sufficiency", deleting)),
        tasks=("text-classification",),
        longest=200,
    ),
    output=args.output,
    erasure=False,
)
table.show()
save(curve_figure(table), args.output / "curves.png")
print(f"{args.output / 'curves.png'}: {model}, {table.run.examples} texts")
