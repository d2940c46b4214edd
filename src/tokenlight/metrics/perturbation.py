"""Perturbations of an input: in which order units are removed, how many at each point, and what replaces them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.common.option_values import RemovalName
from tokenlight.metrics.ranking import check_scores, order, round_share_up
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import classifies, embedding_rows, padding_id
from tokenlight.tasks import task_of_class
from tokenlight.text.batch import has_embedding, refuse_unembedded_role
from tokenlight.text.tokenized_text import TokenizedText, Units, check_units, is_whole, random_sets

# Shares of the text, so that long and short texts have equal weight, up to 1, where all orders give the same input.
TENTHS = tuple(i / 10 for i in range(1, 11))
TWENTIETHS = tuple(i / 20 for i in range(1, 21))
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # DeYoung et al. 2020
ALTI_BINS = (0.0, 0.05, 0.1, 0.2, 0.5)  # B of Ferrando et al. 2022, eq. 12 and 13
TENTHS_FROM_0 = (0.0, *TENTHS)  # Qiang et al. 2022, eq. 13
NINTHS = tuple(i / 9 for i in range(10))  # the AttCAT and Mask-LRP releases: linspace(0, 1, 10)


Grid = tuple[float, ...] | tuple[int, ...] | None
FLAG = (False, True)
CHOICES: dict[str, tuple[Any, ...]] = {  # allowed values of the settings that are words or booleans
    "share_of": ("eligible", "all"),
    "rounding": ("up", "half_even"),
    "eligible": ("words", "all"),
    "keep": ("rest", "top"),
    **dict.fromkeys(("distinct", "absolute", "empty", "skip_last", "zero_types"), FLAG),
}


@dataclass(frozen=True)
class Perturbation:
    """How units are removed. The defaults are the clean definition; the other settings reproduce published code.

    `removal` is "delete", or what replaces removed tokens: "mask", "pad" or a token id. With None, `fit` decides: the
    mask token if the vocabulary has one, else the padding token, else deletion; for models that read from left to right
    (causal LMs, decoder classifiers), deletion. Deleting shifts the tokens that follow; replacing shifts nothing, but
    the model attends to the replacement. All tokens of a unit are removed together; the score of a unit is the sum over
    its tokens.
    """

    removal: RemovalName | int | None = None
    grid: Grid = TENTHS  # shares, or numbers of units; None: unit by unit
    units: Units = "tokens"  # what is removed as a whole
    ablations: int = 0  # instead of the grid, this many random sets: each unit is kept with probability 1/2
    seed: int = 0  # of the random sets
    share_of: Literal["eligible", "all"] = "eligible"  # "all": shares count special tokens too (AttCAT, Mask-LRP)
    rounding: Literal["up", "half_even"] = "up"  # "up": ALTI; "half_even": AttCAT, Mask-LRP
    distinct: bool = False  # AttCAT, Mask-LRP: 0 and repeated numbers are left out
    absolute: bool = False  # order by |score|
    eligible: Literal["words", "all"] = "words"  # "all": special tokens are removed too (AttCAT on QQP and MNLI)
    keep: Literal["rest", "top"] = "rest"  # "rest": the top k are removed; "top": only the top k are kept
    empty: bool = False  # with keep="top": the first point has no eligible token
    skip_last: bool = False  # AttCAT, Mask-LRP: the token with the lowest score, special or not, is never removed
    zero_types: bool = False  # AttCAT, Mask-LRP: all segment ids are 0, also in the whole input

    def __post_init__(self) -> None:
        check_choices(self)
        if isinstance(self.grid, list):
            object.__setattr__(self, "grid", tuple(self.grid))
        if is_whole(self.removal):
            object.__setattr__(self, "removal", int(self.removal))  # numpy's integers cannot be stored as JSON
        kinds = {type(k) for k in self.grid or ()}
        if self.grid is not None and kinds not in ({int}, {float}):
            raise RefusedValue(
                f"a grid has either shares (0.1, 1.0) or numbers of tokens (1, 2), not both; found {self.grid}"
            )
        if any(not k >= 0 or (isinstance(k, float) and k > 1) for k in self.grid or ()):
            raise RefusedValue(f"shares are between 0.0 and 1.0, numbers of tokens 0 or more; found {self.grid}")
        check_units(self.units)
        if self.units != "tokens" and (self.skip_last or self.share_of == "all" or self.eligible == "all"):
            raise RefusedValue("skip_last, share_of='all' and eligible='all' require units='tokens'")
        if self.empty and self.keep == "rest":
            raise RefusedValue("empty=True requires keep='top'; with keep='rest' the first point is the whole input")

    def counts(self, eligible: int, total: int) -> list[int]:
        """How many units are removed (or kept) at each point, for a text of `total` tokens with `eligible` units."""
        base = total if self.share_of == "all" else eligible
        if self.grid is None:
            counts = list(range(1, eligible + 1))
        elif self.rounding == "up":
            counts = [k if isinstance(k, int) else round_share_up(base, k) for k in self.grid]
        else:
            counts = [k if isinstance(k, int) else round(k * base) for k in self.grid]
        if self.distinct:
            counts = sorted(set(counts) - {0})
        return [0] * self.empty + [min(k, eligible) for k in counts]

    def fit(self, model: PreTrainedModel, tokenizer: Any) -> "Perturbation":
        """A copy with `removal` resolved for this model: "delete", or the id of the replacement.

        A token that the model cannot embed is refused, and so is padding if the model finds the end of a text by it.
        """
        reads_by_padding = classifies(model) and behavior_of(model).reads_last
        causal = task_of_class(type(model).__name__).generates
        rows = embedding_rows(model)
        by_role = {"mask": tokenizer.mask_token_id, "pad": tokenizer.pad_token_id}
        ids = {role: token_id for role, token_id in by_role.items() if has_embedding(token_id, rows)}
        removal = self.removal
        if removal is None:
            removal = "delete" if causal or reads_by_padding or not ids else "mask" if "mask" in ids else "pad"
        if removal == "delete":
            return replace(self, removal=removal)
        if isinstance(removal, str) and removal not in ids:
            if by_role[removal] is not None:
                refuse_unembedded_role(removal, by_role[removal])
            raise RefusedValue(
                f"the vocabulary has no {removal} token: use removal='delete', or the id of another token"
            )
        token_id = ids[removal] if isinstance(removal, str) else removal
        if not has_embedding(token_id, rows):
            raise RefusedValue(f"removal={token_id}: the model has embeddings for the token ids 0 to {rows - 1}")
        if reads_by_padding and token_id == padding_id(model):
            raise RefusedValue(
                "this classifier finds the end of a text by the padding token, which therefore cannot replace tokens: "
                "use removal='delete', or another token"
            )
        return replace(self, removal=token_id)


def check_choices(perturbation: Perturbation) -> None:
    """Refuse values that are not among the choices; the code that reads them would treat them as one of these."""
    for name, choices in CHOICES.items():
        value = getattr(perturbation, name)
        if not isinstance(value, str | bool | None) or value not in choices:
            raise RefusedValue(f"{name} is one of {', '.join(map(repr, choices))}; found {value!r}")
    removal = perturbation.removal
    if not (removal is None or is_whole(removal) or (isinstance(removal, str) and removal in get_args(RemovalName))):
        names = ", ".join(map(repr, get_args(RemovalName)))
        raise RefusedValue(f"removal is one of {names}, a token id or None; found {removal!r}")
    for name in ("ablations", "seed"):
        value = getattr(perturbation, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or (name == "ablations" and value < 0):
            raise RefusedValue(f"{name} is a whole number{', 0 or more' * (name == 'ablations')}; found {value!r}")


@dataclass(frozen=True)
class PerturbedText:
    """A tokenized text after removal of tokens."""

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None
    kept: tuple[int, ...]  # for each token, its index in the whole text
    original_ids: tuple[int, ...]  # for each token, its id in the whole text, which determines position ids
    share: float  # of the eligible units: removed, or kept with keep="top"
    left: float = 0.0  # the sum of the scores of the units that are left


def removable_units(
    tokenized_text: TokenizedText, perturbation: Perturbation, protected: Sequence[int] = ()
) -> list[list[int]]:
    """The tokens of each unit that can be removed, without `protected` ones: those whose output is read."""
    units = (
        [[i] for i in range(len(tokenized_text))]
        if perturbation.eligible == "all"
        else tokenized_text.units(perturbation.units)
    )
    unprotected = [[i for i in unit if i not in protected] for unit in units]
    return [unit for unit in unprotected if unit]


def perturb(
    tokenized_text: TokenizedText, scores: Tensor, perturbation: Perturbation, protected: Sequence[int] = ()
) -> list[PerturbedText]:
    """The whole text, then the text at each point of the grid or with each random set removed.

    `perturbation` is the result of `Perturbation.fit`. A text of which no unit can be removed is refused.
    """
    if len(scores) != len(tokenized_text):
        raise RefusedValue(f"{len(scores)} scores for a text of {len(tokenized_text)} tokens")
    units = removable_units(tokenized_text, perturbation, protected)
    if not units:
        raise RefusedValue(f"no {perturbation.units[:-1]} of {tokenized_text.text!r} can be removed")
    values = check_scores(scores).tolist()
    unit_scores = [sum(values[i] for i in unit) for unit in units]
    perturbed = []
    for removed, share in [
        (set[int](), 1.0 if perturbation.keep == "top" else 0.0),
        *select_removed_units(tokenized_text, scores, units, unit_scores, perturbation),
    ]:
        tokens = sorted(token for unit in removed for token in units[unit])
        left = sum(score for unit, score in enumerate(unit_scores) if unit not in removed)
        perturbed.append(replace(remove_tokens(tokenized_text, tokens, perturbation, share), left=left))
    return perturbed


def select_removed_units(
    tokenized_text: TokenizedText,
    scores: Tensor,
    units: Sequence[Sequence[int]],
    unit_scores: Sequence[float],
    perturbation: Perturbation,
) -> list[tuple[set[int], float]]:
    """For each point, the indices of the removed units, and the share of units removed (or kept, with keep="top")."""
    all_units = set(range(len(units)))
    if perturbation.ablations:
        kept_sets = random_sets(len(units), perturbation.ablations, perturbation.seed)
        removed_sets = [set((~kept).nonzero()[:, 0].tolist()) for kept in kept_sets]
        return [(removed, len(removed) / len(units)) for removed in removed_sets]
    ranking = order(torch.tensor(unit_scores, dtype=torch.float64), absolute=perturbation.absolute)
    if perturbation.skip_last:
        last = order(scores, absolute=perturbation.absolute)[-1]
        ranking = [unit for unit in ranking if last not in units[unit]]
    removed_by_point = []
    for k in perturbation.counts(len(units), len(tokenized_text)):
        top = set(ranking[:k])
        removed_by_point.append((all_units - top if perturbation.keep == "top" else top, len(top) / len(units)))
    return removed_by_point


def remove_tokens(
    tokenized_text: TokenizedText, indices: Sequence[int], perturbation: Perturbation, share: float
) -> PerturbedText:
    """The text with these tokens deleted or replaced, for a perturbation that `Perturbation.fit` returned."""
    replacement = None if perturbation.removal == "delete" else perturbation.removal
    if isinstance(replacement, str) or (replacement is None and perturbation.removal is None):
        raise RefusedValue("fit the perturbation to the model first: perturbation.fit(model, tokenizer)")
    removed = set(indices)
    kept = tuple(i for i in range(len(tokenized_text)) if replacement is not None or i not in removed)
    ids = tuple(replacement if i in removed and replacement is not None else tokenized_text.input_ids[i] for i in kept)
    types = None
    if tokenized_text.token_type_ids is not None:
        types = tuple(0 if perturbation.zero_types else tokenized_text.token_type_ids[i] for i in kept)
    return PerturbedText(ids, types, kept, tuple(tokenized_text.input_ids[i] for i in kept), share)
