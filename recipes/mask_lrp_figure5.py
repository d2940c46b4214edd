"""Mask-LRP, figure 5: which heads follow syntax and which position, layer by layer. Read it top to bottom.

    python recipes/mask_lrp_figure5.py --output results
    python recipes/mask_lrp_figure5.py --model MODEL --heads masks.json --output results

The mask comes from `tokenlight heads MODEL TEXTS -o masks.json`; the model inside the package has its own. With --data
(texts, or a treebank) it is made here.
"""

from pathlib import Path

from mask_lrp_published import find_mask
from side_by_side import arguments

from tokenlight.cli.app import wide_console
from tokenlight.cli.loading import load_model
from tokenlight.heads.count import count_heads
from tokenlight.heads.parsed_texts import parse_source
from tokenlight.views.figure import save
from tokenlight.views.head_figure import head_figure
from tokenlight.views.head_map import head_map

parser = arguments(__doc__)
parser.add_argument("--heads", type=Path, help="head mask; default: the model's own")
args = parser.parse_args()

explainer = load_model(args.model or "default", None)
args.output.mkdir(parents=True, exist_ok=True)
if args.data:
    source = parse_source(args.data, limit=args.limit)
    mask = count_heads(explainer, source.behind, source=source.name).mask()
    mask.save(args.output / "masks.json")
else:
    mask = find_mask(args.heads, explainer)
wide_console().print(head_map(mask))
save(head_figure(mask), args.output / "mask_lrp_figure5.png")
print(f"mask_lrp_figure5.png is in {args.output}. The paper's map is of another model.")
