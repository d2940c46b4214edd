"""Double precision that stays double: RMSNorm and rotary code cast to float32 inside."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CASTS: set[Callable[..., Any]] = {Tensor.to, Tensor.float, Tensor.type}


class KeepDouble(TorchFunctionMode):
    """Casting a double to float32 does nothing while this is active."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in CASTS and args[0].dtype == torch.float64:
            narrow = func is Tensor.float or torch.float32 in args[1:] or kwargs.get("dtype") is torch.float32
            if narrow:
                return args[0]
        return func(*args, **kwargs)
