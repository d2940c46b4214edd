"""How much of a position's new state comes from each position, in one layer. No token x token x width tensor is kept.

An attention block's output at position i is a sum over positions j of vectors
    T_i(j) = s_i * sum_h A[h, i, j] f_j^h + [i = j] r_i        f_j^h = W_O^h v_j^h, r_i = what the residual carries
with the norms that follow taken as linear maps at their real scale (Kobayashi et al. 2021; Ferrando et al. 2022).
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

CHUNK = 400_000  # elements of token x token x width that exist at a time for each core: what its cache holds


@dataclass(frozen=True)
class Layer:
    """The terms of T for one text without padding."""

    attention: Tensor  # A [head, query, key]
    values: Tensor  # v [head, key, head dim]
    weight: Tensor  # W_O with the linear parts of the norms behind it [head, head dim, dim]
    scale: Tensor  # s [query]
    residual: Tensor  # r [query, dim]
    output: Tensor  # y [query, dim], the real state that the vectors and biases sum to
    gate: Tensor | None = None  # g [query, head, head dim], a constant: heads' outputs are multiplied with it

    @cached_property
    def vectors(self) -> Tensor:
        """f [head, key, dim]"""
        return self.values @ self.weight

    def vector_lengths(self) -> Tensor:
        """||T_i(j)||_2 [query, key], from the Gram matrices of the heads alone."""
        if self.gate is not None:
            return self._each(lambda sent: torch.linalg.vector_norm(sent, dim=-1))
        return self._squared_lengths().clamp_min(0).sqrt()

    def distances(self, norm: str) -> Tensor:
        """||y_i - T_i(j)|| [query, key]."""
        if norm == "l1":
            return self._each(lambda sent: sent.sub_(self.output).abs_().sum(-1))
        if self.gate is not None:
            return self._each(lambda sent: torch.linalg.vector_norm(sent.sub_(self.output), dim=-1))
        squares = self.output.square().sum(-1, keepdim=True) - 2 * self._along_output() + self._squared_lengths()
        return squares.clamp_min(0).sqrt()

    def _squared_lengths(self) -> Tensor:
        weights = (self.attention * self.scale[:, None]).permute(2, 0, 1).contiguous()  # [key, head, query]
        vectors = self.vectors.transpose(0, 1)  # [key, head, dim]
        gram = vectors @ vectors.transpose(-1, -2)  # [key, head, head]
        squares = ((gram @ weights) * weights).sum(1).T  # [query, key]
        own = (vectors @ self.residual[:, :, None])[:, :, 0]  # [key, head]: with the residual at its own position
        cross = (weights.diagonal(dim1=0, dim2=2).T * own).sum(-1)
        return squares + torch.diag(2 * cross + self.residual.square().sum(-1))

    def _along_output(self) -> Tensor:
        """<y_i, T_i(j)> [query, key], in the heads' own small spaces."""
        along = (self.output @ self.weight.transpose(-1, -2)) @ self.values.transpose(-1, -2)  # [head, query, key]
        mixed = (self.attention * along).sum(0) * self.scale[:, None]
        return mixed + torch.diag((self.output * self.residual).sum(-1))

    def _each(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """[query, key] of T [key, query, dim], made for some keys at a time: each product stays in the cache."""
        weights = (self.attention * self.scale[:, None]).permute(2, 1, 0).contiguous()  # [key, query, head]
        vectors = None if self.gate is not None else self.vectors.transpose(0, 1).contiguous()  # [key, head, dim]
        tokens, width = self.output.shape
        elements = CHUNK * (torch.get_num_threads() if self.output.device.type == "cpu" else 100)
        some = min(tokens, max(1, elements // (tokens * width)))
        buffer = self.output.new_empty(some, tokens, width)  # [key, query, dim]
        measured = self.output.new_empty(tokens, tokens)  # [key, query]
        for first in range(0, tokens, some):
            keys = slice(first, min(first + some, tokens))
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
        """[key, query, head * head dim]: what arrives at the projection, with a gate that is the query's."""
        assert self.gate is not None
        values = self.values[:, keys].transpose(0, 1)[:, None]  # [key, 1, head, head dim]
        return (weights[..., None] * self.gate * values).flatten(2)


Matrix = Callable[[Layer], Tensor]  # of one text: [query, key]


@dataclass(frozen=True)
class Joined:
    """How a block brings heads together, for all texts of a batch at once."""

    structure: block_structure.BlockStructure
    weight: Tensor  # W_O with the linear parts of the norms around it [head, head dim, dim]
    gate: Tensor | None  # on the heads' outputs [batch, token, head, head dim]
    head_scale: Tensor  # what a norm of the heads' outputs divides by, as a factor [batch, token]; 1 without one
    output: Tensor  # of the attention, bias included [batch, token, dim]
    norms: tuple[Norm | None, ...]  # of the branch, behind the sum, at the block's end


def join_heads(known: block_structure.BlockStructure, module: torch.nn.Module, block: Block, second: bool) -> Joined:
    # Lengths are sums of squares: half precision would overflow.
    dtype = torch.promote_types(block.hidden.value.dtype, torch.float32)
    context = block.context.value.to(dtype)  # [batch, head, token, head dim]
    weight, bias = block_structure.projection(module, known.projection, context.shape[1], context.shape[3])
    weight = weight.to(dtype)
    heads = context.transpose(1, 2).flatten(2)  # [batch, token, head * head dim]
    head_scale = heads.new_ones(heads.shape[:2])
    flat, gate = weight.flatten(0, 1), None
    if known.gated:
        projected = block.projected.value.to(dtype).view_as(heads)
        gate = torch.where(heads != 0, projected / heads, 0.0).unflatten(2, weight.shape[:2])
        heads = projected
    if known.heads_norm is not None:
        norm = block_structure.norm_at(module, known.heads_norm)
        head_scale, heads = 1 / norm.size(heads)[..., 0], norm(heads)
        weight = norm.linear_before(flat).view_as(weight)
    output = heads @ flat
    paths = (known.branch_norm, known.norm, known.second_norm if second else None)
    norms = tuple(None if path is None else block_structure.norm_at(module, path) for path in paths)
    for norm in norms:
        weight = weight if norm is None else norm.linear(weight)
    return Joined(known, weight, gate, head_scale, output if bias is None else output + bias, norms)


def contributions(trace: Trace, matrix: Matrix, second: bool = False) -> Callable[[Block], Tensor]:
    """What gives the `matrix` of a block, [batch, query, key]; with `second`, seen after the block's last norm."""
    known, modules = known_structures(trace.model), layout_of(trace.model).holders(trace.model)
    if second and any(one.second_norm is None for one in known):
        name = type(trace.model).__name__
        if any(one.norm is None for one in known):
            raise RefusedValue(f"{name} has no norm after its blocks: it is not a post-norm model")
        raise UnsupportedModelError(
            f"the norm at the end of a block of {name} is needed, and it is recorded only for families that "
            "tokenlight/model/block_structure.py lists: add a line there (docs/adding-a-family.md)"
        )

    def of(block: Block) -> Tensor:
        joined = join_heads(known[block.number], modules[block.number], block, second)
        every = joined.weight.new_zeros(len(trace.mask), trace.mask.shape[1], trace.mask.shape[1])
        for row, real in enumerate(trace.mask):  # text by text: the vectors of a layer are large
            place = real.nonzero()[:, 0]
            every[row, place[:, None], place] = matrix(layer_of(block, joined, row, real))
        return every

    return of


def layer_of(block: Block, joined: Joined, row: int, mask: Tensor) -> Layer:
    real = slice(None) if bool(mask.all()) else mask.nonzero()[:, 0]  # a slice copies nothing
    dtype, factor = joined.weight.dtype, joined.structure.scale
    state = block.hidden.value[row, real].to(dtype) * joined.structure.residual_scale  # [token, dim]
    branch_output, scale = joined.output[row, real], joined.head_scale[row, real]
    branch, norm, second = joined.norms
    if branch is not None:
        branch_output, scale = branch(branch_output), scale / branch.size(branch_output)[:, 0]
    layer = Layer(
        attention=block.attention.value[row][:, real][:, :, real].to(dtype),
        values=block.values.value[row][:, real].to(dtype),
        weight=joined.weight,
        scale=scale * factor,
        residual=state,
        output=state + branch_output * factor,
        gate=None if joined.gate is None else joined.gate[row, real],
    )
    if norm is not None:
        layer = behind(layer, norm, layer.output, norm(layer.output))
    if second is not None:
        before, after = block.second_norm.value, block.after.value
        before = before.reshape(after.shape)  # some families fold batch and tokens into one axis there
        layer = behind(layer, second, before[row, real].to(dtype), after[row, real].to(dtype))
    return layer


def behind(layer: Layer, norm: Norm, before: Tensor, after: Tensor) -> Layer:
    """The same vectors behind a norm whose real input is `before`; the weight has its linear part already."""
    size = norm.size(before)
    return replace(layer, scale=layer.scale / size[:, 0], residual=norm.linear(layer.residual) / size, output=after)


def alti_matrix(layer: Layer, norm: str) -> Tensor:
    """[query, key] contributions by closeness to the output, rows sum to 1 (Ferrando et al. 2022, eq. 9 and 10)."""
    size = torch.linalg.vector_norm(layer.output, {"l1": 1, "l2": 2}[norm], dim=-1, keepdim=True)
    return normalize((size - layer.distances(norm)).clamp_min(0) * reached(layer))


def norm_matrix(layer: Layer) -> Tensor:
    """[query, key] contributions by length, rows sum to 1 (Kobayashi et al. 2021)."""
    return normalize(layer.vector_lengths() * reached(layer))


def reached(layer: Layer) -> Tensor:
    """Where anything can come from: attended positions and the position itself."""
    return (layer.attention.sum(0) > 0) | torch.eye(len(layer.output), dtype=torch.bool, device=layer.output.device)


def normalize(matrix: Tensor) -> Tensor:
    """Rows sum to 1; a row without any contribution keeps its own position."""
    sums = matrix.sum(-1, keepdim=True)
    own = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return torch.where(sums == 0, own, matrix / sums)
