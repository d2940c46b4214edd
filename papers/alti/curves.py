"""What figures 6 and 9 share: the fall of the probability while tokens are deleted one by one."""

from tokenlight.bench.protocol import Protocol
from tokenlight.metrics.evaluate import Measure
from tokenlight.metrics.perturbation import Perturbation


def make_protocol(deleted: int) -> Protocol:
    """A point for every token up to so many; no text above 200 tokens, as in the authors' code."""
    deleting = Perturbation(how="delete", grid=tuple(range(1, deleted + 1)))
    return Protocol("alti_curves", (Measure("comprehensiveness", deleting),), longest=200)
