"""Protection of buffers: a write is refused before it happens, because the copy shares them with the user's model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokenlight._compat.torch_internals import storage_of
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.rules.ops import op_spec


class ProtectBuffers(TorchFunctionMode):
    """Refuse every operation that writes into a buffer of a model, also through a view of it or through `.data`."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self._names = {storage_of(buffer): name for name, buffer in model.named_buffers()}
        self._names.pop(0, None)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        targets = [args[0]] if args and writes_in_place(func) else []
        if "out" in kwargs:
            targets.append(kwargs["out"])
        for tensor in targets:
            name = self._names.get(storage_of(tensor)) if isinstance(tensor, Tensor) else None
            if name is not None:
                raise UnsupportedModelError(
                    f"the model writes into its buffer {name} whenever it runs. tokenlight runs a copy that shares it, "
                    "so your model would change with every explanation. Turn the update off in eval mode, or let the "
                    "module assign a new tensor in place of writing into the buffer"
                )
        return func(*args, **kwargs)


def writes_in_place(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return op_spec(func).plain_form is not None or (name.endswith("_") and not name.endswith("__"))
