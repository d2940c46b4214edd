"""One text before all others: if nothing can be explained, that is said at once and nothing is written."""

from itertools import islice

from tokenlight.corpus.explaining_parts import explain_chunk, make_drafts
from tokenlight.corpus.plan import ExplainingPlan
from tokenlight.data.examples import BadRow
from tokenlight.data.parts import Chunk
from tokenlight.data.reading_texts import read_texts
from tokenlight.data.source import DataSource
from tokenlight.foundation.blame import in_own_code, reason_to_skip, refuse_own_code

READ, TRIED = 1000, 10  # rows, and those among them on which the model runs


def try_out(plan: ExplainingPlan, source: DataSource) -> None:
    """Raise what is wrong with the first texts, unless one of them can be explained."""
    bad: list[BadRow] = []
    own: list[str] = []
    unforeseen: Exception | None = None
    tried = 0
    for row in islice(read_texts(source), READ):
        part = Chunk(0, ((0, row),))
        counts = True  # unless nothing but the row is wrong, which is found without the model
        try:
            drafts, reasons = make_drafts(plan, part, strict=True)
            counts = bool(drafts)
            if drafts:
                explained = explain_chunk(plan, part, strict=True)
                if explained.texts:
                    return
                reasons = explained.bad
            bad += [reason for _, reason in reasons]
        except Exception as error:
            reason = reason_to_skip(error)  # raises what is no row's fault
            own += in_own_code([reason])
            unforeseen = unforeseen or error
        tried += counts
        if tried == TRIED:
            break
    if own:
        raise refuse_own_code(own) from unforeseen
    if unforeseen is not None:
        raise unforeseen
    if not bad:
        raise ValueError(f"{source.name}: expected rows of data, found none")
    raise ValueError(f"none of the first {len(bad)} rows can be explained: {bad[0].where}: {bad[0].reason}")
