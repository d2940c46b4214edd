"""One text before all others: if nothing can be explained, that is said at once and nothing is written."""

from itertools import islice

from tokenlight.corpus.explaining_parts import explain_part
from tokenlight.corpus.plan import ExplainingPlan
from tokenlight.data.examples import BadRow, Example
from tokenlight.data.parts import Part
from tokenlight.data.reading_texts import read_texts
from tokenlight.data.source import Source
from tokenlight.foundation.blame import reason_to_skip

READ, TRIED = 1000, 10  # rows, and texts among them


def try_out(plan: ExplainingPlan, source: Source) -> None:
    """Raise what is wrong with the first texts, unless one of them can be explained."""
    bad: list[BadRow] = []
    unforeseen: Exception | None = None
    tried = 0
    for row in islice(read_texts(source), READ):
        try:
            found = explain_part(plan, Part(0, ((0, row),)), strict=True)
        except Exception as error:
            reason_to_skip(error)  # raises what is no row's fault
            unforeseen = unforeseen or error
        else:
            if found.texts:
                return
            bad += [one for _, one in found.bad]
        tried += isinstance(row, Example)
        if tried == TRIED:
            break
    if unforeseen is not None:
        raise unforeseen
    if not bad:
        raise ValueError(f"{source.name}: expected rows of data, found none")
    raise ValueError(f"none of the first {len(bad)} rows can be explained: {bad[0].where}: {bad[0].reason}")
