"""The torch modes of a pass: none of the caller's, and double precision where modeling code casts to float32."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tokenlight.rules.custom_ops import IMPLEMENTATIONS
from tokenlight.rules.ops import op_spec

NARROW = {torch.float32, torch.float16, torch.bfloat16}
LARGEST = torch.finfo(torch.float32).max


@contextmanager
def without_caller_modes(device: torch.device | None = None) -> Iterator[None]:
    """Disable the caller's inference mode and default device, and the caller's autocast on a device.

    Inference tensors cannot take part in a backward pass, autocast would change what a pass computes, and tensors that
    are made without a device are meant to be on the CPU.
    """
    with (
        torch.inference_mode(False),
        nullcontext() if device is None else torch.autocast(device.type, enabled=False),
        torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext(),
    ):
        yield


class KeepDouble(TorchFunctionMode):
    """While this is active, doubles are not cast to narrower floats, and arguments beside a double are widened."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        spec, kwargs = op_spec(func), kwargs or {}
        if kwargs.get("dtype") in NARROW and args and getattr(args[0], "dtype", None) == torch.float64:
            kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}  # softmax(scores, dtype=...)
        if spec.casts_double and args[0].dtype == torch.float64:
            dtypes = {arg for arg in (*args[1:], *kwargs.values()) if isinstance(arg, torch.dtype)}
            if func is Tensor.float or dtypes & NARROW:
                return args[0]
        if func in IMPLEMENTATIONS:  # a custom op: the mode is off in this method, but must be on inside the op
            with self:
                return IMPLEMENTATIONS[func](*args, **kwargs)
        if args and is_double(args[0]) and kwargs.get("dtype") in NARROW:  # of a softmax or a sum
            kwargs = {**kwargs, "dtype": torch.float64}
        if spec.infers_dtype and kwargs.get("dtype") is None and any(map(is_too_large, args)):  # such as a mask
            kwargs = {**kwargs, "dtype": torch.float64}
        if spec.kind == "product" and any(map(is_too_large, args)):
            args = [arg.double() if isinstance(arg, Tensor) else arg for arg in args]
        if spec.strict_dtype and any(is_double(arg) for arg in (*args, *kwargs.values())):
            args, kwargs = [widened(arg) for arg in args], {name: widened(arg) for name, arg in kwargs.items()}
        return func(*args, **kwargs)


def is_double(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.dtype == torch.float64


def is_too_large(arg: Any) -> bool:
    """Whether a number is finite but overflows single precision, as the least double does, which masks hold."""
    return isinstance(arg, float) and LARGEST < abs(arg) < torch.inf


def widened(arg: Any) -> Any:
    return arg.double() if isinstance(arg, Tensor) and arg.dtype in NARROW else arg
