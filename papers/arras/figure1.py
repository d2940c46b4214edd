"""Arras et al., figure 1: the evaluation on one sentence. Predict two verb forms, explain their difference, evaluate.

python -m papers.arras.figure1 --dataset bert-base --data PATH/TO/lgd_dataset.tsv
python -m papers.arras.figure1 --small
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.arras.agreement import agreement_parser, agreement_runs, annotated, load, sort_cases
from papers.arras.facts import METRICS, MODELS, PAPER
from papers.arras.figure2 import explain_case
from papers.arras.heatmaps import draw_heatmaps, heatmaps_of, save_for_docs
from papers.page import DOCS
from papers.tables import Comparison, finish
from tokenlight.bench.cases import Case
from tokenlight.bench.presets import ARRAS
from tokenlight.views.drawing import save

SCRIPT = "figure1"


def main(arguments: Sequence[str] | None = None) -> None:
    options = agreement_parser(__doc__, list(MODELS)).parse_args(arguments)
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision)
        case = first_right(explainer, annotated(run, options.spacy))
        explained = explain_case(explainer, case)
        assert case.draft.marks is not None, "the protocol has cases with a subject alone"
        evaluated = tl.evaluate(
            explainer, list(explained.values()), ARRAS.measures, marks=[case.draft.marks] * len(explained)
        )
        rows = [
            [title, f"{float(explanation.scores.sum()):.3f}", *(f"{value:.3f}" for value in values.values())]
            for (title, explanation), values in zip(explained.items(), evaluated, strict=True)
        ]
        difference = next(iter(explained.values())).score
        target, foil = (str(form).strip() for form in (case.draft.example.target, case.draft.example.foil))
        remark = f"explained is {target} − {foil} = {difference:.3f} in: {case.draft.tokenized_text.text}"
        head = ["method", "sum of scores", *METRICS]
        heading = f"Arras et al., figure 1, {MODELS[run.name]}"
        finish(Comparison(heading, head, rows, [remark, *run.differences]), PAPER, SCRIPT, run, options.record)
        notes = {row[0]: ", ".join(map(" ".join, zip(METRICS, row[2:], strict=True))) for row in rows}
        figure = draw_heatmaps([(f"{target} − {foil}: {difference:.2f}", heatmaps_of(case, explained, notes))])
        save(figure, run.folder / "figure1.png")
        if options.record:
            save_for_docs(figure, DOCS / f"arras-{SCRIPT}-{run.name}.png")


def first_right(explainer: tl.Explainer, source: tl.DataSource) -> Case:
    """The first case that the model gets right."""
    for cases, _ in sort_cases(explainer, source, ARRAS):
        if cases:
            return min(cases, key=lambda case: case.draft.number)
    raise ValueError("the model gets no sentence right")


if __name__ == "__main__":
    main()
