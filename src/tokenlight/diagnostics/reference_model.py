"""The unmodified model: its output, gradients and attention, to compare with."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokenlight._compat.transformers_internals import EAGER, set_attention, written_attention_of
from tokenlight.model.behavior_probes import relative_difference
from tokenlight.model.config import accepted_inputs
from tokenlight.model.precision import KeepDouble
from tokenlight.model.private_copy import configs_of, embedding_layers
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget
from tokenlight.text.batch import Batch


@dataclass(frozen=True)
class PlainModel:
    """A copy around the same weights, which computes attention as the model does: eager, or by fused kernels."""

    model: PreTrainedModel

    @classmethod
    def of(cls, model: PreTrainedModel) -> "PlainModel":
        made = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()}).eval()
        for config in configs_of(made):
            set_attention(config, written_attention_of(config))
        return cls(made)

    def run(self, batch: Batch, **settings: Any) -> Any:
        accepted = accepted_inputs(self.model)
        inputs = {name: tensor for name, tensor in batch.inputs().items() if name in accepted}
        with KeepDouble() if self.model.dtype == torch.float64 else nullcontext():
            return self.model(**inputs, return_dict=True, **settings)

    def answers(self, batch: Batch) -> dict[str, Tensor]:
        """What it says: all parts of the output that are logits."""
        with torch.no_grad():
            return {name: part for name, part in self.run(batch).items() if name.endswith("logits")}

    def score(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch] what is explained"""
        output = self.run(batch)
        selectors = target.select(output, batch, self.model)
        return torch.stack([selector.score(output) for selector in selectors]).sum(0)

    def gradient_x_input(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch, token, dim] by plain autograd, from what the embedding layer gives; summed over `dim` it is the
        method, in which these terms may cancel."""
        with torch.no_grad():
            leaf = self.model.get_input_embeddings()(batch.input_ids)
        leaf.requires_grad_()
        with answering(embedding_layers(self.model), leaf):
            (gradient,) = torch.autograd.grad(self.score(batch, target).sum(), leaf)
        return (leaf * gradient).detach()

    def attention(self, batch: Batch) -> list[Tensor]:
        """Of every layer [batch, head, query, key]; none where the family gives none.

        Eager attention alone returns its maps. They are those of the model only if it answers the same that way.
        """
        eager = PlainModel.of(self.model)
        for config in configs_of(eager.model):
            set_attention(config, EAGER)
        rounding = torch.finfo(self.model.dtype).eps ** 0.5
        answers = eager.answers(batch)
        if any(relative_difference(own, answers[name]) > rounding for name, own in self.answers(batch).items()):
            return []
        with torch.no_grad():
            found = eager.run(batch, output_attentions=True).get("attentions") or ()
        return [one for one in found if isinstance(one, Tensor)]

    def past_embedding(self, batch: Batch, other: Tensor, target: BatchTarget) -> float:
        """How much the score moves with the ids while what the embedding layer gives is held, as a share of how much it
        moves with both. `other` are other ids."""
        changed = Batch(other, batch.attention_mask, batch.token_type_ids)
        embedding = self.model.get_input_embeddings()
        with torch.no_grad():
            held = embedding(batch.input_ids)
            first, second = self.score(batch, target), self.score(changed, target)
            with answering(embedding_layers(self.model), held):
                without = self.score(changed, target)
        return float((without - first).abs().max() / (second - first).abs().max())

    def query_weights(self, batch: Batch, target: BatchTarget) -> Tensor:
        """[batch, token] how much the score depends on each state after the last block: the length of its gradient."""
        states: list[Tensor] = []
        blocks = members_of_lists(self.model)
        hooks = [block.register_forward_hook(lambda *call: states.append(state_in(call[2]))) for block in blocks]
        with torch.enable_grad():
            leaf = self.model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
            with answering(embedding_layers(self.model), leaf):
                score = self.score(batch, target)
        for hook in hooks:
            hook.remove()
        shape = batch.input_ids.shape
        resolved = [state for state in states if state.shape[:2] in (shape, shape[::-1]) and state.requires_grad]
        (gradient,) = torch.autograd.grad(score.sum(), resolved[-1], materialize_grads=True)
        lengths = torch.linalg.vector_norm(gradient.double(), dim=-1)
        return lengths if lengths.shape == shape else lengths.T  # some put tokens before the batch


def members_of_lists(model: nn.Module) -> list[nn.Module]:
    """Blocks stand in lists; of all such members the last block is the last to answer."""
    return [child for module in model.modules() if isinstance(module, nn.ModuleList) for child in module]


def state_in(output: Any) -> Tensor:
    first = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
    return first if isinstance(first, Tensor) else torch.empty(0)


@contextmanager
def answering(modules: Sequence[nn.Module], answer: Tensor) -> Iterator[None]:
    """Inside, the modules give this whatever they are asked, in memory that may be written over."""

    def answers(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        given = answer if output.shape == answer.shape else answer.transpose(0, 1)  # some put tokens before the batch
        return given.clone(memory_format=torch.contiguous_format)

    hooks = [module.register_forward_hook(answers) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def target_of(model: PreTrainedModel, last: int, rows: int) -> BatchTarget:
    """Something to explain on any rows of more than `last` tokens."""
    task = task_of(model)
    return BatchTarget(task, (task.resolve_target_ids(task.trial_target(last), None),) * rows)
