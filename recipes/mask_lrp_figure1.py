"""Mask-LRP, figure 1: how far a word stands from its syntactic head (λ), for each relation. Read it top to bottom.

    python recipes/mask_lrp_figure1.py --data PATH/TO/treebank.conllu --output results
    python recipes/mask_lrp_figure1.py --output results

With texts, spaCy parses them; a treebank holds its parses. Without --data, the statistics in the head mask are drawn.
Prints max λ, which is what a head that only counts words would reach, and so the threshold for a syntactic head.
"""

from pathlib import Path

from mask_lrp_published import find_mask
from side_by_side import NOT_AT_HAND, arguments, show

from tokenlight.cli.loading import load_model
from tokenlight.heads.count import count_heads
from tokenlight.heads.parsed_texts import parse_source
from tokenlight.masks.statistics import SYNTAX_MARGIN
from tokenlight.views.figure import save
from tokenlight.views.head_figure import distance_figure

parser = arguments(__doc__)
parser.add_argument("--heads", type=Path, help="head mask with its statistics; default: the model's own")
args = parser.parse_args()

explainer = load_model(args.model or "default", None)
if args.data:
    source = parse_source(args.data, limit=args.limit)
    counts = count_heads(explainer, source.behind, source=source.name)
else:
    counts = find_mask(args.heads, explainer).statistics
if counts is None:
    parser.error("this mask was not made from statistics: name texts or a treebank with --data")

rows = []
for i, relation in enumerate(counts.relations):
    distance, times = counts.distances[i].most_common(1)[0] if counts.distances[i] else (0, 0)
    share = times / max(counts.distances[i].total(), 1)
    rows.append([relation, str(int(counts.pairs[i])), f"{distance:+d}", f"{share:.3f}", f"{share + SYNTAX_MARGIN:.3f}"])
    rows[-1].append(NOT_AT_HAND)
args.output.mkdir(parents=True, exist_ok=True)
show(
    "Mask-LRP, figure 1",
    ["relation", "words", "most frequent distance", "max λ", f"threshold with ξ_synt {SYNTAX_MARGIN}", "published"],
    rows,
    [
        f"counted on {counts.source or 'unnamed texts'}, {counts.texts:,} texts",
        "the paper counts on its datasets, parsed with Stanza",
    ],
    args.output / "mask_lrp_figure1.md",
)
save(distance_figure(counts), args.output / "mask_lrp_figure1.png")
