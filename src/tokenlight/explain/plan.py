"""The distinct passes that several methods need, each planned once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tokenlight.methods.config import MethodConfig
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.tasks.targets import Target


@dataclass(frozen=True)
class PassPlan:
    """What runs on a batch to explain this target with these jobs."""

    target: Target
    method_configs: Sequence[MethodConfig]
    passes: Mapping[Key, PassSpec]  # the distinct ones
    reads: Sequence[Sequence[Key]]  # for every job the passes that it reads

    @property
    def readers(self) -> list[tuple[MethodConfig, Sequence[Key]]]:
        return list(zip(self.method_configs, self.reads, strict=True))

    @property
    def groups(self) -> list[list[Key]]:
        """The passes; in one group those of which somebody reads several at a time."""
        groups = [[key] for key in self.passes]
        for keys in self.reads:
            joined = [group for group in groups if set(group) & set(keys)]
            if len(joined) > 1:
                place = groups.index(joined[0])
                groups = [group for group in groups if group not in joined]
                groups.insert(place, [key for group in joined for key in group])
        return groups

    @property
    def follows_embeddings(self) -> bool:
        """Whether anybody asks how the answer depends on the embeddings, or on states that come from them."""
        asked = any(method_config.method.model_runs.gradient for method_config in self.method_configs)
        return asked or any(one.follows_embeddings for one in self.passes.values())

    @property
    def in_double(self) -> bool:
        """Whether any pass is in double precision, whatever the model's own."""
        return any(one.double for one in self.passes.values())


def plan_passes(target: Target, method_configs: Sequence[MethodConfig]) -> PassPlan:
    passes: dict[Key, PassSpec] = {}
    reads: list[list[Key]] = []
    for method_config in method_configs:
        own = method_config.passes(method_config.method.explains_separately(target.task, target.foiled))
        for one in own:
            known = passes.get(one.key)
            passes[one.key] = one if known is None else known.together(one)
        reads.append([one.key for one in own])
        if any(one.reads_query_position for one in own):
            for one in own:
                if one.rules is None:  # it shows the row to those under rules, which would have to ask the model again
                    passes[one.key] = passes[one.key].together(replace(one, in_passing=one.in_passing | {"row"}))
    return PassPlan(target, method_configs, passes, reads)
