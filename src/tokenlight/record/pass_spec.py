"""The plan of one pass: its rule table, its head gates, and the signals to keep."""

from collections.abc import Set
from dataclasses import dataclass, replace

from tokenlight.rules.head_gates import Gates
from tokenlight.rules.mode import RuleTable
from tokenlight.rules.structural_rules import can_fuse

Key = tuple[object, ...]  # same key, same pass


@dataclass(frozen=True)
class PassSpec:
    """A pass to record, and all that is needed of it.

    A need is the name of a signal ("attention"), of a signal with its gradient ("attention.grad"), or "row": the token
    whose output is explained, at which [query, key] maps are read. Without any gradient among them there is no
    backward pass.
    """

    needs: Set[str] = frozenset()
    in_passing: Set[str] = frozenset()  # needs of those who read block by block: nothing of them has to be kept
    rules: RuleTable | None = None  # under a table, value times gradient is relevance
    gates: Gates | None = None  # through which heads relevance flows; None: all
    split: bool = False  # target and foil get traces of their own
    unit: bool = False  # relevance starts from 1, not from the score
    double: bool = False  # in double precision, whatever the weights' own; for tables whose rules allow it
    last_block: bool = False  # nobody reads more than the last block

    @property
    def key(self) -> Key:
        # Under rules, relevance that is lost below the blocks counts only for those who read below them.
        below = self.rules is not None and "embeddings.grad" in self.all_needs
        return (id(self.rules), self.gates and self.gates.key, self.split, self.unit, self.double, below)

    @property
    def graph_key(self) -> Key:
        """Same key, same graph: which heads are lit counts only in its backward pass."""
        return (id(self.rules), self.gates and self.gates.moved_to_residual, self.double, self.split, self.all_needs)

    @property
    def all_needs(self) -> Set[str]:
        return self.needs | self.in_passing

    @property
    def signals(self) -> frozenset[str]:
        """The names of what is read."""
        return signals_in(self.all_needs)

    @property
    def kept(self) -> frozenset[str]:
        """Of these, what is read of the whole pass."""
        return signals_in(self.needs)

    @property
    def graded(self) -> frozenset[str]:
        """Of these, what is read with its gradient."""
        return frozenset(need.removesuffix(".grad") for need in self.all_needs if need.endswith(".grad"))

    @property
    def follows_embeddings(self) -> bool:
        """Whether relevance or gradients are read that should hold all that the answer depends on."""
        return self.rules is not None or bool(self.graded & {"embeddings", "hidden"})

    @property
    def reads_query_position(self) -> bool:
        return "row" in self.all_needs

    @property
    def can_fuse(self) -> bool:
        """Whether attention may be one operation: nobody reads its weights, and the rules have one for all of it."""
        return "attention" not in self.signals and can_fuse(self.rules)

    def together(self, other: "PassSpec") -> "PassSpec":
        """The same pass for the readers of both."""
        return replace(
            self,
            needs=self.needs | other.needs,
            in_passing=self.in_passing | other.in_passing,
            last_block=self.last_block and other.last_block,
        )

    def keeping_all(self) -> "PassSpec":
        """The same pass for readers who come again."""
        return replace(self, needs=self.all_needs, in_passing=frozenset(), last_block=False)


def signals_in(needs: Set[str]) -> frozenset[str]:
    return frozenset(need.removesuffix(".grad") for need in needs if need != "row")
