"""Counts of where each head's strongest attention goes: relative positions and syntactic relations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue
from tokenlight.heads.mask import HeadMask

# Mask-LRP's relations, each with its names in Universal Dependencies and in spaCy's English models.
RELATIONS: Mapping[str, tuple[str, ...]] = {
    "nsubj": ("nsubj",),
    "obj": ("obj", "dobj"),
    "amod": ("amod",),
    "advmod": ("advmod",),
}
SYNTAX_MARGIN, POSITION_SHARE = 0.1, 0.8  # the paper's ξ_synt and ξ_pos
RARE = 0.01  # offsets that no head's attention reaches this often are left out of files


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Counts over a set of texts. Those of the same model can be added with `+`."""

    relations: tuple[str, ...]
    pairs: Tensor  # [relation] the number of pairs
    hits: Tensor  # [relation, layer, head] pairs whose strongest attention went to the related word
    distances: tuple[Counter[int], ...]  # per relation: word number minus that of its syntactic head
    offsets: Mapping[int, Tensor]  # key minus query position: [layer, head] count of strongest attentions
    tokens: int  # the number of query tokens
    texts: int
    cut_off: int  # pairs that the model did not read: truncated, or without a token
    direction: str  # "dependent-head" or "head-dependent"
    source: str = ""  # texts and parser
    model: str | None = None
    fingerprint: tuple[float, ...] = ()

    @property
    def accuracy(self) -> Tensor:
        """[relation, layer, head] the fraction of hits; 0 for a relation that did not occur."""
        return self.hits.double() / self.pairs.clamp_min(1)[:, None, None]

    @property
    def usual_share(self) -> Tensor:
        """[relation] the fraction of the most frequent distance: the accuracy of always attending at that distance."""
        tops = [max(counts.values(), default=0) / max(counts.total(), 1) for counts in self.distances]
        return torch.tensor(tops, dtype=torch.float64)

    def thresholds(self, margin: float = SYNTAX_MARGIN) -> Tensor:
        """[relation] max λ + ξ_synt (Song et al. 2024, eq. 7)."""
        return self.usual_share + margin

    def position_shares(self, count_self: bool = False) -> tuple[Tensor, Tensor]:
        """Per head [layer, head] the most frequent offset and its share of all query tokens: a of eq. 8."""
        offsets = sorted(offset for offset in self.offsets if offset != 0 or count_self)
        if not offsets:
            return torch.zeros(self.hits.shape[1:], dtype=torch.long), torch.zeros(self.hits.shape[1:])
        share, best = (torch.stack([self.offsets[offset] for offset in offsets]).double() / max(self.tokens, 1)).max(0)
        return torch.tensor(offsets)[best], share

    def mask(
        self,
        syntax_margin: float = SYNTAX_MARGIN,
        position_share: float = POSITION_SHARE,
        *,
        count_self: bool = False,
        count_relations: bool = False,
        relations: Sequence[str] | None = None,
    ) -> HeadMask:
        """Heads above either threshold (Song et al. 2024, eq. 6 to 8).

        The paper leaves offset 0 out, its code counts it: `count_self`. In the paper a head counts once for every
        relation that it follows, in its code once: with `count_relations`, entries are in the proportions of the
        paper's sums, the largest being 1. Proportions are all that the paper's variant of `mask_lrp` depends on.
        """
        chosen = [self._number(name) for name in (self.relations if relations is None else relations)]
        above = self.accuracy > self.thresholds(syntax_margin)[:, None, None]
        seen = (self.pairs > 0)[:, None, None]
        followed = (above & seen)[chosen].sum(0).double()  # [layer, head] relations
        positional = (self.position_shares(count_self)[1] > position_share).double()
        syntactic = followed if count_relations else followed.clamp_max(1)
        largest = max(float(syntactic.max()), 1.0)
        made = {
            "by": "statistics",
            "syntax_margin": syntax_margin,
            "position_share": position_share,
            "count_self": count_self,
            "count_relations": count_relations,
            "largest_count": int(largest),
            "relations": [self.relations[i] for i in chosen],
        }
        return HeadMask(syntactic / largest, positional / largest, made, self.model, self.fingerprint, self)

    def _number(self, relation: str) -> int:
        if relation not in self.relations:
            raise RefusedValue(f"relation {relation!r} was not counted; counted: {', '.join(self.relations)}")
        return self.relations.index(relation)

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        if (self.relations, self.direction, self.fingerprint) != (other.relations, other.direction, other.fingerprint):
            raise RefusedValue("only statistics of the same model, relations and direction can be added")
        zero = torch.zeros_like(self.hits[0])
        offsets = sorted({*self.offsets, *other.offsets})
        return replace(
            self,
            pairs=self.pairs + other.pairs,
            hits=self.hits + other.hits,
            distances=tuple(a + b for a, b in zip(self.distances, other.distances, strict=True)),
            offsets={o: self.offsets.get(o, zero) + other.offsets.get(o, zero) for o in offsets},
            tokens=self.tokens + other.tokens,
            texts=self.texts + other.texts,
            cut_off=self.cut_off + other.cut_off,
        )

    def to_dict(self, rare: float = RARE) -> dict[str, Any]:
        """Plain values; offsets below the share `rare` for every head are left out."""
        thresholds = self.thresholds().tolist()
        per_relation = {
            name: {
                "pairs": int(self.pairs[i]),
                "threshold": round(thresholds[i], 4),
                "distances": {str(d): n for d, n in sorted(self.distances[i].items())},
                "hits": self.hits[i].tolist(),
            }
            for i, name in enumerate(self.relations)
        }
        common = {o: counts for o, counts in sorted(self.offsets.items()) if counts.max() >= rare * self.tokens}
        return {
            "source": self.source,
            "texts": self.texts,
            "tokens": self.tokens,
            "direction": self.direction,
            "cut_off": self.cut_off,
            "model": self.model,
            "fingerprint": list(self.fingerprint),
            "relations": per_relation,
            "offsets": {str(offset): counts.tolist() for offset, counts in common.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "HeadStatistics":
        relations = plain["relations"]
        same = {name: plain[name] for name in ("source", "texts", "tokens", "direction", "cut_off", "model")}
        return cls(
            relations=tuple(relations),
            pairs=torch.tensor([entry["pairs"] for entry in relations.values()], dtype=torch.long),
            hits=torch.tensor([entry["hits"] for entry in relations.values()], dtype=torch.long),
            distances=tuple(Counter({int(d): n for d, n in e["distances"].items()}) for e in relations.values()),
            offsets={int(o): torch.tensor(counts, dtype=torch.long) for o, counts in plain["offsets"].items()},
            fingerprint=tuple(plain["fingerprint"]),
            **same,
        )
