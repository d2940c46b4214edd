"""Head masks: the strength of each attention head for relevance; the values of `heads=`; the role of each head."""

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
from tokenlight.model.fingerprint import fingerprint, same_model

if TYPE_CHECKING:
    from tokenlight.heads.statistics import HeadStatistics


Strengths = Tensor | NDArray[Any] | Sequence[Sequence[float]]  # [layer, head], numbers from 0 to 1
FORMAT, VERSION = "tokenlight.heads", 1


@dataclass(frozen=True, eq=False)
class HeadMask:
    """Strengths of attention heads, in two groups as in Mask-LRP; a head may be in both. A head above 0 is called lit.

    In a calibrated mask, `calibrated` has the strengths; the two groups only describe what each head attends to.
    """

    syntactic: Tensor  # [layer, head] heads that follow syntactic relations
    positional: Tensor  # [layer, head] heads that attend to a relative position
    made: Mapping[str, Any] = field(default_factory=dict)  # how it was made: thresholds, seed, or "by hand"
    model: str | None = None  # the model it was made for; None: any model of its shape
    fingerprint: tuple[float, ...] = ()  # a few weights of that model, to refuse other models
    statistics: "HeadStatistics | None" = None  # the counts it was made from
    calibrated: Tensor | None = None  # [layer, head] strengths from `calibrate`

    def __post_init__(self) -> None:
        groups = {"syntactic": self.syntactic, "positional": self.positional, "calibrated": self.calibrated}
        for name, group in groups.items():
            if group is None:
                continue
            if group.ndim != 2 or group.numel() == 0 or group.shape != self.syntactic.shape:
                raise RefusedValue(
                    f"{name} heads must be a tensor [layer, head] of the shape of the other group; found {shape(group)}"
                )
            if not group.isfinite().all() or group.min() < 0 or group.max() > 1:
                raise RefusedValue(f"a head mask has numbers from 0 to 1; found others in the {name} heads")

    @classmethod
    def by_hand(cls, lit: Strengths) -> "HeadMask":
        """From a tensor or nested list [layer, head]. There is only one group: all heads count as syntactic."""
        try:
            strengths = torch.as_tensor(lit, dtype=torch.float64, device="cpu").detach()
        except (TypeError, ValueError) as error:
            raise RefusedValue(f"a head mask is a tensor [layer, head]; found {type(lit).__name__}: {error}") from error
        return cls(strengths, torch.zeros_like(strengths), {"by": "hand"})

    @property
    def lit(self) -> Tensor:
        """[layer, head] the strength of each head."""
        return torch.maximum(self.syntactic, self.positional) if self.calibrated is None else self.calibrated

    @property
    def groups(self) -> Tensor:
        """[group, layer, head] the groups that share the relevance of a block."""
        return torch.stack([self.syntactic, self.positional]) if self.calibrated is None else self.calibrated[None]

    @property
    def strong(self) -> Tensor:
        """[layer, head] bool: heads with a strength of at least 0.5."""
        return self.lit >= 0.5

    @property
    def explained(self) -> int:
        """The number of strong heads that are syntactic or positional."""
        return int((self.strong & (torch.maximum(self.syntactic, self.positional) > 0)).sum())

    @property
    def count(self) -> int:
        return int((self.lit > 0).sum())

    def random(self, seed: int = 0) -> "HeadMask":
        """A control: the same strengths at randomly chosen heads."""
        lit = torch.zeros(self.lit.numel(), dtype=torch.float64, device="cpu")
        lit[random_order(lit.numel(), seed)[: self.count]] = self.lit[self.lit > 0].double()
        return self._control(lit.view_as(self.lit), {"by": "chance", "seed": seed, "heads": self.count})

    def complement(self) -> "HeadMask":
        """A control: 1 minus the strength of each head."""
        return self._control(1 - self.lit, {"by": "complement"})

    def corrupted(self, share: float, seed: int = 0) -> "HeadMask":
        """A control that adds a random share of the heads with strength 0; 1 is a mask of ones (Song et al., 5.4).

        Below 1, these heads join the syntactic group. If heads count once per relation, they count for one relation.
        """
        if not 0 <= share <= 1:
            raise RefusedValue(f"the share of heads to add must be from 0 to 1, found {share}")
        made = {"by": "corruption", "seed": seed, "share": share}
        if share == 1:
            return self._control(torch.ones_like(self.lit), made)
        dark = (self.lit == 0).flatten().nonzero()[:, 0]
        lit = (self.syntactic if self.calibrated is None else self.calibrated).clone().flatten()
        chosen = dark[random_order(len(dark), seed)[: round(share * len(dark))]]
        lit[chosen] = 1 / self.made.get("largest_count", 1)
        mask = self._control(lit.view_as(self.lit), made)
        return mask if self.calibrated is not None else replace(mask, positional=self.positional)

    def only(self, group: str) -> "HeadMask":
        """Only the syntactic or only the positional heads."""
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
            origin = f"calibrated for {self.made.get('method')} on {self.made.get('texts')} texts"
            strong = f"{int(self.strong.sum())} of {self.lit.numel()} heads at half strength or more"
            return f"{strong} ({origin}; {self.explained} of them syntactic or positional)"
        groups = ", ".join(f"{int((getattr(self, g) > 0).sum())} {g}" for g in ("syntactic", "positional"))
        origin = self.made.get("by", "unknown")
        return f"{self.count} of {self.lit.numel()} heads ({groups}; by {origin})"

    def save(self, path: str | Path) -> None:
        """Write a readable JSON file with model, texts, counts and thresholds."""
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
        write_atomically(Path(path), format_json(plain) + "\n")

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
                raise RefusedType("expected an object under made, and a text or null under model")
            return cls(
                syntactic=torch.tensor(plain["syntactic"], dtype=torch.float64, device="cpu"),
                positional=torch.tensor(plain["positional"], dtype=torch.float64, device="cpu"),
                made=plain["made"],
                model=plain["model"],
                fingerprint=tuple(map(float, plain["fingerprint"])),
                statistics=None if statistics is None else HeadStatistics.from_dict(statistics),
                calibrated=None if calibrated is None else torch.tensor(calibrated, dtype=torch.float64, device="cpu"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedValue(f"{path} is a damaged head mask: {type(error).__name__} {error}") from error


def shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "a single number"


def random_order(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def rows(mask: Tensor) -> list[list[float]]:
    """[layer][head] plain numbers, 0 and 1 as integers, so that the file is easy to read."""
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


def format_json(value: Any, indent: int = 0) -> str:
    """Indented JSON in which lists of numbers stay on one line, so that matrices are readable."""
    blank = " " * (indent + 1)
    if isinstance(value, Mapping) and value:
        entries = [f"{blank}{json.dumps(key)}: {format_json(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(entries) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(item, list) for item in value):
        return "[\n" + ",\n".join(blank + format_json(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    return json.dumps(value, ensure_ascii=False)


# A mask, a mask file, "own" or "calibrated", numbers [layer, head], or None for all heads.
HeadsLike = HeadMask | str | Path | Strengths | None
OWN, CALIBRATED = "own", "calibrated"  # heads="own": the mask that comes with the model
FILES = Path(__file__).parent.parent / "embedded" / "files"
PACKAGED = {OWN: FILES / "heads.json", CALIBRATED: FILES / "calibrated.json"}
COMMANDS = {OWN: "heads", CALIBRATED: "calibrate"}  # CLI commands that make such a mask


def choose_heads(heads: HeadsLike, model: PreTrainedModel) -> HeadMask | None:
    """A mask for this model from a mask, a file, a tensor, "own" or "calibrated"; None stays None: all heads."""
    if heads is None:
        return None
    if isinstance(heads, str) and heads in PACKAGED:
        mask = named_heads(heads, model)
        if mask is None:
            kind = "calibrated head mask" if heads == CALIBRATED else "head mask"
            raise RefusedValue(
                f"{model_name(model)} comes without a {kind}. Make one: `tokenlight {COMMANDS[heads]} "
                f"{model.config.name_or_path or 'MODEL'} TEXTS -o masks.json`, then heads='masks.json'"
            )
        return mask
    if isinstance(heads, HeadMask):
        mask = heads
    elif isinstance(heads, str | Path):
        mask = HeadMask.load(heads)
    elif isinstance(heads, Tensor | list | tuple) or hasattr(heads, "__array__"):
        mask = HeadMask.by_hand(heads)
    else:
        raise RefusedType(
            f"heads must be a HeadMask, a mask file or a tensor [layer, head]; found {type(heads).__name__}"
        )
    check_fit(mask, model)
    return mask


def has_heads(heads: HeadsLike, model: PreTrainedModel) -> bool:
    """Whether the model has the mask: False for "own" or "calibrated" if it comes without one."""
    return not (isinstance(heads, str) and heads in PACKAGED) or named_heads(heads, model) is not None


def named_heads(name: str, model: PreTrainedModel) -> HeadMask | None:
    """The packaged mask of this name, if it was made for this model (the embedded one); else None."""
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
    expected, actual = layers_and_heads(model), tuple(mask.lit.shape)
    if actual != expected:
        raise RefusedValue(
            f"the head mask has {actual[0]} layers of {actual[1]} heads; {model_name(model)} has {expected[0]} of "
            f"{expected[1]}: make one for this model with `tokenlight heads`"
        )
    if mask.fingerprint and not same_model(mask.fingerprint, fingerprint(model)):
        raise RefusedValue(
            f"the head mask was made for {mask.model}, whose weights are not those of {model_name(model)}: make one "
            "for this model with `tokenlight heads`, or pass heads=mask.lit to use it anyway"
        )


def model_name(model: PreTrainedModel) -> str:
    return model.config.name_or_path or type(model).__name__


KINDS = ("syntactic", "positional", "both", "calibrated", "dark")


@dataclass(frozen=True)
class Role:
    """One head of a mask, and its statistics, whatever its strength."""

    layer: int
    head: int
    kind: str  # one of KINDS
    strength: float  # of the head gate
    relation: str | None = None  # the relation whose accuracy most exceeds what distance alone explains
    accuracy: float = 0.0  # fraction of that relation's words whose strongest attention goes to the related word
    offset: int | None = None  # the most frequent relative position of its strongest attention
    share: float = 0.0  # frequency of that position
    calibrated: bool = False  # the strength comes from calibration

    @property
    def label(self) -> str:
        """The relation or offset for which the head is in the mask, or both; the strength if calibrated."""
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
    """[layer][head] the roles of all heads."""
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
    relations = mask.made.get("relations", counts.relations)
    counted = [i for i, name in enumerate(counts.relations) if name in relations and counts.pairs[i] > 0]
    best = max(counted, key=lambda i: float(accuracy[i] - counts.usual_share[i]), default=None)
    offsets, shares = counts.position_shares(bool(mask.made.get("count_self", False)))
    return replace(
        plain,
        relation=None if best is None else counts.relations[best],
        accuracy=0.0 if best is None else float(accuracy[best]),
        offset=int(offsets[layer, head]),
        share=float(shares[layer, head]),
    )
