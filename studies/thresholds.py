"""How much do Mask-LRP's thresholds matter? AOPC and LOdds over ξ_synt and ξ_pos, with every head beside them.

python -m studies.thresholds --small
python -m studies.thresholds --dataset sst2
python -m studies.thresholds --dataset sst2 --model default --data PATH/TO/SST-2/dev.tsv --limit 100

A head is syntactic above max λ + ξ_synt and positional above ξ_pos; the paper has 0.1 and 0.8 (appendix C), which all
masks have in the threshold that is not varied. Other thresholds need no other counts.
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.mask_lrp import table1
from papers.mask_lrp.facts import DATASETS, PAPER
from papers.mask_lrp.masks import VARIANTS, find_counts
from papers.mask_lrp.methods import NAMES, TRANS_ATT, choose_protocol, every_head, masked, titles
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs
from papers.tables import compare, finish
from tokenlight.heads.mask import HeadMask
from tokenlight.heads.statistics import POSITION_SHARE, SYNTAX_MARGIN, HeadStatistics
from tokenlight.runs.method_specs import MethodSpec

SCRIPT = "thresholds"
MARGINS = (-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2)  # ξ_synt
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9)  # ξ_pos


def sweep(counts: HeadStatistics) -> dict[str, HeadMask]:
    """Masks by their thresholds; only the first of those with the same heads, and none without heads."""
    pairs = [(margin, POSITION_SHARE) for margin in MARGINS] + [(SYNTAX_MARGIN, share) for share in SHARES]
    masks: dict[bytes, tuple[str, HeadMask]] = {}
    for margin, share in pairs:
        mask = counts.mask(margin, share)
        label = f"ξ_synt {margin:+.1f}, ξ_pos {share:.1f} ({mask.count} of {mask.lit.numel()} heads)"
        if mask.count:
            masks.setdefault(mask.groups.numpy().tobytes(), (label, mask))
    return dict(masks.values())


def main(arguments: Sequence[str] | None = None) -> None:
    options = table1.parse(arguments, __doc__, list(DATASETS))
    if options.record:
        options.parser.error("--record is for the papers' pages; a study has none")
    options.dataset = options.dataset or ["sst2"]
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load()
        counts = find_counts(run, explainer, options)
        masks = sweep(counts) | {"every head": every_head(counts.mask())}
        methods: list[str | MethodSpec] = [TRANS_ATT]
        for variant in options.variant or VARIANTS:
            named = {f"{label}, {NAMES[variant]}": mask for label, mask in masks.items()}
            methods += [masked(label, mask, variant, options.empty) for label, mask in named.items()]
        protocol = choose_protocol(run.name, options.released)
        output = run.folder / protocol
        table = tl.benchmark(explainer, run.source, methods, protocol=protocol, output=output, erasure=False)
        heading = f"Thresholds of Mask-LRP's masks, {DATASETS[run.name]}, counted on {counts.source}"
        finish(compare(heading, run, table, {}, titles=titles()), PAPER, SCRIPT, run, record=False)


if __name__ == "__main__":
    main()
