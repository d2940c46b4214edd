"""The unmodified model: its output, gradients and attention, to compare with."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import EAGER, plain_attention_of, set_attention
from tokenlight.model.behavior_probes import relative_difference
from tokenlight.model.config import accepted_inputs
from tokenlight.model.precision import KeepDouble
from tokenlight.model.private_copy import configs_of, embedding_layers
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class PlainModel:
    """A copy with the same weights, which computes attention as the model does: eager, or by fused kernels."""

    model: PreTrainedModel

    @classmethod
    def of(cls, model: PreTrainedModel) -> "PlainModel":
        plain = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()}).eval()
        for config in configs_of(plain):
            set_attention(config, plain_attention_of(config))
        return cls(plain)

    def run(self, batch: Batch, **settings: Any) -> Any:
        accepted = accepted_inputs(self.model)
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in accepted}
        with KeepDouble() if self.model.dtype == torch.float64 else nullcontext():
            return self.model(**inputs, return_dict=True, **settings)

    def logits(self, batch: Batch) -> dict[str, Tensor]:
        """All outputs that are logits, by name."""
        with torch.no_grad():
            return {name: tensor for name, tensor in self.run(batch).items() if name.endswith("logits")}

    def score(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch] the explained score."""
        output = self.run(batch)
        selectors = target.select(output, batch, self.model)
        return torch.stack([selector.score(output) for selector in selectors]).sum(0)

    def gradient_x_input(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch, token, dim] gradient times embedding, by plain autograd. The method sums over `dim`."""
        with torch.no_grad():
            leaf = self.model.get_input_embeddings()(batch.input_ids)
        leaf.requires_grad_()
        with replace_outputs(embedding_layers(self.model), leaf):
            (gradient,) = torch.autograd.grad(self.score(batch, target).sum(), leaf)
        return (leaf * gradient).detach()

    def attention(self, batch: Batch) -> list[Tensor]:
        """The maps [batch, head, query, key] of all layers; none if the family returns none.

        Only eager attention returns maps. They are those of the model only if eager attention gives the same logits.
        """
        eager = PlainModel.of(self.model)
        for config in configs_of(eager.model):
            set_attention(config, EAGER)
        rounding = torch.finfo(self.model.dtype).eps ** 0.5
        eager_logits = eager.logits(batch)
        if any(
            relative_difference(logits, eager_logits[name]) > rounding for name, logits in self.logits(batch).items()
        ):
            return []
        with torch.no_grad():
            maps = eager.run(batch, output_attentions=True).get("attentions") or ()
        return [map_ for map_ in maps if isinstance(map_, Tensor)]

    def past_embedding(self, batch: Batch, other_ids: Tensor, target: BatchTarget) -> float:
        """The change of the score with other ids and fixed embeddings, divided by its change with both."""
        changed = Batch(other_ids, batch.attention_mask, batch.token_type_ids)
        embedding = self.model.get_input_embeddings()
        with torch.no_grad():
            embeddings = embedding(batch.input_ids)
            first, second = self.score(batch, target), self.score(changed, target)
            with replace_outputs(embedding_layers(self.model), embeddings):
                ids_only = self.score(changed, target)
        return float((ids_only - first).abs().max() / (second - first).abs().max())

    def query_weights(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch, token] norms of the score's gradient with respect to the states after the last block."""
        states: list[Tensor] = []
        blocks = module_list_members(self.model)
        hooks = [block.register_forward_hook(lambda *call: states.append(state_in(call[2]))) for block in blocks]
        with torch.enable_grad():
            leaf = self.model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
            with replace_outputs(embedding_layers(self.model), leaf):
                score = self.score(batch, target)
        for hook in hooks:
            hook.remove()
        shape = batch.input_ids.shape
        resolved = [state for state in states if state.shape[:2] in (shape, shape[::-1]) and state.requires_grad]
        (gradient,) = torch.autograd.grad(score.sum(), resolved[-1], materialize_grads=True)
        norms = torch.linalg.vector_norm(gradient.double(), dim=-1)
        return norms if norms.shape == shape else norms.T  # some models have [token, batch]


def module_list_members(model: nn.Module) -> list[nn.Module]:
    """The members of all module lists. Blocks are among them, and the last block is the last member to run."""
    return [child for module in model.modules() if isinstance(module, nn.ModuleList) for child in module]


def state_in(output: Any) -> Tensor:
    first = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
    return first if isinstance(first, Tensor) else torch.empty(0)


@contextmanager
def replace_outputs(modules: Sequence[nn.Module], replacement: Tensor) -> Iterator[None]:
    """Inside, the outputs of the modules are copies of this tensor."""

    def replace_output(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        # Some models have [token, batch].
        ordered = replacement if output.shape == replacement.shape else replacement.transpose(0, 1)
        return ordered.clone(memory_format=torch.contiguous_format)

    hooks = [module.register_forward_hook(replace_output) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def target_of(model: PreTrainedModel, last: int, rows: int) -> BatchTarget:
    """A target for any texts of more than `last` tokens."""
    task = task_of(model)
    return BatchTarget(task, (task.resolve_target_ids(task.trial_target(last), None),) * rows)
