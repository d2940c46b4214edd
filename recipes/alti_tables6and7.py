"""ALTI, tables 6 and 7: are explanations of models that differ in their seed alone alike? Read it top to bottom.

    python recipes/alti_tables6and7.py --model SEED_0 --seed-model SEED_1 --seed-model SEED_2 \\
        --data PATH/TO/SST-2/dev.tsv --limit 1000 --output results/tables6and7

Means of Jaccard-25 % (shared tokens among the top quarter) and of Spearman's correlation over all pairs of models, on
texts for which both predict the same class; all tokens count, special ones too. The paper compares ten fine-tuned
MultiBERTs on the first 1,000 test sentences of SST-2; their classifiers are not on the Hub, so name your own:
recipes/embedded_model.py --seed N trains some. The numbers of the paper's two tables are not at hand.
"""

from alti_published import BETWEEN_SEEDS, SETTINGS, load, source
from side_by_side import arguments, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.bench.presets import ALTI_ROBUSTNESS
from tokenlight.bench.protocol import Protocol
from tokenlight.metrics.evaluate import Measure

parser = arguments(__doc__)
parser.add_argument("--seed-model", action="append", required=True, help="repeat; 'default' is the one inside")
args = parser.parse_args()
setting = SETTINGS["bert-sst2"]
models = [args.model or "default", *args.seed_model]

# The release's Spearman is no correlation once scores tie; the true one stands beside it.
measures = (*ALTI_ROBUSTNESS, Measure("spearman", eligible="all", name="spearman, ties right"))
first, *others = (load(name) for name in models)
table = bench(
    first,
    source(args.data or setting.data, args.split or setting.split, args.limit),
    BETWEEN_SEEDS,
    protocol=Protocol("alti_robustness", measures, tasks=("text-classification",), longest=200),
    output=args.output,
    seed_models=others,
    erasure=False,
)
pairs = len(models) * (len(models) - 1) // 2
side_by_side(
    "ALTI, tables 6 and 7: likeness between seeds",
    table,
    {},
    [f"{len(models)} models, {pairs} pairs of them; the paper has ten MultiBERTs, 90 ordered pairs"],
    path=args.output / "side_by_side.md",
)
