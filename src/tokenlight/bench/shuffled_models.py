"""The weights of a model shuffled layer by layer, for several methods on texts of a data source."""

from collections.abc import Sequence
from typing import Any

from tokenlight.data.examples import MASK_MARK, Example, fill_mask
from tokenlight.data.source import Source
from tokenlight.explain.explainer import Explainer
from tokenlight.metrics.sanity import sanity
from tokenlight.results.shuffled_layers import Similarities
from tokenlight.runs.method_specs import MethodSpec
from tokenlight.text.rows import Text


def check_methods(
    explainer: Explainer, texts: Sequence[Text], specs: Sequence[MethodSpec], heads: Any = None, **settings: Any
) -> Similarities:
    """Each method's similarity to its own scores as more and more layers are shuffled."""
    found = {}
    for spec in specs:
        options = dict(spec.options)
        if heads is not None and "heads" in spec.entry.options:
            options.setdefault("heads", heads)
        found[spec.label] = sanity(explainer, texts, spec.name, progress=True, **settings, **options)
    return found


def texts_of(source: Source, explainer: Explainer) -> list[Text]:
    """The texts alone; bad rows are refused, since there is no table to count them in."""
    texts = []
    for row in source.read(explainer.task.gap):
        if not isinstance(row, Example):
            raise ValueError(f"{row.where}: {row.reason}")
        if explainer.task.gap == "inside" and MASK_MARK in row.text:
            row = fill_mask(row, explainer.tokenizer.mask_token)
        texts.append(row.text)
    return texts
