"""The weights of a model shuffled layer by layer, for several methods on texts of a data source."""

from collections.abc import Sequence
from typing import Any

from tokenlight.bench.cases import with_own_mask
from tokenlight.data.examples import Example
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.source import DataSource
from tokenlight.explain.explainer import Explainer
from tokenlight.masks.choosing import HeadsLike
from tokenlight.metrics.sanity import sanity
from tokenlight.results.shuffled_layers import Similarities
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.text.rows import Text


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


def texts_of(source: DataSource, explainer: Explainer) -> list[Text]:
    """The texts alone; bad rows are refused, since there is no table to count them in."""
    texts = []
    for row in read_examples(source, explainer.task.gap):
        if not isinstance(row, Example):
            raise ValueError(f"{row.where}: {row.reason}")
        texts.append(with_own_mask(explainer, row).text)
    return texts
