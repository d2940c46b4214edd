"""What each head does, in a word: for maps of heads in the terminal, in figures and on pages."""

from dataclasses import dataclass, replace

from tokenlight.masks.head_mask import HeadMask

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
