"""How long AttnLRP takes with LXT's explicit rules. Runs in an environment with lxt, without tokenlight.

python lxt_clock.py MODEL SENTENCES.json DEVICE

SENTENCES.json holds for each sentence its token ids, the position of the prediction, and the ids of both verb forms.
Prints the seconds for each sentence and the relevance of the first one's tokens, as JSON.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

MODELS = {"bert": "BertForMaskedLM", "llama": "LlamaForCausalLM"}  # family -> class of LXT


def load(name: str) -> Any:
    """LXT's own copy of the model, with its rules for the backward pass."""
    family = AutoConfig.from_pretrained(name).model_type
    if family not in MODELS:
        raise ValueError(f"LXT is timed on BERT and Llama, found {family}")
    models = import_models(family)
    model = (
        getattr(models, MODELS[family])
        .from_pretrained(name, torch_dtype=torch.float32, attn_implementation="eager")
        .eval()
    )
    for parameter in model.parameters():
        parameter.requires_grad = False
    models.attnlrp.register(model)
    return model


def import_models(family: str) -> Any:
    """From LXT 2, or else from an earlier version, such as the commit that the paper links."""
    for package in ("lxt.explicit.models", "lxt.models"):
        try:
            return import_module(f"{package}.{family}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("lxt"):
                raise
    address = "https://github.com/rachtibat/LRP-eXplains-Transformers"
    raise ImportError(f"there is no LXT here, or one without models, as on PyPI: pip install git+{address}")


def explain(model: Any, ids: list[int], position: int, verb: int, other: int) -> torch.Tensor:
    inputs = torch.tensor([ids], device=model.device)
    embeddings = model.get_input_embeddings()(inputs).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, position, [verb, other]]
    # Under explicit rules the backward pass propagates relevance, not gradients, and a torch subtraction has no rule:
    # each logit starts with its own share of the difference.
    logits.backward(logits.detach() * logits.new_tensor([1.0, -1.0]))
    return embeddings.grad.sum(-1)[0]


def main(name: str, path: str, device: str) -> None:
    model = load(name).to(device)
    sentences = json.loads(Path(path).read_text(encoding="utf-8"))
    scores = explain(model, *sentences[0])  # also warms up
    clock = time.process_time if model.device.type == "cpu" else time.perf_counter
    seconds = []
    for sentence in sentences:
        began = clock()
        explain(model, *sentence).sum().item()  # waits for the GPU
        seconds.append(clock() - began)
    print(json.dumps({"seconds": seconds, "scores": scores.tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
