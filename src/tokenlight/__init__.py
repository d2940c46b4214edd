"""Which tokens made a Transformer say that, by dozens of published methods, and which of them can you trust?"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenlight.bench.benchmark import bench as benchmark
    from tokenlight.calibration.calibrate import calibrate
    from tokenlight.common.errors import UnsupportedModelError
    from tokenlight.corpus.explain_dataset import explain_dataset
    from tokenlight.corpus.settings import CorpusSettings
    from tokenlight.data.data_source import DataSource
    from tokenlight.data.examples import Example
    from tokenlight.explain.attribute_ids import attribute
    from tokenlight.explain.explainer import Explainer
    from tokenlight.explain.external_scores import from_scores
    from tokenlight.explain.load import load
    from tokenlight.explain.options import RunOptions
    from tokenlight.heads.mask import HeadMask
    from tokenlight.methods import METHODS
    from tokenlight.metrics import METRICS
    from tokenlight.metrics.evaluate import Measure, evaluate
    from tokenlight.metrics.perturbation import Perturbation
    from tokenlight.results.explained_answer import ExplainedAnswer
    from tokenlight.results.explanation import Explanation, Word
    from tokenlight.runs.workers import Workers
    from tokenlight.tasks import TASKS
    from tokenlight.views.terminal import show

__all__ = [
    "METHODS",
    "METRICS",
    "TASKS",
    "CorpusSettings",
    "DataSource",
    "Example",
    "ExplainedAnswer",
    "Explainer",
    "Explanation",
    "HeadMask",
    "Measure",
    "Perturbation",
    "RunOptions",
    "UnsupportedModelError",
    "Word",
    "Workers",
    "attribute",
    "benchmark",
    "calibrate",
    "evaluate",
    "explain_dataset",
    "from_scores",
    "load",
    "show",
]
__version__ = "0.2.0"

# The same once more, for when a name is first used: torch takes seconds to import, and `--help` needs none of it.
_PLACES = {
    "METHODS": "methods:METHODS",
    "METRICS": "metrics:METRICS",
    "TASKS": "tasks:TASKS",
    "CorpusSettings": "corpus.settings:CorpusSettings",
    "Example": "data.examples:Example",
    "ExplainedAnswer": "results.explained_answer:ExplainedAnswer",
    "Explainer": "explain.explainer:Explainer",
    "Explanation": "results.explanation:Explanation",
    "HeadMask": "heads.mask:HeadMask",
    "Measure": "metrics.evaluate:Measure",
    "Perturbation": "metrics.perturbation:Perturbation",
    "RunOptions": "explain.options:RunOptions",
    "DataSource": "data.data_source:DataSource",
    "UnsupportedModelError": "common.errors:UnsupportedModelError",
    "Word": "results.explanation:Word",
    "Workers": "runs.workers:Workers",
    "attribute": "explain.attribute_ids:attribute",
    "benchmark": "bench.benchmark:bench",
    "calibrate": "calibration.calibrate:calibrate",
    "evaluate": "metrics.evaluate:evaluate",
    "explain_dataset": "corpus.explain_dataset:explain_dataset",
    "from_scores": "explain.external_scores:from_scores",
    "load": "explain.load:load",
    "show": "views.terminal:show",
}


if not TYPE_CHECKING:  # a type checker would take every misspelled name for one that is found here

    def __getattr__(name: str) -> object:
        """A public name is imported when it is first used (PEP 562)."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, original = _PLACES[name].split(":")
        found = getattr(import_module(f"{__name__}.{module}"), original)
        globals()[name] = found  # the next use does not come here
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
