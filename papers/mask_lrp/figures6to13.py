"""Mask-LRP, figures 6 to 13: the method's scores on a text, and how they differ from those of other methods.

python -m papers.mask_lrp.figures6to13 --dataset sst2
python -m papers.mask_lrp.figures6to13 --small
python -m papers.mask_lrp.figures6to13 --dataset sst2 --data MY-TEXTS.tsv

Takes one random text of each class that the model gets right. Green: the method gives the word more than the other
does; red and underlined: less. Each method is scaled so that its strongest word has 1.
"""

import random
from collections.abc import Mapping, Sequence

import tokenlight as tl
from papers.figures import save_figure
from papers.mask_lrp.facts import BASELINES, DATASETS, FIGURES, MODEL_CLASSES, PAPER
from papers.mask_lrp.masks import VARIANTS, add_mask_options, find_masks
from papers.mask_lrp.methods import NAMES, add_empty_option, masked
from papers.mask_lrp.small_runs import SMALL
from papers.options import Run, choose_runs, make_parser
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.results.explanation import Explanation
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.views.difference import difference, difference_page, scale_to_one, text_figure

SCRIPT = "figures6to13"
AGAINST = ("Rollout", "RawAtt", "LRP", "GAE", "AttCAT")
TRIED = 20  # texts of a class among which one is looked for that the model gets right


def draw_texts(run: Run, explainer: tl.Explainer, seed: int) -> dict[int, Example]:
    """One text of each class of the paper's figures; classes that no text has are left out."""
    examples = [row for row in read_examples(run.source, None) if isinstance(row, Example)]
    random.Random(seed).shuffle(examples)
    classes = FIGURES.get(run.name) or range(len(explainer.task.labels))
    chosen = {}
    for label in classes:
        own = [example for example in examples if example.label in (label, str(label))][:TRIED]
        predicted = explainer.explain([example.text for example in own], "raw_attention", progress=False) if own else []
        name = explainer.task.labels[MODEL_CLASSES.get(run.model, {}).get(label, label)]
        right = [example for example, text in zip(own, predicted, strict=True) if text.prediction == name]
        if own:
            chosen[label] = (right or own)[0]
    return chosen


def explain(
    texts: Sequence[Example], explainer: tl.Explainer, own: MethodSpec, against: Mapping[str, str]
) -> dict[str, list[Explanation]]:
    """Explanations of the predicted class by label of the method."""
    specs = [own, *(MethodSpec(theirs, method) for theirs, method in against.items())]
    method_configs = {spec.label: spec.method_config(explainer.inner) for spec in specs}
    return explainer.explain_configs([example.text for example in texts], method_configs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = add_empty_option(add_mask_options(make_parser(__doc__, PAPER, list(DATASETS))))
    parser.add_argument("--variant", choices=VARIANTS, default="paper", help="of the method")
    options = parser.parse_args(arguments)
    for run in choose_runs(options, SCRIPT, SMALL):
        explainer = run.load()
        mask = find_masks(run, explainer, options).of[options.variant]
        chosen = draw_texts(run, explainer, options.seed)
        own = f"Ours ({NAMES[options.variant]})"
        against = {theirs: BASELINES[theirs] for theirs in AGAINST}
        explained = explain(
            list(chosen.values()), explainer, masked(own, mask, options.variant, options.empty), against
        )
        pages = []
        for number, label in enumerate(chosen):
            ours, others = explained[own][number], {name: explained[name][number] for name in AGAINST}
            lines = {own: scale_to_one(ours)} | {f"Δ{name}": difference(ours, other) for name, other in others.items()}
            save_figure(text_figure(lines), PAPER, SCRIPT, run, options.record, part=f"class{label}")
            pages += [(ours, other) for other in others.values()]
        page = difference_page(pages, f"Mask-LRP against other methods, {DATASETS[run.name]}")
        (run.folder / f"{SCRIPT}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
