"""Which tokens made a Transformer say that, by every published way of asking."""

from tokenlight.errors import UnsupportedModelError
from tokenlight.explainer import Explainer, load
from tokenlight.explanation import Explanation, Word
from tokenlight.methods import METHODS
from tokenlight.tensors import attribute
from tokenlight.views.terminal import show

__all__ = ["METHODS", "Explainer", "Explanation", "UnsupportedModelError", "Word", "attribute", "load", "show"]
__version__ = "0.1.0"
