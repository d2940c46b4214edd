"""Head masks: which attention heads relevance flows through; the values of `heads=`; the role of each head."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.model.config import layers_and_heads
from tokenlight.model.identity import fingerprint, same_model

if TYPE_CHECKING:
    from tokenlight.heads.statistics import HeadStatistics


Strengths = Tensor | NDArray[Any] | Sequence[Sequence[float]]  # [layer, head], numbers from 0 to 1
FORMAT, VERSION = "tokenlight.heads", 1


@dataclass(frozen=True, eq=False)
class HeadMask:
    """Lit heads in two groups, as in Mask-LRP; a head may be in both. Entries are 0 or 1, or a strength between.

    In a calibrated mask, `calibrated` decides how relevance flows; the two groups say what each head follows.
    """

    syntactic: Tensor  # [layer, head] those that follow syntax
    positional: Tensor  # [layer, head] those that follow position
    made: Mapping[str, Any] = field(default_factory=dict)  # how: thresholds, seed, or "by hand"
    model: str | None = None  # the one it was made for; None: it may be used on any model of its shape
    fingerprint: tuple[float, ...] = ()  # a few of that model's weights, by which others are refused
    statistics: "HeadStatistics | None" = None  # what it was made from
    calibrated: Tensor | None = None  # [layer, head] strengths that `calibrate` found

    def __post_init__(self) -> None:
        groups = {"syntactic": self.syntactic, "positional": self.positional, "calibrated": self.calibrated}
        for name, group in groups.items():
            if group is None:
                continue
            if group.ndim != 2 or group.numel() == 0 or group.shape != self.syntactic.shape:
                raise RefusedValue(
                    f"{name} heads are a tensor [layer, head] like the other group; found {shape(group)}"
                )
            if not group.isfinite().all() or group.min() < 0 or group.max() > 1:
                raise RefusedValue(f"a head mask holds numbers from 0 to 1; {name} heads hold others")

    @classmethod
    def by_hand(cls, lit: Strengths) -> "HeadMask":
        """From a tensor or nested list [layer, head]; one group, so everything counts as syntactic."""
        try:
            strengths = torch.as_tensor(lit, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError) as error:
            raise RefusedValue(f"a head mask is a tensor [layer, head]; found {type(lit).__name__}: {error}") from error
        return cls(strengths, torch.zeros_like(strengths), {"by": "hand"})

    @property
    def lit(self) -> Tensor:
        """[layer, head] how strongly relevance flows through each head."""
        return torch.maximum(self.syntactic, self.positional) if self.calibrated is None else self.calibrated

    @property
    def groups(self) -> Tensor:
        """[group, layer, head] the heads that share a block's relevance among them."""
        return torch.stack([self.syntactic, self.positional]) if self.calibrated is None else self.calibrated[None]

    @property
    def strong(self) -> Tensor:
        """[layer, head] bool: through which at least half of the relevance flows."""
        return self.lit >= 0.5

    @property
    def explained(self) -> int:
        """How many of the strong heads are syntactic or positional."""
        return int((self.strong & (torch.maximum(self.syntactic, self.positional) > 0)).sum())

    @property
    def count(self) -> int:
        return int((self.lit > 0).sum())

    def random(self, seed: int = 0) -> "HeadMask":
        """Control: as many heads, of the same strengths, anywhere."""
        lit = torch.zeros(self.lit.numel(), dtype=torch.float64)
        lit[shuffled(lit.numel(), seed)[: self.count]] = self.lit[self.lit > 0].double()
        return self._control(lit.view_as(self.lit), {"by": "chance", "seed": seed, "heads": self.count})

    def complement(self) -> "HeadMask":
        """Control: what is lit is dark and the other way round."""
        return self._control(1 - self.lit, {"by": "complement"})

    def corrupted(self, share: float, seed: int = 0) -> "HeadMask":
        """Control: a share of the dark heads, chosen at random, is lit as well; 1 is a mask of ones (Song et al., 5.4).

        Below 1, these heads join the syntactic group. Where heads count once for each relation, they count for one.
        """
        if not 0 <= share <= 1:
            raise RefusedValue(f"the share of dark heads to light is from 0 to 1, found {share}")
        made = {"by": "corruption", "seed": seed, "share": share}
        if share == 1:
            return self._control(torch.ones_like(self.lit), made)
        dark = (self.lit == 0).flatten().nonzero()[:, 0]
        lit = (self.syntactic if self.calibrated is None else self.calibrated).clone().flatten()
        chosen = dark[shuffled(len(dark), seed)[: round(share * len(dark))]]
        lit[chosen] = 1 / self.made.get("largest_count", 1)
        mask = self._control(lit.view_as(self.lit), made)
        return mask if self.calibrated is not None else replace(mask, positional=self.positional)

    def only(self, group: str) -> "HeadMask":
        """The syntactic or the positional heads alone."""
        if group not in ("syntactic", "positional"):
            raise RefusedValue(f"a group of heads is 'syntactic' or 'positional', found {group!r}")
        dark = torch.zeros_like(self.lit)
        chosen = {"syntactic": dark, "positional": dark, group: getattr(self, group)}
        made = self.made if self.calibrated is None else {"by": "statistics"}
        return replace(self, **chosen, calibrated=None, made={**made, "only": group})

    def _control(self, lit: Tensor, made: Mapping[str, Any]) -> "HeadMask":
        dark = torch.zeros_like(lit)
        return replace(self, syntactic=lit, positional=dark, calibrated=None, made=made, statistics=None)

    def __str__(self) -> str:
        if self.calibrated is not None:
            removal = f"calibrated for {self.made.get('method')} on {self.made.get('texts')} texts"
            strong = f"{int(self.strong.sum())} of {self.lit.numel()} heads at half strength or more"
            return f"{strong} ({removal}; {self.explained} of them syntactic or positional)"
        groups = ", ".join(f"{int((getattr(self, g) > 0).sum())} {g}" for g in ("syntactic", "positional"))
        removal = self.made.get("by", "unknown")
        return f"{self.count} of {self.lit.numel()} heads ({groups}; by {removal})"

    def save(self, path: str | Path) -> None:
        """A readable JSON file that records model, texts, counts and thresholds."""
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "fingerprint": list(self.fingerprint),
            "made": dict(self.made),
            "syntactic": rows(self.syntactic),
            "positional": rows(self.positional),
            "statistics": None if self.statistics is None else self.statistics.to_dict(),
        }
        if self.calibrated is not None:
            plain["calibrated"] = rows(self.calibrated)
        write_atomically(Path(path), one_row_a_line(plain) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "HeadMask":
        from tokenlight.heads.statistics import HeadStatistics

        plain = read_json(path)
        if not isinstance(plain, Mapping) or plain.get("format") != FORMAT:
            raise RefusedValue(f"{path} is not a head mask: make one with `tokenlight heads MODEL TEXTS -o masks.json`")
        if plain.get("version") != VERSION:
            raise RefusedValue(f"{path} has version {plain.get('version')}; this tokenlight reads version {VERSION}")
        try:
            statistics, calibrated = plain["statistics"], plain.get("calibrated")
            if not isinstance(plain["made"], Mapping) or not isinstance(plain["model"], str | None):
                raise RefusedType("made is an object, and model a text or null")
            return cls(
                syntactic=torch.tensor(plain["syntactic"], dtype=torch.float64),
                positional=torch.tensor(plain["positional"], dtype=torch.float64),
                made=plain["made"],
                model=plain["model"],
                fingerprint=tuple(map(float, plain["fingerprint"])),
                statistics=None if statistics is None else HeadStatistics.from_dict(statistics),
                calibrated=None if calibrated is None else torch.tensor(calibrated, dtype=torch.float64),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedValue(f"{path} is a damaged head mask: {type(error).__name__} {error}") from error


def shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "a single number"


def shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def rows(mask: Tensor) -> list[list[float]]:
    """Whole numbers where they are: a mask is read by people too."""
    return [[int(x) if x in (0, 1) else x for x in row] for row in mask.tolist()]


def read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RefusedValue(
            f"there is no head mask {str(path)!r}: make one with `tokenlight heads MODEL TEXTS -o {path}`"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RefusedValue(f"{path} is not a head mask, which is a JSON file: {error}") from error


def one_row_a_line(value: Any, indent: int = 0) -> str:
    """JSON in which a list of numbers stays on one line, so that a matrix looks like one."""
    blank = " " * (indent + 1)
    if isinstance(value, Mapping) and value:
        entries = [f"{blank}{json.dumps(key)}: {one_row_a_line(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(entries) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(item, list) for item in value):
        return (
            "[\n" + ",\n".join(blank + one_row_a_line(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
        )
    return json.dumps(value, ensure_ascii=False)


# A mask, a mask file, "own" or "calibrated", numbers [layer, head] by hand, or None: relevance flows through all heads.
HeadsLike = HeadMask | str | Path | Strengths | None
OWN, CALIBRATED = "own", "calibrated"  # heads="own": the mask that comes with the model
FILES = Path(__file__).parent.parent / "embedded" / "files"
PACKAGED = {OWN: FILES / "heads.json", CALIBRATED: FILES / "calibrated.json"}
COMMANDS = {OWN: "heads", CALIBRATED: "calibrate"}  # that make such a mask


def choose_heads(asked: HeadsLike, model: PreTrainedModel) -> HeadMask | None:
    """A mask for this model from a mask, a file, a tensor, "own" or "calibrated"; None stays None: all heads."""
    if asked is None:
        return None
    if isinstance(asked, str) and asked in PACKAGED:
        mask = named_heads(asked, model)
        if mask is None:
            kind = "calibrated head mask" if asked == CALIBRATED else "head mask"
            raise RefusedValue(
                f"{model_name(model)} comes without a {kind}. Make one: `tokenlight {COMMANDS[asked]} "
                f"{model.config.name_or_path or 'MODEL'} TEXTS -o masks.json`, then heads='masks.json'"
            )
        return mask
    if isinstance(asked, HeadMask):
        mask = asked
    elif isinstance(asked, str | Path):
        mask = HeadMask.load(asked)
    elif isinstance(asked, Tensor | list | tuple) or hasattr(asked, "__array__"):
        mask = HeadMask.by_hand(asked)
    else:
        raise RefusedType(f"heads is a HeadMask, a mask file or a tensor [layer, head]; found {type(asked).__name__}")
    check_fit(mask, model)
    return mask


def has_heads(asked: HeadsLike, model: PreTrainedModel) -> bool:
    """False where a mask is asked for by a name that this model has none under."""
    return not (isinstance(asked, str) and asked in PACKAGED) or named_heads(asked, model) is not None


def named_heads(name: str, model: PreTrainedModel) -> HeadMask | None:
    """The mask of that name that ships with the model: the embedded one has them."""
    mask = packaged_heads(name)
    return mask if mask is not None and same_model(mask.fingerprint, fingerprint(model)) else None


def own_heads(model: PreTrainedModel) -> HeadMask | None:
    return named_heads(OWN, model)


def calibrated_heads(model: PreTrainedModel) -> HeadMask | None:
    return named_heads(CALIBRATED, model)


@cache
def packaged_heads(name: str) -> HeadMask | None:
    return HeadMask.load(PACKAGED[name]) if PACKAGED[name].is_file() else None


def check_fit(mask: HeadMask, model: PreTrainedModel) -> None:
    expected, found = layers_and_heads(model), tuple(mask.lit.shape)
    if found != expected:
        raise RefusedValue(
            f"the head mask has {found[0]} layers of {found[1]} heads; {model_name(model)} has {expected[0]} of "
            f"{expected[1]}: make one for this model with `tokenlight heads`"
        )
    if mask.fingerprint and not same_model(mask.fingerprint, fingerprint(model)):
        raise RefusedValue(
            f"the head mask was made for {mask.model}, whose weights are not those of {model_name(model)}: make one "
            "for this model with `tokenlight heads`, or pass heads=mask.lit to use it all the same"
        )


def model_name(model: PreTrainedModel) -> str:
    return model.config.name_or_path or type(model).__name__


KINDS = ("syntactic", "positional", "both", "calibrated", "dark")


@dataclass(frozen=True)
class Role:
    """One head of a mask, and what its statistics say of it whether it is lit or not."""

    layer: int
    head: int
    kind: str  # one of KINDS
    strength: float  # of the gate
    relation: str | None = None  # the relation it follows furthest above, or least below, what distance alone explains
    accuracy: float = 0.0  # the share of that relation's words whose strongest attention goes there
    offset: int | None = None  # where its strongest attention goes most often
    share: float = 0.0  # how often
    calibrated: bool = False  # the strength was found by calibration

    @property
    def label(self) -> str:
        """The relation or the offset that the head is lit for, both where it is both; the strength if calibrated."""
        names = {"syntactic": self.relation, "positional": self.sign}
        if self.kind == "dark":
            return ""
        if self.calibrated:
            return "1" if self.strength > 0.994 else f"{max(self.strength, 0.01):.2f}".removeprefix("0")
        if self.kind == "both":
            return f"{self.relation} {self.sign}"
        return names.get(self.kind) or "lit"

    @property
    def sign(self) -> str | None:
        return None if self.offset is None else f"{self.offset:+d}" if self.offset else "0"


def roles(mask: HeadMask) -> list[list[Role]]:
    """[layer][head]"""
    layers, heads = mask.lit.shape
    return [[role(mask, layer, head) for head in range(heads)] for layer in range(layers)]


def role(mask: HeadMask, layer: int, head: int) -> Role:
    groups = (bool(mask.syntactic[layer, head] > 0), bool(mask.positional[layer, head] > 0))
    kind = {(True, False): "syntactic", (False, True): "positional", (True, True): "both"}.get(groups, "dark")
    strength = float(mask.lit[layer, head])
    if mask.calibrated is not None:
        kind = "dark" if strength == 0 else "calibrated" if kind == "dark" else kind
    plain = Role(layer, head, kind, strength, calibrated=mask.calibrated is not None)
    counts = mask.statistics
    if counts is None:
        return plain
    accuracy = counts.accuracy[:, layer, head]
    asked = mask.made.get("relations", counts.relations)
    counted = [i for i, name in enumerate(counts.relations) if name in asked and counts.pairs[i] > 0]
    best = max(counted, key=lambda i: float(accuracy[i] - counts.usual_share[i]), default=None)
    offsets, shares = counts.position_shares(bool(mask.made.get("count_self", False)))
    return replace(
        plain,
        relation=None if best is None else counts.relations[best],
        accuracy=0.0 if best is None else float(accuracy[best]),
        offset=int(offsets[layer, head]),
        share=float(shares[layer, head]),
    )
