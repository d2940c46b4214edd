"""The sha256 of a model: its weights, configuration and tokenizer."""

import hashlib
import json
from typing import Any

import torch

from tokenlight._compat.torch_internals import forward_hooks, uncompiled_name
from tokenlight._compat.transformers_internals import CONFIG_PATH_KEY, tokenizer_json
from tokenlight.explain.explainer import Explainer
from tokenlight.model.private_copy import unpacked

BLOCK = 1 << 22
ADAPTER_SETTINGS = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")  # of PEFT's layers
# Entries of the config that depend on how the model was saved or loaded. Dtypes are hashed with the weights.
IGNORED_CONFIG = (CONFIG_PATH_KEY, "transformers_version", "architectures", "dtype")


def hash_model(explainer: Explainer) -> str:
    """The hash of the model in memory, which does not depend on where the model was loaded from."""
    model = explainer.inner
    digest = hashlib.sha256()
    config = {name: value for name, value in model.config.to_dict().items() if name not in IGNORED_CONFIG}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    tokenizer = json.loads(tokenizer_json(explainer.tokenizer))
    tokenizer |= {"truncation": None, "padding": None}  # calls of the tokenizer change these
    digest.update(json.dumps(tokenizer, sort_keys=True).encode())
    digest.update(json.dumps(reading_settings(explainer), sort_keys=True, default=str).encode())
    state = {uncompiled_name(name): tensor for name, tensor in model.state_dict().items()}
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = unpacked(tensor).detach().contiguous().cpu().reshape(-1)
        for block in flat.split(BLOCK):
            digest.update(block.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def reading_settings(explainer: Explainer) -> dict[str, Any]:
    """Everything that changes results and is neither in the weights nor in the config or tokenizer.json."""
    tokenizer = explainer.tokenizer
    hooks = [
        (name, getattr(hook, "__qualname__", type(hook).__qualname__))
        for name, module in explainer.inner.named_modules()
        for hook in forward_hooks(module)
    ]
    adapters = [
        (name, [str(getattr(module, setting, None)) for setting in ADAPTER_SETTINGS])
        for name, module in explainer.inner.named_modules()
        if hasattr(module, "active_adapters")
    ]
    return {
        "chat_template": getattr(tokenizer, "chat_template", None),
        "max_length": explainer.task.max_length,
        "special_tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "hooks": hooks,
        "adapters": adapters,
    }


def describe_model(explainer: Explainer) -> dict[str, str | None]:
    """The name and the hash of a model."""
    return {"name": explainer.inner.config.name_or_path, "sha256": hash_model(explainer)}
