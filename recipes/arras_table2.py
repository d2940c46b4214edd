"""Arras et al., table 2: do explanations point at the subject that decides a verb's form? Read it top to bottom.

    python recipes/arras_table2.py --data PATH/TO/lgd_dataset.tsv --output results/table2      # bert-base-uncased
    python recipes/arras_table2.py --model gpt2 --data PATH/TO/lgd_dataset.tsv --output results/table2_gpt2
    python recipes/arras_table2.py --model PATH/TO/smollm2 --published meta-llama/Llama-3.2-1B \\
        --data PATH/TO/en_ewt-ud-test.conllu --output results/table2_smollm2

PG-2, MRR, RMA and PTA over all tokens of the input, special ones too, averaged over the examples that the model gets
right; explained is the logit of the right verb form minus that of the other. CoNLL-U treebanks and CSVs of minimal
pairs with evidence (BLiMP, IOI) are read as well. The paper computes in double precision: --double. Relevance is read
at the word embeddings.
"""

from statistics import fmean

from arras_published import GRADIENTS, NO_DATA, TABLE_2, accuracy, load, measured_records
from side_by_side import arguments, differences, side_by_side

from tokenlight.bench.benchmark import bench
from tokenlight.data.source import Source

parser = arguments(__doc__)
parser.add_argument("--published", choices=TABLE_2, help="whose numbers to print beside; default: the model's own")
parser.add_argument("--double", action="store_true", help="double precision")
args = parser.parse_args()
if args.data is None:
    parser.error(NO_DATA)
model = args.model or "bert-base-uncased"
paper = args.published or (model if model in TABLE_2 else None)

explainer = load(model, args.double)
methods = ["lrp", "attn_lrp", *GRADIENTS, "gradient_x_input"]
if explainer.task.gap == "end":
    methods = ["alti_logit", *methods]
table = bench(
    explainer,
    Source(args.data, limit=args.limit),
    methods,
    protocol="arras",
    output=args.output,
    erasure=False,
)

published = dict(TABLE_2[paper]) if paper else {}
if paper:
    published |= dict.fromkeys(GRADIENTS, published.pop("gradient"))
records = measured_records(args.output)
right, asked = accuracy(args.output)
marked = fmean(record["marked"] / record["tokens"] for record in records)
side_by_side(
    "Arras et al., table 2" + (f", published for {paper}" if paper else ""),
    table,
    published,
    [
        *differences(model, args.data, paper or "another one", "LGD", args.limit),
        f"the model prefers the right word in {right:.3f} of {asked:,} examples; the others are left out",
        "the paper reports the better of the two gradients, and random scores over ten runs, here one",
    ],
    path=args.output / "side_by_side.md",
)

# A gradient's length is positive everywhere, so its PTA is the share of marked tokens. The paper's value tells whether
# the dataset and the set of tokens are the same.
print("Checksum: PTA(Gradient) must equal the mean share of marked tokens, |GT| / n")
print(f"  PTA of the gradient {table.cell(GRADIENTS[0], 'per_token_accuracy').mean:.6f}, mean |GT| / n {marked:.6f}")
print("  published: 0.041 (BERT), 0.153 (GPT-2), 0.127 (Llama 3)")
if abs(table.cell(GRADIENTS[0], "per_token_accuracy").mean - marked) > 1e-6:
    raise SystemExit("the checksum fails: a gradient is 0 somewhere, or tokens are counted otherwise")
