"""One text before all others: if nothing can be explained, that is said at once and nothing is written."""

from itertools import islice

from tokenlight.corpus.parts import Plan, explain_part
from tokenlight.data.corpus import BadText, Corpus, Part

READ, TRIED = 1000, 10  # rows, and texts among them


def try_out(plan: Plan, corpus: Corpus) -> None:
    """Raise what is wrong with the first texts, unless one of them can be explained."""
    bad: list[BadText] = []
    tried = 0
    for row in islice(corpus.rows(), READ):
        found = explain_part(plan, Part(0, (row,)))
        if found.texts:
            return
        bad += found.bad
        tried += not isinstance(row, BadText)
        if tried == TRIED:
            break
    if not bad:
        raise ValueError(f"{corpus.name}: expected rows of data, found none")
    raise ValueError(f"none of the first {len(bad)} rows can be explained: {bad[0].where}: {bad[0].reason}")
