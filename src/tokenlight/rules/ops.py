"""Facts about torch functions, one line per operation, for the strict mode, the rule tables and the model.

Adding an operation means adding a line to `OPERATIONS`. Python's operators reach a mode as the functions listed here:
`2 * x` as Tensor.mul, `x @ y` as Tensor.matmul, `x > 0` as Tensor.gt.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenlight.rules import custom_ops, decompositions

Function = Callable[..., Any]


# Operations of one kind have the same rule in a rule table.
Kind = Literal[
    "activation",  # also functions that occur in formulas of activations
    "linear_layer",
    "sum",
    "difference",
    "product",  # element by element
    "quotient",
    "matrix_product",
    "softmax",
    "logsumexp",
    "norm",
    "scale",  # functions with which norms compute their divisor
    "move",  # selects, moves or copies elements
    "cast",  # the same elements in another dtype or on another device
    "extreme",  # selects the largest or smallest elements
    "clip",
    "join",  # puts elements of several tensors, or of a tensor and numbers, side by side
    "convolution",
    "transform",  # a sum with constant coefficients
    "comparison",
    "metadata",  # reads the shape, dtype or device of a tensor, and no elements
    "other",
]
# How a function that moves or adds elements affects the order of a batch's examples in memory.
ExampleOrder = Literal[
    "within",  # moves elements within examples
    "transposed",  # moves axes: another order unless the first axis keeps its size and stride
    "resized",  # the same order if the first axis keeps its size
    "stacked",  # the same, for a list of tensors
    "indexed",  # depends on the index: Tensor.__getitem__
    "selected",  # another order
    "einsum",  # depends on the equation
    "summed",  # adds elements, possibly of several examples
    "first",  # the order of the first argument, into which elements of others are written
]
MOVING = ("within", "transposed", "resized", "stacked", "indexed", "selected")


class OpSpec(NamedTuple):
    """Facts about a torch function."""

    kind: Kind = "other"
    plain_form: Function | None = None  # of an in-place function: the function whose result it writes
    decompose: Callable[..., Any] | None = None  # rewrites a call without a rule as calls of simpler operations
    linear: bool = False  # in its only signal: the plain gradient is right

    # The order of examples in memory.
    order: ExampleOrder | None = None  # None: works element by element, or reads no elements
    moves_elements: bool = False  # only moves elements, so that it can be applied to a tensor of example ids, too
    may_reorder: bool = False  # may change the order of examples

    adds_up: bool = False  # adds elements of a tensor to each other
    adds_at: bool = False  # adds elements of a tensor to selected elements of another

    # Whether results have the tags of the arguments.
    keeps_gate: bool = False  # a gate stays one if moved, scaled by a constant, clipped or with a constant added
    keeps_weight: bool = False  # a weight stays one if moved, scaled, masked or with a constant added
    keeps_map: bool = False  # an attention map stays one, if its last two axes are kept
    compares: bool = False  # compares elements with numbers or with each other
    keeps_comparison: bool = False  # the result of a comparison still refers to the same elements
    first_decides: bool = False  # only the first argument determines whether the result is a gate
    new_source: bool = False  # mixes elements of several positions, or reads none: the result has a new origin
    source_of_first: bool = False  # the result has the origin of the first argument
    slices: bool = False  # the result is a slice of the argument, and so is its origin

    # Activations written out in several operations.
    ends_activation: bool = False  # may multiply a signal with a gate computed from it
    ends_with_gate: bool = False  # may do so if exactly one argument is a gate
    chooses: bool = False  # may select elements by the signal's sign
    bounds: bool = False  # may bound a signal at 0
    saturates: bool = False  # an activation bounded on both sides, or a function in formulas: never a ReLU
    exponential: bool = False
    power: bool = False

    # Precision.
    strict_dtype: bool = False  # requires arguments of one dtype; other functions promote them
    casts_double: bool = False  # may cast a double to float32, because modeling code casts to gain precision
    infers_dtype: bool = False  # creates a tensor whose dtype does not depend on the size of a number


# Facts about all operations of a kind; a line of the table may override them.
FACTS: dict[Kind, dict[str, Any]] = {
    "linear_layer": {"linear": True, "new_source": True, "strict_dtype": True},
    "sum": {"linear": True, "keeps_gate": True, "keeps_weight": True, "ends_with_gate": True},
    "difference": {"decompose": decompositions.difference, "linear": True, "keeps_weight": True},
    "product": {
        **{"keeps_gate": True, "keeps_weight": True, "keeps_map": True},
        **{"ends_activation": True, "chooses": True},
    },
    "quotient": {"keeps_gate": True, "keeps_weight": True, "first_decides": True, "ends_with_gate": True},
    "matrix_product": {"new_source": True, "strict_dtype": True},
    "softmax": {"new_source": True},
    "logsumexp": {"new_source": True},
    "norm": {"new_source": True},
    "move": {
        **{"linear": True, "order": "within"},
        **{"keeps_gate": True, "keeps_weight": True, "first_decides": True},
    },
    "cast": {
        **{"linear": True, "keeps_gate": True, "keeps_weight": True, "first_decides": True},
        **{"keeps_map": True, "keeps_comparison": True},
    },
    "extreme": {"linear": True, "bounds": True},
    "clip": {"keeps_gate": True, "keeps_weight": True, "bounds": True},
    "join": {"linear": True, "keeps_weight": True},
    "convolution": {"new_source": True, "strict_dtype": True},
    "transform": {"linear": True},
    "comparison": {"compares": True},
    "metadata": {"new_source": True},
}


class Operation(NamedTuple):
    """One line of the table: the functions that compute an operation, and facts about it."""

    functions: tuple[Function, ...]
    spec: OpSpec
    in_place: Function | None  # writes the result of the first function into its argument


def op(kind: Kind, *functions: Function, in_place: Function | None = None, **facts: Any) -> Operation:
    """One line of the table; `facts` are fields of `OpSpec` that differ from those of the kind."""
    facts = {**FACTS.get(kind, {}), **facts}
    moves_elements = facts.get("order") in MOVING
    may_reorder = moves_elements or facts.get("order") == "einsum"
    spec = OpSpec(kind, moves_elements=moves_elements, may_reorder=may_reorder, **facts)
    return Operation(functions, spec, in_place)


def getter(name: str) -> Function:
    """The function that a TorchFunctionMode receives when an attribute of a tensor is read."""
    return getattr(Tensor, name).__get__


OPERATIONS = (
    # Activations of transformers are wrapped as the custom op `activation`; those of torch are these functions.
    op("activation", custom_ops.activation),
    op("activation", F.gelu),
    op("activation", F.silu),
    op("activation", F.mish),
    op("activation", F.relu),
    op("activation", torch.relu, in_place=torch.relu_),
    op("activation", Tensor.relu, in_place=Tensor.relu_),
    op("activation", F.relu6),
    op("activation", F.leaky_relu, in_place=F.leaky_relu_),
    op("activation", F.prelu),
    op("activation", F.rrelu),
    op("activation", F.elu, in_place=F.elu_),
    op("activation", F.selu, in_place=F.selu_),
    op("activation", F.celu, in_place=F.celu_),
    op("activation", F.threshold),
    op("activation", F.hardtanh, in_place=F.hardtanh_),
    op("activation", F.hardswish),
    op("activation", F.hardshrink),
    op("activation", F.softshrink),
    op("activation", F.tanhshrink),
    op("activation", F.softplus),
    op("activation", F.logsigmoid),
    op("activation", F.hardsigmoid, saturates=True),
    op("activation", F.softsign, saturates=True),
    op("activation", Tensor.tanh, torch.tanh, in_place=Tensor.tanh_, saturates=True),
    op("activation", Tensor.sigmoid, torch.sigmoid, torch.special.expit, in_place=Tensor.sigmoid_, saturates=True),
    op("activation", Tensor.erf, torch.erf, torch.special.erf, in_place=Tensor.erf_, saturates=True),
    op("activation", Tensor.exp, torch.exp, in_place=Tensor.exp_, saturates=True, exponential=True),
    op("activation", Tensor.expm1, torch.expm1, saturates=True),
    op("activation", Tensor.log, torch.log, in_place=Tensor.log_, saturates=True),
    op("activation", Tensor.log1p, torch.log1p, saturates=True),
    # Linear layers.
    op("linear_layer", F.linear, decompose=decompositions.linear),
    op("linear_layer", torch.addmm, decompose=decompositions.addmm),  # as in GPT-2's Conv1D
    op("other", Tensor.addmm, decompose=decompositions.addmm, new_source=True, strict_dtype=True),
    op("other", custom_ops.weight_product, linear=True, new_source=True),
    op(
        "other",
        Tensor.baddbmm,
        torch.baddbmm,
        in_place=Tensor.baddbmm_,
        decompose=decompositions.baddbmm,
        new_source=True,
        strict_dtype=True,
    ),
    # Sums, products and quotients.
    op("sum", Tensor.add, torch.add, in_place=Tensor.add_),
    op("difference", Tensor.sub, torch.sub, in_place=Tensor.sub_),
    op("difference", Tensor.subtract, torch.subtract, in_place=Tensor.subtract_),
    op("other", Tensor.__rsub__, torch.rsub, decompose=decompositions.reversed_difference),
    op("product", Tensor.mul, torch.mul, in_place=Tensor.mul_),
    op("product", Tensor.multiply, torch.multiply, in_place=Tensor.multiply_),
    op("other", F.glu, decompose=decompositions.glu),
    op("quotient", Tensor.div, torch.div, in_place=Tensor.div_),
    op("quotient", Tensor.divide, torch.divide, in_place=Tensor.divide_),
    op("quotient", Tensor.true_divide, torch.true_divide, in_place=Tensor.true_divide_),
    op("matrix_product", Tensor.matmul, torch.matmul, Tensor.__rmatmul__),
    op("matrix_product", Tensor.bmm, torch.bmm),
    op("matrix_product", Tensor.mm, torch.mm),
    op("matrix_product", torch.einsum, order="einsum"),
    op("other", Tensor.mv, torch.mv, strict_dtype=True),
    op("other", Tensor.dot, torch.dot, strict_dtype=True),
    op("other", F.bilinear, strict_dtype=True),
    op("other", torch.linalg.solve_triangular, strict_dtype=True),
    # Attention.
    op("softmax", Tensor.softmax, torch.softmax, F.softmax),
    op("logsumexp", Tensor.logsumexp, torch.logsumexp),
    op("other", F.log_softmax, new_source=True),
    op("other", F.scaled_dot_product_attention, strict_dtype=True),
    op("other", custom_ops.query_key, custom_ops.mix_values, custom_ops.attend, new_source=True),
    op("other", custom_ops.scan, custom_ops.recurrence, new_source=True),
    # Norms, and operations in their formulas.
    op("norm", F.layer_norm, strict_dtype=True),
    op("norm", F.group_norm, strict_dtype=True),
    op("norm", F.rms_norm, decompose=decompositions.rms_norm, strict_dtype=True),
    op("norm", F.normalize, decompose=decompositions.normalize),
    op("other", F.batch_norm, F.instance_norm, strict_dtype=True),
    op("scale", Tensor.pow, torch.pow, Tensor.__pow__, in_place=Tensor.pow_, power=True),
    op("scale", Tensor.square, torch.square, in_place=Tensor.square_, power=True),
    op("scale", Tensor.sqrt, torch.sqrt, in_place=Tensor.sqrt_),
    op("scale", Tensor.rsqrt, torch.rsqrt, in_place=Tensor.rsqrt_),
    op("scale", Tensor.var, torch.var, new_source=True),
    op("scale", Tensor.std, torch.std, new_source=True),
    op("scale", Tensor.norm, torch.norm, torch.linalg.norm, torch.linalg.vector_norm, new_source=True),
    # Elements are selected, moved or copied.
    op("move", Tensor.__getitem__, order="indexed", slices=True),
    op("move", Tensor.clone, torch.clone, keeps_map=True),
    op("move", Tensor.contiguous, keeps_map=True),
    op("move", Tensor.reshape, torch.reshape, keeps_map=True),
    op("move", Tensor.view, keeps_map=True),
    op("move", Tensor.view_as, Tensor.reshape_as, source_of_first=True),
    op("move", Tensor.flatten, torch.flatten),
    op("move", Tensor.unflatten, torch.unflatten),
    op("move", Tensor.squeeze, torch.squeeze),
    op("move", Tensor.unsqueeze, torch.unsqueeze),
    op("move", Tensor.diagonal, torch.diagonal),
    op("move", Tensor.as_strided, torch.as_strided),
    op("move", Tensor.unfold),
    op("move", F.unfold, order=None),
    op("move", F.dropout, decompose=decompositions.dropout, keeps_map=True, order=None),  # the model is in eval mode
    op("move", Tensor.transpose, torch.transpose, order="transposed"),
    op("move", Tensor.swapaxes, torch.swapaxes, order="transposed"),
    op("move", Tensor.permute, torch.permute, order="transposed"),
    op("move", Tensor.movedim, torch.movedim, order="transposed"),
    op("move", Tensor.t, torch.t, getter("T"), getter("mT"), order="transposed"),
    op("move", Tensor.expand, order="resized"),
    op("move", Tensor.expand_as, order="resized", source_of_first=True),
    op("move", Tensor.broadcast_to, torch.broadcast_to, order="resized"),
    op("move", Tensor.repeat, order="resized"),
    op("move", Tensor.repeat_interleave, torch.repeat_interleave, order="resized"),
    op("move", Tensor.tile, torch.tile, order="resized"),
    op("move", Tensor.split, torch.split, order="resized", slices=True),
    op("move", Tensor.chunk, torch.chunk, order="resized", slices=True),
    op("move", Tensor.unbind, torch.unbind, order="resized", slices=True),
    op("move", Tensor.narrow, torch.narrow, order="resized", slices=True),
    op("move", Tensor.select, torch.select, order="resized", slices=True),
    op("move", Tensor.index_select, torch.index_select, order="selected"),
    op("move", Tensor.gather, torch.gather, order="selected"),
    op("move", Tensor.take_along_dim, torch.take_along_dim, order="selected"),
    op("move", Tensor.roll, torch.roll, order="selected"),
    op("move", Tensor.flip, torch.flip, order="selected"),
    op("move", Tensor.topk, torch.topk, order=None),
    op("move", Tensor.sort, torch.sort, order=None),
    op("other", Tensor.__iter__, decompose=decompositions.iterate),
    op("other", Tensor.detach, Tensor.requires_grad_, linear=True),
    op("cast", Tensor.to, source_of_first=True, casts_double=True),
    op("cast", Tensor.type, Tensor.float, casts_double=True),
    op("cast", Tensor.type_as, source_of_first=True),
    op("cast", Tensor.double, Tensor.half, Tensor.bfloat16),
    op("cast", Tensor.cpu, Tensor.cuda),
    # Elements are chosen, clipped or joined.
    op("extreme", Tensor.max, torch.max),
    op("extreme", Tensor.min, torch.min),
    op("extreme", Tensor.amax, torch.amax),
    op("extreme", Tensor.amin, torch.amin),
    op("clip", Tensor.clamp, torch.clamp, in_place=Tensor.clamp_),
    op("clip", Tensor.clamp_min, torch.clamp_min, in_place=Tensor.clamp_min_),
    op("clip", Tensor.clamp_max, torch.clamp_max, in_place=Tensor.clamp_max_),
    op("clip", Tensor.clip, torch.clip),
    op("clip", Tensor.maximum, torch.maximum),
    op("clip", Tensor.minimum, torch.minimum),
    op("join", torch.cat, torch.concat, torch.concatenate, order="stacked", new_source=True),
    op("join", torch.stack, torch.hstack, torch.vstack, order="stacked", new_source=True),
    op("join", F.pad),
    op("join", Tensor.where, torch.where, chooses=True),
    op(
        "join",
        Tensor.masked_fill,
        torch.masked_fill,
        in_place=Tensor.masked_fill_,
        order="first",
        chooses=True,
        keeps_map=True,
    ),
    op("join", Tensor.index_put, torch.index_put, in_place=Tensor.index_put_, order="first", chooses=True),
    op("join", custom_ops.replaced, in_place=Tensor.__setitem__, order="first", chooses=True),
    op("join", custom_ops.copied, in_place=Tensor.copy_, order="first"),
    op("join", Tensor.masked_scatter, torch.masked_scatter, in_place=Tensor.masked_scatter_, order="first"),
    op("join", Tensor.scatter, torch.scatter, in_place=Tensor.scatter_, order="first"),
    op("join", Tensor.scatter_add, torch.scatter_add, in_place=Tensor.scatter_add_, order="first", adds_at=True),
    op("join", Tensor.index_add, torch.index_add, in_place=Tensor.index_add_, order="first", adds_at=True),
    op("join", Tensor.index_copy, torch.index_copy, in_place=Tensor.index_copy_, order="first"),
    op("other", F.embedding, new_source=True),
    # Sums with constant coefficients.
    op("convolution", F.conv1d, F.conv2d),
    op("transform", Tensor.neg, torch.neg, in_place=Tensor.neg_, keeps_weight=True),
    op("transform", Tensor.sum, torch.sum, order="summed", new_source=True, adds_up=True),
    op("transform", Tensor.mean, torch.mean, order="summed", new_source=True, adds_up=True),
    op("transform", Tensor.cumsum, torch.cumsum, in_place=Tensor.cumsum_, new_source=True, adds_up=True),
    op("transform", Tensor.tril, torch.tril, in_place=Tensor.tril_),
    op("transform", Tensor.triu, torch.triu, in_place=Tensor.triu_),
    op("transform", F.avg_pool1d, F.avg_pool2d, adds_up=True),
    op("transform", torch.fft.fft, torch.fft.ifft, torch.fft.fft2, torch.fft.ifft2, torch.fft.fftn, torch.fft.ifftn),
    op("transform", torch.fft.rfft, torch.fft.irfft),
    op("transform", torch.view_as_complex, torch.view_as_real),
    op("transform", torch.real, torch.imag, getter("real"), getter("imag")),
    # Comparisons, and operations on their results.
    op("comparison", Tensor.gt, torch.gt, Tensor.greater, torch.greater),
    op("comparison", Tensor.ge, torch.ge, Tensor.greater_equal, torch.greater_equal),
    op("comparison", Tensor.lt, torch.lt, Tensor.less, torch.less),
    op("comparison", Tensor.le, torch.le, Tensor.less_equal, torch.less_equal),
    op("other", Tensor.bool, keeps_comparison=True),
    op("other", Tensor.logical_not, torch.logical_not, keeps_comparison=True),
    op("other", Tensor.bitwise_not, torch.bitwise_not, Tensor.__invert__, keeps_comparison=True),
    # New tensors, and facts about tensors.
    op("other", torch.zeros_like, torch.ones_like, torch.full_like, torch.empty_like, new_source=True),
    op("other", torch.rand_like, torch.randn_like, new_source=True),
    op("other", torch.tensor, torch.full, infers_dtype=True),
    op("metadata", getter("shape"), getter("device"), getter("dtype"), getter("ndim")),
)

OPS: dict[Function, OpSpec] = {
    **{function: line.spec for line in OPERATIONS for function in line.functions},
    **{line.in_place: OpSpec(plain_form=line.functions[0]) for line in OPERATIONS if line.in_place is not None},
}
UNKNOWN = OpSpec()


def op_spec(function: Function) -> OpSpec:
    """The facts about a function; the default ones if it is not in the table."""
    return OPS.get(function, UNKNOWN)


def functions_of(*kinds: Kind) -> tuple[Function, ...]:
    """All functions of these kinds."""
    return tuple(function for function, spec in OPS.items() if spec.kind in kinds)


def functions_where(fact: str) -> tuple[Function, ...]:
    """All functions for which a field of `OpSpec` is true."""
    return tuple(function for function, spec in OPS.items() if getattr(spec, fact))
