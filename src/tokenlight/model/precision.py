"""Double precision that stays double: RMSNorm and rotary code cast to float32 inside."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CASTS: set[Callable[..., Any]] = {Tensor.to, Tensor.float, Tensor.type}
NARROW = {torch.float32, torch.float16, torch.bfloat16}


class KeepDouble(TorchFunctionMode):
    """Casting a double to a narrower float does nothing while this is active."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") in NARROW and args and getattr(args[0], "dtype", None) == torch.float64:
            kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}  # softmax(scores, dtype=...)
        if func in CASTS and args[0].dtype == torch.float64:
            wanted = {arg for arg in (*args[1:], *kwargs.values()) if isinstance(arg, torch.dtype)}
            if func is Tensor.float or wanted & NARROW:
                return args[0]
        return func(*args, **kwargs)
