"""Scores that were made elsewhere, as explanations that can be shown, saved and evaluated like our own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tokenlight.explain.explainer import Explainer, check_texts
from tokenlight.explain.remarks import input_notes
from tokenlight.explain.running import Job
from tokenlight.methods import METHODS
from tokenlight.results.explanation import Explanation, keep_precision
from tokenlight.text.rows import Text


def from_scores(
    explainer: Explainer,
    texts: Text | Sequence[Text],
    scores: Any,
    *,
    target: Any = None,
    foil: Any = None,
    method: str = "outside",
    signed: bool = True,
) -> Any:
    """An explanation with these scores: one for every token, special tokens included.

    A list of texts takes a list of scores and gives a list, as `explain` does; `target` and `foil` are as there.
    """
    listed = check_texts(texts)
    many = not isinstance(texts, str | tuple)
    given = list(scores) if many else [scores]
    rows = explainer.encode(listed)
    if len(given) != len(rows):
        raise ValueError(f"{len(given)} rows of scores for {len(rows)} texts")
    tensors = [keep_precision(torch.as_tensor(values)) for values in given]
    for row, tensor in zip(rows, tensors, strict=True):
        if tensor.shape != (len(row),) or not torch.isfinite(tensor).all():
            raise ValueError(f"expected {len(row)} finite scores, for the tokens {row.tokens}; found {tensor.tolist()}")
    control = METHODS["random"]  # costs the prediction only
    said: list[Explanation] = explainer.explain(listed, control.name, target=target, foil=foil, progress=False)
    changes = {"method": method, "options": {}, "signed": signed}
    made = [
        replace(e, scores=tensor, notes=tuple(input_notes(explainer.task, row, Job(control, {}), False)), **changes)
        for e, row, tensor in zip(said, rows, tensors, strict=True)
    ]
    for explanation in made:
        object.__setattr__(explanation, "explainer", explainer)  # for evaluate(), as in explain
    return made if many else made[0]
