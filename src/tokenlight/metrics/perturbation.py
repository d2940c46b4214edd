"""What is removed from an input: the order of units, how many at each point, and what replaces them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.metrics.ranking import check_scores, order, share_up
from tokenlight.model.behavior_probes import behavior_of
from tokenlight.model.config import classifies, embedding_rows, padding_id
from tokenlight.tasks import task_of_class
from tokenlight.text.batch import has_embedding, refuse_unembedded_role
from tokenlight.text.tokenized_text import TokenizedText, Units, check_units, random_sets

# Shares of the text, so that long and short texts count alike, up to all of it, where every order ends alike.
TENTHS = tuple(i / 10 for i in range(1, 11))
TWENTIETHS = tuple(i / 20 for i in range(1, 21))
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # DeYoung et al. 2020
ALTI_BINS = (0.0, 0.05, 0.1, 0.2, 0.5)  # B of Ferrando et al. 2022, eq. 12 and 13
TENTHS_FROM_0 = (0.0, *TENTHS)  # Qiang et al. 2022, eq. 13
NINTHS = tuple(i / 9 for i in range(10))  # the AttCAT and Mask-LRP releases: linspace(0, 1, 10)


Grid = tuple[float, ...] | tuple[int, ...] | None
FLAG = (False, True)
CHOICES: dict[str, tuple[Any, ...]] = {  # of the settings of a perturbation that are words or switches
    "removal": ("delete", "replace", None),
    "share_of": ("eligible", "all"),
    "rounding": ("up", "half_even"),
    "eligible": ("words", "all"),
    "keep": ("rest", "top"),
    **dict.fromkeys(("distinct", "absolute", "empty", "skip_last", "zero_types"), FLAG),
}


@dataclass(frozen=True)
class Perturbation:
    """How units are taken away. The defaults are the clean definition; the other settings are what the releases do.

    With `removal=None`, `fit` decides: tokens are replaced by the mask token if the vocabulary has one, else by the
    padding
    token, else deleted; models that read from left to right (causal LMs, decoder classifiers) delete. Deleting moves
    the tokens after it; replacing moves nothing, and the model attends to the replacement. A unit is taken away as a
    whole; its score is the sum over its tokens.
    """

    removal: Literal["delete", "replace"] | None = None
    token: Literal["mask", "pad"] | int | None = None  # what replaces: by role, or a token id
    grid: Grid = TENTHS  # shares, or numbers of units; None: unit by unit
    units: Units = "tokens"  # what goes as a whole
    ablations: int = 0  # instead of the grid, this many random sets: each unit stays with probability 1/2
    seed: int = 0  # of these
    share_of: Literal["eligible", "all"] = "eligible"  # "all": shares count special tokens too (AttCAT, Mask-LRP)
    rounding: Literal["up", "half_even"] = "up"  # "up": ALTI; "half_even": AttCAT, Mask-LRP
    distinct: bool = False  # AttCAT, Mask-LRP: numbers that repeat, and 0, are left out
    absolute: bool = False  # the order goes by |score|
    eligible: Literal["words", "all"] = "words"  # "all": special tokens go too (AttCAT on QQP and MNLI)
    keep: Literal["rest", "top"] = "rest"  # the top k go, or they alone stay
    empty: bool = False  # with keep="top": a point without any eligible token comes first
    skip_last: bool = False  # AttCAT, Mask-LRP: the token of the very lowest score, special or not, is never taken
    zero_types: bool = False  # AttCAT, Mask-LRP: all segment ids are 0, in the whole input too

    def __post_init__(self) -> None:
        check_choices(self)
        if isinstance(self.grid, list):
            object.__setattr__(self, "grid", tuple(self.grid))
        kinds = {type(k) for k in self.grid or ()}
        if self.grid is not None and kinds not in ({int}, {float}):
            raise RefusedValue(
                f"a grid holds shares (0.1, 1.0) or numbers of tokens (1, 2), not both; found {self.grid}"
            )
        if any(not k >= 0 or (isinstance(k, float) and k > 1) for k in self.grid or ()):
            raise RefusedValue(f"shares go from 0.0 to 1.0 and numbers of tokens from 0 up; found {self.grid}")
        check_units(self.units)
        if self.units != "tokens" and (self.skip_last or self.share_of == "all" or self.eligible == "all"):
            raise RefusedValue("skip_last, share_of='all' and eligible='all' are for units='tokens'")
        if self.removal == "delete" and self.token is not None:
            raise RefusedValue(f"removal='delete' puts nothing in place, so token={self.token!r} has no meaning")
        if self.empty and self.keep == "rest":
            raise RefusedValue("empty=True is for keep='top'; without its top 0 tokens an input is whole")

    def counts(self, eligible: int, total: int) -> list[int]:
        """How many units are taken (or kept) at each point, of `eligible` ones in a row of `total` tokens."""
        base = total if self.share_of == "all" else eligible
        if self.grid is None:
            wanted = list(range(1, eligible + 1))
        elif self.rounding == "up":
            wanted = [k if isinstance(k, int) else share_up(base, k) for k in self.grid]
        else:
            wanted = [k if isinstance(k, int) else round(k * base) for k in self.grid]
        if self.distinct:
            wanted = sorted(set(wanted) - {0})
        return [0] * self.empty + [min(k, eligible) for k in wanted]

    def by(self, name: str) -> "Perturbation":
        """The same, with tokens deleted ("delete"), or replaced by the padding ("pad") or the mask token ("mask")."""
        if name == "delete":
            return replace(self, removal="delete", token=None)
        if name == "pad" or name == "mask":
            return replace(self, removal="replace", token=name)
        raise RefusedValue(f"tokens are taken away by 'delete', 'pad' or 'mask', found {name!r}")

    def fit(self, model: PreTrainedModel, tokenizer: Any) -> "Perturbation":
        """With how and token settled for this model; a token becomes its id."""
        reads_by_padding = classifies(model) and behavior_of(model).reads_last
        causal = task_of_class(type(model).__name__).reads_on
        named = {"mask": tokenizer.mask_token_id, "pad": tokenizer.pad_token_id}
        ids = {role: i if has_embedding(i, embedding_rows(model)) else None for role, i in named.items()}
        removal, token = self.removal, self.token
        if removal is None:
            removal = (
                "delete" if causal or reads_by_padding or not any(i is not None for i in ids.values()) else "replace"
            )
            removal = "replace" if token is not None else removal
        if removal == "delete":
            return replace(self, removal=removal)
        if token is None:
            token = "pad" if ids["mask"] is None else "mask"
        chosen = ids[token] if isinstance(token, str) else token
        if isinstance(token, str) and chosen is None and named[token] is not None:
            refuse_unembedded_role(token, named[token])
        if isinstance(token, int) and not has_embedding(token, embedding_rows(model)):
            raise RefusedValue(f"token={token} has no embedding: the model's are for 0 to {embedding_rows(model) - 1}")
        if chosen is None:
            raise RefusedValue(
                f"the vocabulary has no {token} token: use removal='delete', or give the id of another token"
            )
        if reads_by_padding and chosen == padding_id(model):
            raise RefusedValue(
                "this classifier finds the end of a text by the padding token, so that cannot stand inside it: "
                "use removal='delete', or another token"
            )
        return replace(self, removal=removal, token=chosen)


def check_choices(perturbation: Perturbation) -> None:
    """What is not among the choices would be taken for one of them."""
    for name, known in CHOICES.items():
        value = getattr(perturbation, name)
        if not isinstance(value, str | bool | None) or value not in known:
            raise RefusedValue(f"{name} is one of {', '.join(map(repr, known))}; found {value!r}")
    if isinstance(perturbation.token, bool) or not isinstance(perturbation.token, str | int | None):
        raise RefusedValue(f"token is 'mask', 'pad' or a token id; found {perturbation.token!r}")
    if isinstance(perturbation.token, str) and perturbation.token not in ("mask", "pad"):
        raise RefusedValue(f"token is 'mask', 'pad' or a token id; found {perturbation.token!r}")
    for name in ("ablations", "seed"):
        value = getattr(perturbation, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or (name == "ablations" and value < 0):
            raise RefusedValue(f"{name} is a whole number{' from 0' * (name == 'ablations')}; found {value!r}")


@dataclass(frozen=True)
class Changed:
    """A row after tokens were taken away."""

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None
    kept: tuple[int, ...]  # for each token its place in the whole row
    original_ids: tuple[int, ...]  # for each token what stood there before: positions are counted by these
    share: float  # of the eligible units: taken, or kept with keep="top"
    left: float = 0.0  # the sum of the scores of units that are there


def removable_units(
    tokenized_text: TokenizedText, perturbation: Perturbation, protected: Sequence[int] = ()
) -> list[list[int]]:
    """The tokens of each unit that may go; never the one whose output is read."""
    whole = (
        [[i] for i in range(len(tokenized_text))]
        if perturbation.eligible == "all"
        else tokenized_text.units(perturbation.units)
    )
    left = [[i for i in unit if i not in protected] for unit in whole]
    return [unit for unit in left if unit]


def steps(
    tokenized_text: TokenizedText, scores: Tensor, perturbation: Perturbation, protected: Sequence[int] = ()
) -> list[Changed]:
    """The whole row and then every point of the grid, or random sets, for a perturbation that `fit` has settled."""
    if len(scores) != len(tokenized_text):
        raise RefusedValue(f"{len(scores)} scores for a text of {len(tokenized_text)} tokens")
    units = removable_units(tokenized_text, perturbation, protected)
    if not units:
        raise RefusedValue(f"no {perturbation.units[:-1]} of {tokenized_text.text!r} can be taken away")
    values = check_scores(scores).tolist()
    of_units = [sum(values[i] for i in unit) for unit in units]
    top = perturbation.keep == "top"
    changed = []
    for gone, share in [
        (set[int](), 1.0 if top else 0.0),
        *removals(tokenized_text, scores, units, of_units, perturbation),
    ]:
        tokens = sorted(token for number in gone for token in units[number])
        left = sum(score for number, score in enumerate(of_units) if number not in gone)
        changed.append(replace(change(tokenized_text, tokens, perturbation, share), left=left))
    return changed


def removals(
    tokenized_text: TokenizedText,
    scores: Tensor,
    units: Sequence[Sequence[int]],
    of_units: Sequence[float],
    perturbation: Perturbation,
) -> list[tuple[set[int], float]]:
    """At each point the numbers of the units that are gone, and the share that counts."""
    every = set(range(len(units)))
    if perturbation.ablations:
        sets = random_sets(len(units), perturbation.ablations, perturbation.seed)
        return [(gone, len(gone) / len(units)) for gone in ({*(~kept).nonzero()[:, 0].tolist()} for kept in sets)]
    ranking = order(torch.tensor(of_units, dtype=torch.float64), absolute=perturbation.absolute)
    if perturbation.skip_last:
        last = order(scores, absolute=perturbation.absolute)[-1]
        ranking = [number for number in ranking if last not in units[number]]
    found = []
    for k in perturbation.counts(len(units), len(tokenized_text)):
        top = set(ranking[:k])
        found.append((every - top if perturbation.keep == "top" else top, len(top) / len(units)))
    return found


def change(tokenized_text: TokenizedText, gone: Sequence[int], perturbation: Perturbation, share: float) -> Changed:
    """The row with some tokens deleted or replaced."""
    token = perturbation.token
    if perturbation.removal is None or (perturbation.removal == "replace" and not isinstance(token, int)):
        raise RefusedValue("settle the perturbation for the model first: perturbation.fit(model, tokenizer)")
    out = set(gone)
    kept = tuple(i for i in range(len(tokenized_text)) if perturbation.removal == "replace" or i not in out)
    ids = tuple(token if i in out and isinstance(token, int) else tokenized_text.input_ids[i] for i in kept)
    types = None
    if tokenized_text.token_type_ids is not None:
        types = tuple(0 if perturbation.zero_types else tokenized_text.token_type_ids[i] for i in kept)
    return Changed(ids, types, kept, tuple(tokenized_text.input_ids[i] for i in kept), share)
