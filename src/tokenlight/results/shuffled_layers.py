"""How alike a method's scores stay while the model's layers are shuffled one after another."""

from collections.abc import Mapping

Similarities = Mapping[str, list[tuple[str, float]]]  # method -> (layer, similarity), from the head down
