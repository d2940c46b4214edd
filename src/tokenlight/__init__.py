"""Which tokens made a Transformer say that, by every published way of asking."""

from tokenlight.errors import UnsupportedModelError
from tokenlight.explainer import Explainer, attribute, load
from tokenlight.explanation import Explanation, Word
from tokenlight.methods import METHODS

__all__ = ["METHODS", "Explainer", "Explanation", "UnsupportedModelError", "Word", "attribute", "load"]
__version__ = "0.1.0"
