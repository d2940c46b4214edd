"""Which tokens made a Transformer say that, by every published way of asking, and which of those ways can you trust?"""

from tokenlight.bench.benchmark import bench as benchmark
from tokenlight.calibration.calibrate import calibrate
from tokenlight.corpus.explain_dataset import explain_dataset
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.data.source import Source
from tokenlight.explain.attribute import attribute
from tokenlight.explain.explainer import Explainer, load
from tokenlight.foundation.errors import UnsupportedModelError
from tokenlight.masks.head_mask import HeadMask
from tokenlight.methods import METHODS
from tokenlight.metrics import METRICS
from tokenlight.metrics.evaluate import evaluate
from tokenlight.results.explanation import Explanation, Word
from tokenlight.runs.workers import Workers
from tokenlight.views.terminal import show

__all__ = [
    "METHODS",
    "METRICS",
    "CorpusSettings",
    "Explainer",
    "Explanation",
    "HeadMask",
    "Source",
    "UnsupportedModelError",
    "Word",
    "Workers",
    "attribute",
    "benchmark",
    "calibrate",
    "evaluate",
    "explain_dataset",
    "load",
    "show",
]
__version__ = "0.1.0"
