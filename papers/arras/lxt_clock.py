"""How long AttnLRP takes with LXT's explicit rules. Runs in an environment with lxt, without tokenlight.

python lxt_clock.py MODEL SENTENCES.json DEVICE

SENTENCES.json holds for each sentence its token ids, the position of the prediction, and the ids of both verb forms.
Prints the seconds for each sentence and the relevance of the first one's tokens, as JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig


def load(name: str) -> Any:
    """LXT's own copy of the model, with its rules for the backward pass."""
    family = AutoConfig.from_pretrained(name).model_type
    if family == "bert":
        from lxt.explicit.models.bert import BertForMaskedLM as Model  # pyright: ignore[reportMissingImports]
        from lxt.explicit.models.bert import attnlrp  # pyright: ignore[reportMissingImports]
    elif family == "llama":
        from lxt.explicit.models.llama import LlamaForCausalLM as Model  # pyright: ignore[reportMissingImports]
        from lxt.explicit.models.llama import attnlrp  # pyright: ignore[reportMissingImports]
    else:
        raise ValueError(f"LXT is timed on BERT and Llama, found {family}")
    model = Model.from_pretrained(name, torch_dtype=torch.float32, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.requires_grad = False
    attnlrp.register(model)
    return model


def explain(model: Any, ids: list[int], position: int, verb: int, other: int) -> torch.Tensor:
    inputs = torch.tensor([ids], device=model.device)
    embeddings = model.get_input_embeddings()(inputs).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, position]
    difference = logits[verb] - logits[other]
    difference.backward(difference.detach())
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
