"""What a result depends on, as sha256: the model's weights, config and tokenizer; the bytes of a data file."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from tokenlight.data.examples import Example
from tokenlight.explain.explainer import Explainer
from tokenlight.foundation.files import hash_file
from tokenlight.foundation.transformers_internals import WHERE_IT_LAY, tokenizer_json
from tokenlight.model.copying import unwrap

BLOCK = 1 << 22
# Where it lay, who wrote the file, and what saving notes in the config: the weights' own types are hashed with them.
NOT_THE_MODEL = (WHERE_IT_LAY, "transformers_version", "architectures", "dtype")


def hash_model(explainer: Explainer) -> str:
    """From memory, so the embedded model, a folder and a model made by hand are all the same to it."""
    model = unwrap(explainer.model)
    digest = hashlib.sha256()
    config = {name: value for name, value in model.config.to_dict().items() if name not in NOT_THE_MODEL}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    tokenizer = json.loads(tokenizer_json(explainer.tokenizer))
    tokenizer |= {"truncation": None, "padding": None}  # whatever the last call left switched on
    digest.update(json.dumps(tokenizer, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().contiguous().cpu().reshape(-1)
        for part in flat.split(BLOCK):
            digest.update(part.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_source(source: str | Path | Sequence[Example]) -> str | None:
    """Of a file or of examples in memory; a dataset on the Hub has a name alone."""
    digest = hashlib.sha256()
    if isinstance(source, str) and source.startswith("hf:"):
        return None
    if not isinstance(source, str | Path):
        for example in source:
            digest.update(repr(example).encode())
        return digest.hexdigest()
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; a Hugging Face dataset is written hf:NAME")
    return hash_file(path)
