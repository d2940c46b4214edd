"""The distinct passes that several methods need, each planned once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tokenlight.methods.config import MethodConfig
from tokenlight.record.pass_spec import Key, PassSpec
from tokenlight.tasks.selectors import OutputSelector
from tokenlight.tasks.targets import BatchTarget


@dataclass(frozen=True)
class PassPlan:
    """The passes that explain a target with these methods."""

    target: BatchTarget
    method_configs: Sequence[MethodConfig]
    passes: Mapping[Key, PassSpec]  # the distinct ones
    reads: Sequence[Sequence[Key]]  # for each method the passes that it reads

    def with_selectors(self, selectors: tuple[OutputSelector, ...]) -> "PassPlan":
        """The same plan for what an earlier pass has selected."""
        return replace(self, target=replace(self.target, selectors=selectors))

    @property
    def readers(self) -> list[tuple[MethodConfig, Sequence[Key]]]:
        return list(zip(self.method_configs, self.reads, strict=True))

    @property
    def groups(self) -> list[list[Key]]:
        """The passes in groups; passes that one method reads together are in the same group."""
        groups = [[key] for key in self.passes]
        for keys in self.reads:
            joined = [group for group in groups if set(group) & set(keys)]
            if len(joined) > 1:
                first = groups.index(joined[0])
                groups = [group for group in groups if group not in joined]
                groups.insert(first, [key for group in joined for key in group])
        return groups

    @property
    def follows_embeddings(self) -> bool:
        """Whether a method needs to know how the output depends on the embeddings, or on states that follow them."""
        by_gradient = any(method_config.method.model_runs.gradient for method_config in self.method_configs)
        return by_gradient or any(pass_spec.follows_embeddings for pass_spec in self.passes.values())

    @property
    def in_double(self) -> bool:
        """Whether a pass runs in double precision, whatever the model's own."""
        return any(pass_spec.double for pass_spec in self.passes.values())


def plan_passes(target: BatchTarget, method_configs: Sequence[MethodConfig]) -> PassPlan:
    passes: dict[Key, PassSpec] = {}
    reads: list[list[Key]] = []
    for method_config in method_configs:
        pass_specs = method_config.passes(method_config.method.explains_separately(target.task, target.has_foil))
        for pass_spec in pass_specs:
            known = passes.get(pass_spec.key)
            passes[pass_spec.key] = pass_spec if known is None else known.together(pass_spec)
        reads.append([pass_spec.key for pass_spec in pass_specs])
        if any(pass_spec.reads_query_position for pass_spec in pass_specs):
            for pass_spec in pass_specs:
                if pass_spec.rules is None:  # it finds the query positions for passes under rules
                    with_row = replace(pass_spec, in_passing=pass_spec.in_passing | {"row"})
                    passes[pass_spec.key] = passes[pass_spec.key].together(with_row)
    return PassPlan(target, method_configs, passes, reads)
