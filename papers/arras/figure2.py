"""Arras et al., figure 2: heatmaps of five methods on the sentences with the highest difference of the two logits.

python -m papers.arras.figure2 --data PATH/TO/lgd_dataset.tsv
python -m papers.arras.figure2 --small
"""

from collections.abc import Sequence

import tokenlight as tl
from papers.arras.agreement import (
    agreement_parser,
    agreement_runs,
    annotated,
    explain_cases,
    load,
    paper_methods,
    sort_cases,
)
from papers.arras.facts import MODELS, TITLES
from papers.arras.heatmaps import draw_heatmaps, heatmaps_of, save_for_docs
from papers.page import DOCS
from tokenlight.bench.cases import Case
from tokenlight.bench.presets import ARRAS
from tokenlight.results.explanation import Explanation
from tokenlight.views.drawing import save

SCRIPT = "figure2"
PAPERS_MODEL = "llama-1b"
SENTENCES = 5


def main(arguments: Sequence[str] | None = None) -> None:
    options = agreement_parser(__doc__, list(MODELS)).parse_args(arguments)
    options.dataset = options.dataset or [PAPERS_MODEL]
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision)
        ranked = highest_differences(explainer, annotated(run, options.spacy))
        groups = []
        for rank, (difference, case) in enumerate(ranked, 1):
            target, foil = (str(form).strip() for form in (case.draft.example.target, case.draft.example.foil))
            heading = f"{rank}. {target} − {foil}: {difference:.2f} (sentence {case.draft.example.id})"
            print(heading)
            groups.append((heading, heatmaps_of(case, explain_case(explainer, case), {})))
        run.folder.mkdir(parents=True, exist_ok=True)
        figure = draw_heatmaps(groups)
        save(figure, run.folder / "figure2.png")
        if options.record:
            save_for_docs(figure, DOCS / f"arras-{SCRIPT}-{run.name}.png")


def highest_differences(explainer: tl.Explainer, source: tl.DataSource) -> list[tuple[float, Case]]:
    """The cases with the highest differences among those that the model gets right, highest first."""
    best: list[tuple[float, Case]] = []
    for cases, _ in sort_cases(explainer, source, ARRAS):
        if cases:
            explained = explain_cases(
                explainer, cases, "random"
            )  # scores of tokens are not needed, only the difference
            best += [(explanation.score, case) for explanation, case in zip(explained, cases, strict=True)]
            best = sorted(best, key=lambda pair: -pair[0])[:SENTENCES]
    return best


def explain_case(explainer: tl.Explainer, case: Case) -> dict[str, Explanation]:
    """Every method of the paper by its title."""
    return {TITLES[method]: explain_cases(explainer, [case], method)[0] for method in paper_methods(explainer)}


if __name__ == "__main__":
    main()
