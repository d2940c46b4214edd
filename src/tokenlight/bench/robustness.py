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
from tokenlight.explain.options import RunOptions
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
class Similarity:
    """The mean similarity of two models' explanations, over the texts for which they predict the same class."""

    pair: tuple[int, int]  # indices of the models
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
) -> list[Similarity]:
    """Similarities for every ordered pair of models, method and metric; by default for metrics between models."""
    if len(explainers) < 2:
        raise RefusedValue(f"robustness compares two models or more, found {len(explainers)}")
    (listed, _), specs = texts_of(texts), [MethodSpec.parse(method) for method in methods]
    measures = [
        metric if isinstance(metric, Measure) else Measure(metric) for metric in metrics or metrics_between("models")
    ]
    explained = [
        e.explain_configs(
            listed,
            {spec.label: spec.method_config(e.inner, seed=i) for spec in specs},
            run_options=RunOptions(progress=progress),
        )
        for i, e in enumerate(explainers)
    ]
    similarities = []
    for first, second in permutations(range(len(explainers)), 2):
        shared = [i for i in range(len(listed)) if agree(explained[first], explained[second], i)]
        if not shared:
            raise RefusedValue(
                f"models {first} and {second} predict the same class for none of the {len(listed)} texts"
            )
        for spec in specs:
            for measure in measures:
                pairs = [(explained[first][spec.label][i], explained[second][spec.label][i]) for i in shared]
                mean = fmean(evaluate_scores(measure, *pair) for pair in pairs)
                similarities.append(Similarity((first, second), spec.label, measure.label, mean, len(shared)))
    return similarities


def agree(first: Explained, second: Explained, text: int) -> bool:
    """Whether two models predict the same for a text."""
    first_explanation, second_explanation = (next(iter(explained.values()))[text] for explained in (first, second))
    return first_explanation.prediction == second_explanation.prediction


def similarities_of_seeds(
    explained: Sequence[Explained], text: int, measures: Sequence[Measure]
) -> tuple[int, dict[str, dict[str, float]]]:
    """The number of pairs of models that agree on a text, and {method: {metric: mean over these pairs}}.

    The metrics are symmetric, so each pair counts once.
    """
    pairs = [(first, second) for first, second in combinations(explained, 2) if agree(first, second, text)]
    if not pairs or not measures:
        return len(pairs), {}
    return len(pairs), {
        method: {
            measure.label: fmean(
                evaluate_scores(measure, first[method][text], second[method][text]) for first, second in pairs
            )
            for measure in measures
        }
        for method in explained[0]
    }


def check_methods(
    explainer: Explainer, texts: Sequence[Text], specs: Sequence[MethodSpec], heads: HeadsLike = None, **settings: Any
) -> Similarities:
    """For each method, the similarity to its own scores while more and more layers are shuffled."""
    similarities = {}
    for spec in specs:
        options = dict(spec.options)
        if heads is not None and "heads" in spec.entry.options:
            options.setdefault("heads", heads)
        similarities[spec.label] = sanity(explainer, texts, spec.name, progress=True, **settings, **options)
    return similarities


def source_texts(source: DataSource, explainer: Explainer) -> list[Text]:
    """The texts of a source; bad rows are refused."""
    texts = []
    for row in read_examples(source, explainer.task.gap):
        if not isinstance(row, Example):
            raise RefusedValue(f"{row.where}: {row.reason}")
        texts.append(with_own_mask(explainer, row).text)
    return texts
