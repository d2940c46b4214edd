"""Mask-LRP, table 2: Precision@20 in question answering, for BERT, GPT-2 and RoBERTa on SQuAD 1 and 2.

python -m papers.mask_lrp.table2 --dataset squad1-bert
python -m papers.mask_lrp.table2 --small
python -m papers.mask_lrp.table2 --dataset squad1-bert --released --sample 500

The release passes no head mask in question answering. Here the method runs with a mask, and without one beside it.
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.mask_lrp.facts import BASELINES, PAPER, QUESTIONS, TABLE_2
from papers.mask_lrp.masks import VARIANTS, add_mask_options, find_masks
from papers.mask_lrp.methods import TRANS_ATT, add_method_options, by_label, choose_protocol, masked, ours, titles
from papers.mask_lrp.small_runs import SMALL
from papers.options import choose_runs, make_parser
from papers.tables import compare, finish
from tokenlight.runs.method_specs import MethodSpec

SCRIPT = "table2"
WITHOUT_MASK = "Ours without a mask (as released: TransAtt)"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = add_method_options(add_mask_options(make_parser(__doc__, PAPER, list(QUESTIONS))))
    options = parser.parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load("question-answering")
        masks = find_masks(run, explainer, options)
        methods: list[str | MethodSpec] = [BASELINES[theirs] for theirs in TABLE_2.rows if theirs in BASELINES]
        methods += [
            masked(ours(variant), masks.of[variant], variant, options.empty) for variant in options.variant or VARIANTS
        ]
        protocol = choose_protocol(run.name, options.released)
        table = tl.benchmark(
            explainer,
            run.source,
            [*methods, TRANS_ATT],
            protocol=protocol,
            output=run.folder / protocol,
            erasure=False,
        )
        column = TABLE_2.column(QUESTIONS[run.name])
        published = by_label({theirs: [number] for theirs, number in column.items()}) | {TRANS_ATT: [column["Ours"]]}
        heading = f"Mask-LRP, table 2, {QUESTIONS[run.name]}"
        names = titles() | {TRANS_ATT: WITHOUT_MASK}
        comparison = compare(heading, run, table, published, masks.remarks, titles=names)
        finish(comparison, PAPER, SCRIPT, run, options.record)


if __name__ == "__main__":
    main()
