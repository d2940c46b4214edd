"""Arras et al., table 3: how often six language models prefer the right verb form, and how large they are.

python -m papers.arras.table3 --dataset bert-base --data PATH/TO/lgd_dataset.tsv
python -m papers.arras.table3 --small
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import tokenlight as tl
from papers.arras.agreement import agreement_parser, agreement_runs, annotated, data_remarks, load, sort_cases
from papers.arras.facts import MODELS, PAPER, TABLE_3, TOKENIZERS
from papers.options import Run
from papers.tables import Comparison, finish, format_published
from tokenlight.bench.presets import ARRAS

SCRIPT = "table3"
ALL = replace(ARRAS, only_right=False)


def main(arguments: Sequence[str] | None = None) -> None:
    options = agreement_parser(__doc__, list(MODELS)).parse_args(arguments)
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision)
        right, left_out = ask_model(explainer, annotated(run, options.spacy))
        measured = [sum(right) / len(right), *sizes(explainer)]
        remarks = [
            f"{len(right):,} sentences suit the tokenizer, {sum(left_out.values()):,} do not",
            *(f"left out {count:,}: {reason}" for reason, count in left_out.most_common()),
            *run.differences,
            *data_remarks(run, options.spacy),
        ]
        finish(make_comparison(run, explainer, measured, remarks), PAPER, SCRIPT, run, options.record)


def ask_model(explainer: tl.Explainer, source: tl.DataSource) -> tuple[list[bool], Counter[str]]:
    """For every sentence that suits the tokenizer whether the model prefers the right form; why others do not suit."""
    right: list[bool] = []
    left_out: Counter[str] = Counter()
    for cases, others in sort_cases(explainer, source, ALL):
        right += [case.record["right"] for case in cases]
        left_out.update(record.get("bad") or record["set_aside"] for record in others)
    if not right:
        raise ValueError(f"no sentence suits the tokenizer: {dict(left_out)}")
    return right, left_out


def sizes(explainer: tl.Explainer) -> list[float]:
    config = explainer.model.config
    millions = sum(parameter.numel() for parameter in explainer.model.parameters()) / 1e6
    whole = (config.num_hidden_layers, config.num_attention_heads, config.hidden_size, config.vocab_size)
    return [millions, *whole]


def make_comparison(run: Run, explainer: tl.Explainer, measured: Sequence[float], remarks: list[str]) -> Comparison:
    published = TABLE_3.rows[MODELS[run.name]]
    rows = [
        [name, f"{here:.5g}" if isinstance(here, float) else f"{here:,}", format_published(there)]
        for name, here, there in zip(TABLE_3.columns, measured, published, strict=True)
    ]
    family = next(name for start, name in TOKENIZERS.items() if run.name.startswith(start))
    rows.append(["tokenizer", type(explainer.tokenizer.backend_tokenizer.model).__name__, family])
    return Comparison(f"Arras et al., table 3, {MODELS[run.name]}", ["", "measured", "published"], rows, remarks)


if __name__ == "__main__":
    main()
