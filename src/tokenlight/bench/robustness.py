"""Similarity of explanations between models of different seeds, and under shuffled weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from statistics import fmean
from typing import Any

from tokenlight.bench.cases import with_own_mask
from tokenlight.common.errors import RefusedValue
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Example
from tokenlight.data.read import read_examples
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.running import RunOptions
from tokenlight.heads.mask import HeadsLike
from tokenlight.metrics import metrics_between
from tokenlight.metrics.evaluate import Measure, evaluate_scores
from tokenlight.metrics.sanity import sanity
from tokenlight.results.explanation import Explanation
from tokenlight.results.tables import Similarities
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.text.tokenize import texts_of
from tokenlight.text.tokenized_text import Text

Explained = Mapping[str, Sequence[Explanation]]  # of one model: method -> text


@dataclass(frozen=True)
class Likeness:
    """The mean over the texts on which two models predict the same class."""

    pair: tuple[int, int]  # numbers of the models
    method: str
    metric: str
    mean: float
    texts: int


def robustness(
    explainers: Sequence[Explainer],
    texts: Sequence[Text],
    methods: Sequence[str | MethodSpec],
    metrics: Sequence[str | Measure] | None = None,
    *,
    progress: bool = True,
) -> list[Likeness]:
    """For every ordered pair of models, each method and metric; by default the metrics that compare models."""
    if len(explainers) < 2:
        raise RefusedValue(f"robustness compares two models or more, found {len(explainers)}")
    (listed, _), specs = texts_of(texts), [MethodSpec.parse(one) for one in methods]
    measures = [one if isinstance(one, Measure) else Measure(one) for one in metrics or metrics_between("models")]
    explained = [
        e.explain_configs(
            listed,
            {spec.label: spec.method_config(e.inner, seed=i) for spec in specs},
            run_options=RunOptions(progress=progress),
        )
        for i, e in enumerate(explainers)
    ]
    found = []
    for one, two in permutations(range(len(explainers)), 2):
        shared = [i for i in range(len(listed)) if agree(explained[one], explained[two], i)]
        if not shared:
            raise RefusedValue(f"models {one} and {two} predict the same class for none of the {len(listed)} texts")
        for spec in specs:
            for measure in measures:
                pairs = [(explained[one][spec.label][i], explained[two][spec.label][i]) for i in shared]
                mean = fmean(evaluate_scores(measure, first, second) for first, second in pairs)
                found.append(Likeness((one, two), spec.label, measure.label, mean, len(shared)))
    return found


def agree(one: Explained, two: Explained, text: int) -> bool:
    """Whether two models predict the same for a text."""
    first, second = (next(iter(explained.values()))[text] for explained in (one, two))
    return first.prediction == second.prediction


def likeness_of(
    explained: Sequence[Explained], text: int, measures: Sequence[Measure]
) -> tuple[int, dict[str, dict[str, float]]]:
    """How many pairs of models agree on a text; {method: {metric: mean over these pairs}}.

    The metrics are the same both ways round, so each pair counts once.
    """
    pairs = [(one, two) for one, two in combinations(explained, 2) if agree(one, two, text)]
    if not pairs or not measures:
        return len(pairs), {}
    return len(pairs), {
        method: {
            m.label: fmean(evaluate_scores(m, one[method][text], two[method][text]) for one, two in pairs)
            for m in measures
        }
        for method in explained[0]
    }


def check_methods(
    explainer: Explainer, texts: Sequence[Text], specs: Sequence[MethodSpec], heads: HeadsLike = None, **settings: Any
) -> Similarities:
    """Each method's similarity to its own scores as more and more layers are shuffled."""
    found = {}
    for spec in specs:
        options = dict(spec.options)
        if heads is not None and "heads" in spec.entry.options:
            options.setdefault("heads", heads)
        found[spec.label] = sanity(explainer, texts, spec.name, progress=True, **settings, **options)
    return found


def source_texts(source: DataSource, explainer: Explainer) -> list[Text]:
    """The texts alone; bad rows are refused, since there is no table to count them in."""
    texts = []
    for row in read_examples(source, explainer.task.gap):
        if not isinstance(row, Example):
            raise RefusedValue(f"{row.where}: {row.reason}")
        texts.append(with_own_mask(explainer, row).text)
    return texts
