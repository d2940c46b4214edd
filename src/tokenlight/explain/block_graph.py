"""What a Transformer block leaves in memory for the backward pass: the facts of its rules, place by place."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch.nn import functional as F

from tokenlight.rules.facts import PLAIN, Keeps, kept_by
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.points import attend, mix_values, query_key
from tokenlight.rules.spellings import ACTIVATIONS, LINEAR_LAYERS, PRODUCTS, SUMS
from tokenlight.rules.tables import TABLES


@dataclass(frozen=True)
class Counts:
    """Tensors of a block, by kind."""

    states: float = 0  # [batch, token, dim]
    inner: float = 0  # of the MLP: [batch, token, inner]
    maps: float = 0  # [batch, head, query, key]

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.states + other.states, self.inner + other.inner, self.maps + other.maps)

    def __mul__(self, factor: float) -> "Counts":
        return Counts(factor * self.states, factor * self.inner, factor * self.maps)

    @property
    def number(self) -> float:
        return self.states + self.inner + self.maps


@dataclass(frozen=True)
class Place:
    """An operation of a block, all its calls together: the tensors that a rule may keep there."""

    functions: tuple[Any, ...]  # which of them a family calls, nobody says
    own: Counts = Counts()  # what its own gradient keeps
    inputs: Counts = Counts()
    results: Counts = Counts()

    def kept(self, rule: Keeps) -> Counts:
        return self.own * rule.own + self.inputs * rule.inputs + self.results * rule.results


SOFTMAX = Place((F.softmax,), results=Counts(maps=1))  # its own gradient keeps the weights, as what follows does


@dataclass(frozen=True)
class Kept:
    """What the graph of one block holds."""

    values: Counts  # in the precision of the values
    single: Counts  # in single precision, whatever theirs


def kept_by_block(table: RuleTable | None, gated: bool, fused: bool = False) -> Kept:
    """Under a table of rules, or by the plain gradient; `gated`: the MLP multiplies two branches."""
    if not table:
        return kept_by_published(None, gated, fused)
    number = next((number for number, known in enumerate(TABLES) if known is table), None)
    return kept_under(table, gated, fused) if number is None else kept_by_published(number, gated, fused)


@cache
def kept_by_published(number: int | None, gated: bool, fused: bool) -> Kept:
    """The same for a published table by its number, or the plain gradient: looked up at every call of the library."""
    return kept_under({} if number is None else TABLES[number], gated, fused)


def kept_under(table: RuleTable, gated: bool, fused: bool) -> Kept:
    values, single = Counts(), Counts()
    weights_vary = any(rule.passes for rule in rules_at(SOFTMAX, table))
    for place in (*(FUSED if fused else written_out(weights_vary)), *places(gated)):
        rule = max(rules_at(place, table), key=lambda rule: place.kept(rule).number)
        if rule.single:
            single += place.kept(rule)
        else:
            values += place.kept(rule)
    return Kept(values, single)


def rules_at(place: Place, table: RuleTable) -> list[Keeps]:
    """The facts of a table's rules at a place. A rule that does not say could be any of the published ones."""
    found: list[Keeps] = []
    for function in place.functions:
        facts = kept_by(table[function]) if function in table else PLAIN
        found += published_at(place) if facts is None else [facts]
    return found


def published_at(place: Place) -> list[Keeps]:
    rules = [table[function] for table in TABLES for function in place.functions if function in table]
    return [facts for rule in rules if (facts := kept_by(rule)) is not None]


def is_foreign(table: RuleTable | None) -> bool:
    """Whether a rule of the table does not say what it keeps."""
    return any(kept_by(rule) is None for rule in (table or {}).values())


def written_out(weights_vary: bool) -> Iterator[Place]:
    """Attention in three operations; `weights_vary`: its weights are a signal, so that values are kept, too."""
    yield Place((query_key,), own=Counts(states=2), results=Counts(maps=1))
    yield SOFTMAX
    yield Place((mix_values,), own=Counts(states=weights_vary, maps=1), results=Counts(states=1))


FUSED = (Place((attend,), own=Counts(states=4), results=Counts(states=1)),)  # queries, keys, values and what comes out


def places(gated: bool) -> Iterator[Place]:
    """What lies around attention."""
    yield Place((F.layer_norm,), own=Counts(states=2), results=Counts(states=2))
    six = Counts(states=5, inner=1)  # queries, keys, values, output; the MLP's two
    yield Place(LINEAR_LAYERS, inputs=six, results=six + Counts(inner=gated))
    yield Place(SUMS, results=Counts(states=2))
    yield Place(ACTIVATIONS, own=Counts(inner=1), results=Counts(inner=1))
    if gated:
        yield Place(PRODUCTS, own=Counts(inner=2), results=Counts(inner=1))
