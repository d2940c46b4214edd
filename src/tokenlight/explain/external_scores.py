"""Scores made elsewhere, as explanations that can be shown, saved and evaluated."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.explain.explainer import Explainer
from tokenlight.explain.notes import input_notes
from tokenlight.explain.options import RunOptions
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.results.explanation import Explanation, ExplanationList, keep_precision
from tokenlight.tasks.targets import TargetSpecs
from tokenlight.text.tokenize import texts_of
from tokenlight.text.tokenized_text import Text, Texts

ScoresLike = Tensor | NDArray[Any] | Sequence[float]  # one for every token of a text


@overload
def from_scores(
    explainer: Explainer,
    texts: Text,
    scores: ScoresLike,
    *,
    target: TargetSpecs = ...,
    foil: TargetSpecs = ...,
    method: str = ...,
    signed: bool = ...,
) -> Explanation: ...


@overload
def from_scores(
    explainer: Explainer,
    texts: Texts,
    scores: Iterable[ScoresLike],
    *,
    target: TargetSpecs = ...,
    foil: TargetSpecs = ...,
    method: str = ...,
    signed: bool = ...,
) -> list[Explanation]: ...


def from_scores(
    explainer: Explainer,
    texts: Text | Texts,
    scores: ScoresLike | Iterable[ScoresLike],
    *,
    target: TargetSpecs = None,
    foil: TargetSpecs = None,
    method: str = "outside",
    signed: bool = True,
) -> Explanation | list[Explanation]:
    """An explanation with these scores: one for every token, special tokens included.

    A list of texts takes a list of scores and gives a list, as `explain` does; `target` and `foil` are as there.
    """
    listed, single = texts_of(texts)
    given: list[Any] = [scores] if single else list(scores)
    tokenized_texts = explainer.encode(listed)
    if len(given) != len(tokenized_texts):
        raise RefusedValue(f"{len(given)} rows of scores for {len(tokenized_texts)} texts")
    if not isinstance(method, str):
        raise RefusedType(f"method is a name for these scores, found {type(method).__name__}: {method!r}")
    tensors = [read_scores(values) for values in given]
    for tokenized_text, tensor in zip(tokenized_texts, tensors, strict=True):
        if tensor.shape != (len(tokenized_text),) or not torch.isfinite(tensor).all():
            raise RefusedValue(
                f"expected {len(tokenized_text)} finite scores, for the tokens "
                f"{tokenized_text.tokens}; found {tensor.tolist()}"
            )
        if not signed and bool((tensor < 0).any()):
            raise RefusedValue(f"signed=False says that no score is negative; found {tensor.tolist()}")
    control = MethodConfig(METHODS["random"], {})  # which takes one forward pass
    random_explanations = explainer.explain_tokenized(
        tokenized_texts, {method: control}, target=target, foil=foil, run_options=RunOptions(progress=False)
    )[method]
    changes: dict[str, Any] = {"method": method, "options": {}, "signed": signed}
    known = METHODS.get(method)  # the scores may be those of another implementation of a method
    changes |= {"method_title": known.title if known else "", "method_caution": known.caution if known else ""}
    explanations = ExplanationList(
        replace(e, scores=tensor, notes=tuple(input_notes(explainer.task, tokenized_text, control, False)), **changes)
        for e, tokenized_text, tensor in zip(random_explanations, tokenized_texts, tensors, strict=True)
    )
    return explanations[0] if single else explanations


def read_scores(values: Any) -> Tensor:
    """As results keep them."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(values).__name__
        raise RefusedType(f"scores are numbers, one for each token of a text; found {kind}: {error}") from error
    if tensor.is_complex():
        raise RefusedType(f"scores are real numbers; found {tensor.dtype}")
    return keep_precision(tensor)
