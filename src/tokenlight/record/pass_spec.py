"""The plan of one pass: its rule table, its head gates, and the signals to keep."""

from collections.abc import Set
from dataclasses import dataclass, replace

from tokenlight.rules.head_gates import Gates
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.structural_rules import can_fuse

Key = tuple[object, ...]  # equal keys mean equal passes


@dataclass(frozen=True)
class PassSpec:
    """A pass to record, and everything that methods need of it.

    A need is the name of a signal ("attention"), of a signal with its gradient ("attention.grad"), or "row": the query
    position at which [query, key] maps are read. Without a need for a gradient, there is no backward pass.
    """

    needs: Set[str] = frozenset()
    in_passing: Set[str] = frozenset()  # needs of methods that read block by block; these signals are not kept
    rules: RuleTable | None = None  # under a table, value times gradient is relevance
    gates: Gates | None = None  # strengths of heads for relevance; None: all heads
    split: bool = False  # target and foil have separate traces
    unit: bool = False  # relevance starts from 1 instead of the score
    double: bool = False  # in double precision, regardless of the weights' dtype; for tables whose rules allow it
    last_block: bool = False  # no method reads any block but the last

    @property
    def key(self) -> Key:
        # Under rules, relevance lost below the blocks matters only if the embeddings are read.
        below = self.rules is not None and "embeddings.grad" in self.all_needs
        return (id(self.rules), self.gates and self.gates.key, self.split, self.unit, self.double, below)

    @property
    def graph_key(self) -> Key:
        """Equal keys mean equal graphs: head gates only affect the backward pass, except for `moved_to_residual`."""
        return (id(self.rules), self.gates and self.gates.moved_to_residual, self.double, self.split, self.all_needs)

    @property
    def all_needs(self) -> Set[str]:
        return self.needs | self.in_passing

    @property
    def signals(self) -> frozenset[str]:
        """The names of all signals that are read."""
        return signals_in(self.all_needs)

    @property
    def kept(self) -> frozenset[str]:
        """Of these, the signals that are kept for all blocks."""
        return signals_in(self.needs)

    @property
    def graded(self) -> frozenset[str]:
        """Of these, the signals that are read with their gradients."""
        return frozenset(need.removesuffix(".grad") for need in self.all_needs if need.endswith(".grad"))

    @property
    def follows_embeddings(self) -> bool:
        """Whether relevance or gradients are read that must cover everything the output depends on."""
        return self.rules is not None or bool(self.graded & {"embeddings", "hidden"})

    @property
    def reads_query_position(self) -> bool:
        return "row" in self.all_needs

    @property
    def can_fuse(self) -> bool:
        """Whether attention may be one operation: its weights are not read, and the rules have a rule for it."""
        return "attention" not in self.signals and can_fuse(self.rules)

    def together(self, other: "PassSpec") -> "PassSpec":
        """The same pass with the needs of both."""
        return replace(
            self,
            needs=self.needs | other.needs,
            in_passing=self.in_passing | other.in_passing,
            last_block=self.last_block and other.last_block,
        )

    def keeping_all(self) -> "PassSpec":
        """The same pass with all signals kept, for later requests."""
        return replace(self, needs=self.all_needs, in_passing=frozenset(), last_block=False)


def signals_in(needs: Set[str]) -> frozenset[str]:
    return frozenset(need.removesuffix(".grad") for need in needs if need != "row")
