"""Contributions of each position to the new state of each position, in one layer.

An attention block's output at position i is a sum over positions j of vectors
    T_i(j) = s_i * sum_h A[h, i, j] f_j^h + [i = j] r_i        f_j^h = W_O^h v_j^h, r_i = what the residual carries
where norms that follow are linear maps at their actual scale (Kobayashi et al. 2021; Ferrando et al. 2022). Vectors
[token, token, dim] are not stored as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.model import block_structure
from tokenlight.model.block_structure import Norm
from tokenlight.model.block_structure_discovery import known_structures
from tokenlight.model.layout import layout_of
from tokenlight.record.trace import Block, Trace

CHUNK = 400_000  # elements of [token, token, dim] in memory at a time for each core, to fit into its cache


@dataclass(frozen=True)
class Layer:
    """The terms of T for one text without padding."""

    attention: Tensor  # A [head, query, key]
    values: Tensor  # v [head, key, head dim]
    weight: Tensor  # W_O with the linear parts of the norms after it [head, head dim, dim]
    scale: Tensor  # s [query]
    residual: Tensor  # r [query, dim]
    output: Tensor  # y [query, dim], the state that is the sum of the vectors and biases
    gate: Tensor | None = None  # g [query, head, head dim], a constant factor of the heads' outputs

    @cached_property
    def vectors(self) -> Tensor:
        """The vectors f [head, key, dim]."""
        return self.values @ self.weight

    def vector_lengths(self) -> Tensor:
        """||T_i(j)||_2 [query, key], from the Gram matrices of the heads if there is no gate."""
        if self.gate is not None:
            return self._measure_vectors(lambda vectors: torch.linalg.vector_norm(vectors, dim=-1))
        return self._squared_lengths().clamp_min(0).sqrt()

    def distances(self, norm: str) -> Tensor:
        """||y_i - T_i(j)|| [query, key]."""
        if norm == "l1":
            return self._measure_vectors(lambda vectors: vectors.sub_(self.output).abs_().sum(-1))
        if self.gate is not None:
            return self._measure_vectors(lambda vectors: torch.linalg.vector_norm(vectors.sub_(self.output), dim=-1))
        squares = (
            self.output.square().sum(-1, keepdim=True) - 2 * self._products_with_output() + self._squared_lengths()
        )
        return squares.clamp_min(0).sqrt()

    def _squared_lengths(self) -> Tensor:
        """||T_i(j)||_2^2 [query, key]."""
        weights = (self.attention * self.scale[:, None]).permute(2, 0, 1).contiguous()  # [key, head, query]
        vectors = self.vectors.transpose(0, 1)  # [key, head, dim]
        gram = vectors @ vectors.transpose(-1, -2)  # [key, head, head]
        squares = ((gram @ weights) * weights).sum(1).T  # [query, key]
        with_residual = (vectors @ self.residual[:, :, None])[:, :, 0]  # [key, head] <f_j^h, r_j>
        cross = (weights.diagonal(dim1=0, dim2=2).T * with_residual).sum(-1)
        return squares + torch.diag(2 * cross + self.residual.square().sum(-1))

    def _products_with_output(self) -> Tensor:
        """<y_i, T_i(j)> [query, key], computed in the head dimensions."""
        products = (self.output @ self.weight.transpose(-1, -2)) @ self.values.transpose(-1, -2)  # [head, query, key]
        mixed = (self.attention * products).sum(0) * self.scale[:, None]
        return mixed + torch.diag((self.output * self.residual).sum(-1))

    def _measure_vectors(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """`measure` of the vectors T [key, query, dim], as [query, key]; computed for a few keys at a time."""
        weights = (self.attention * self.scale[:, None]).permute(2, 1, 0).contiguous()  # [key, query, head]
        vectors = None if self.gate is not None else self.vectors.transpose(0, 1).contiguous()  # [key, head, dim]
        tokens, width = self.output.shape
        elements = CHUNK * (torch.get_num_threads() if self.output.device.type == "cpu" else 100)
        keys_at_once = min(tokens, max(1, elements // (tokens * width)))
        buffer = self.output.new_empty(keys_at_once, tokens, width)  # [key, query, dim]
        measured = self.output.new_empty(tokens, tokens)  # [key, query]
        for first in range(0, tokens, keys_at_once):
            keys = slice(first, min(first + keys_at_once, tokens))
            out = buffer[: keys.stop - first]
            if vectors is None:
                torch.matmul(self._gated(weights[keys], keys), self.weight.flatten(0, 1), out=out)
            else:
                torch.bmm(weights[keys], vectors[keys], out=out)
            own = torch.arange(first, keys.stop, device=out.device)
            out[own - first, own] += self.residual[keys]
            measured[keys] = measure(out)
        return measured.T

    def _gated(self, weights: Tensor, keys: slice) -> Tensor:
        """The inputs of the projection [key, query, head * head dim], with the gate of the query."""
        assert self.gate is not None
        values = self.values[:, keys].transpose(0, 1)[:, None]  # [key, 1, head, head dim]
        return (weights[..., None] * self.gate * values).flatten(2)


Matrix = Callable[[Layer], Tensor]  # a layer of one text -> [query, key]


@dataclass(frozen=True)
class AttentionOutput:
    """The attention output of a block and the factors it is made of, for all texts of a batch."""

    structure: block_structure.BlockStructure
    weight: Tensor  # W_O with the linear parts of the norms around it [head, head dim, dim]
    gate: Tensor | None  # factor of the heads' outputs [batch, token, head, head dim]
    head_scale: Tensor  # factor of a norm of the heads' outputs [batch, token]; 1 without a norm
    output: Tensor  # of the attention, bias included [batch, token, dim]
    norms: tuple[Norm | None, ...]  # of the branch, after the residual sum, at the block's end


def attention_output(
    structure: block_structure.BlockStructure, module: torch.nn.Module, block: Block, second: bool
) -> AttentionOutput:
    """The factors of a block's attention output; with `second`, including the norm at the block's end."""
    # Lengths are sums of squares: half precision would overflow.
    dtype = torch.promote_types(block.hidden.value.dtype, torch.float32)
    context = block.context.value.to(dtype)  # [batch, head, token, head dim]
    weight, bias = block_structure.projection(module, structure.projection, context.shape[1], context.shape[3])
    weight = weight.to(dtype)
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * head dim]
    head_scale = heads.new_ones(heads.shape[:2])
    flat, gate = weight.flatten(0, 1), None
    if structure.gated:
        projected = block.projected.value.to(dtype).view_as(heads)
        gate = torch.where(heads != 0, projected / heads, 0.0).unflatten(2, weight.shape[:2])
        heads = projected
    if structure.heads_norm is not None:
        norm = block_structure.norm_at(module, structure.heads_norm)
        head_scale, heads = 1 / norm.size(heads)[..., 0], norm(heads)
        weight = norm.linear_before(flat).view_as(weight)
    output = heads @ flat
    paths = (structure.branch_norm, structure.norm, structure.second_norm if second else None)
    norms = tuple(None if path is None else block_structure.norm_at(module, path) for path in paths)
    for norm in norms:
        weight = weight if norm is None else norm.linear(weight)
    return AttentionOutput(structure, weight, gate, head_scale, output if bias is None else output + bias, norms)


def contributions(trace: Trace, matrix: Matrix, second: bool = False) -> Callable[[Block], Tensor]:
    """A function from a block to its contributions [batch, query, key]; with `second`, after the block's last norm.

    `matrix` computes the contributions of one text.
    """
    structures, modules = known_structures(trace.model), layout_of(trace.model).holders(trace.model)
    if second and any(structure.second_norm is None for structure in structures):
        name = type(trace.model).__name__
        if any(structure.norm is None for structure in structures):
            raise RefusedValue(f"{name} has no norm after its blocks: it is not a post-norm model")
        raise UnsupportedModelError(
            f"the norm at the end of a block of {name} is needed, and it is recorded only for families that "
            "tokenlight/model/block_structure.py lists: add a line there (docs/adding-a-family.md)"
        )

    def contributions_of(block: Block) -> Tensor:
        attention = attention_output(structures[block.number], modules[block.number], block, second)
        matrices = attention.weight.new_zeros(len(trace.mask), trace.mask.shape[1], trace.mask.shape[1])
        for text, real in enumerate(trace.mask):  # text by text, because the vectors of a layer are large
            tokens = real.nonzero()[:, 0]
            matrices[text, tokens[:, None], tokens] = matrix(layer_of(block, attention, text, real))
        return matrices

    return contributions_of


def layer_of(block: Block, attention: AttentionOutput, text: int, mask: Tensor) -> Layer:
    """The terms of one text of the batch, without padding."""
    real = slice(None) if bool(mask.all()) else mask.nonzero()[:, 0]  # a slice makes no copy
    dtype, factor = attention.weight.dtype, attention.structure.scale
    state = block.hidden.value[text, real].to(dtype) * attention.structure.residual_scale  # [token, dim]
    branch_output, scale = attention.output[text, real], attention.head_scale[text, real]
    branch, norm, second = attention.norms
    if branch is not None:
        branch_output, scale = branch(branch_output), scale / branch.size(branch_output)[:, 0]
    layer = Layer(
        attention=block.attention.value[text][:, real][:, :, real].to(dtype),
        values=block.values.value[text][:, real].to(dtype),
        weight=attention.weight,
        scale=scale * factor,
        residual=state,
        output=state + branch_output * factor,
        gate=None if attention.gate is None else attention.gate[text, real],
    )
    if norm is not None:
        layer = after_norm(layer, norm, layer.output, norm(layer.output))
    if second is not None:
        before, after = block.second_norm.value, block.after.value
        before = before.reshape(after.shape)  # several families have one axis for batch and tokens there
        layer = after_norm(layer, second, before[text, real].to(dtype), after[text, real].to(dtype))
    return layer


def after_norm(layer: Layer, norm: Norm, before: Tensor, after: Tensor) -> Layer:
    """The same vectors after a norm from `before` to `after`, whose linear part is in the layer's weight already."""
    size = norm.size(before)
    return replace(layer, scale=layer.scale / size[:, 0], residual=norm.linear(layer.residual) / size, output=after)


def alti_matrix(layer: Layer, norm: str) -> Tensor:
    """Contributions [query, key] by closeness to the output; rows sum to 1 (Ferrando et al. 2022, eq. 9 and 10)."""
    size = torch.linalg.vector_norm(layer.output, {"l1": 1, "l2": 2}[norm], dim=-1, keepdim=True)
    return normalize((size - layer.distances(norm)).clamp_min(0) * reachable(layer))


def norm_matrix(layer: Layer) -> Tensor:
    """Contributions [query, key] by length; rows sum to 1 (Kobayashi et al. 2021)."""
    return normalize(layer.vector_lengths() * reachable(layer))


def reachable(layer: Layer) -> Tensor:
    """The positions that a position can receive from: those that it attends to and itself, as booleans [query, key]."""
    return (layer.attention.sum(0) > 0) | torch.eye(len(layer.output), dtype=torch.bool, device=layer.output.device)


def normalize(matrix: Tensor) -> Tensor:
    """Rows divided by their sums; a row of zeros becomes 1 at its own position."""
    sums = matrix.sum(-1, keepdim=True)
    identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return torch.where(sums == 0, identity, matrix / sums)
