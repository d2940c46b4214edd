"""What a run folder knows a model by: everything that decides how texts are read and answered."""

import copy
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.runs.model_hash import hash_model


def double_output(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def test_the_hash_changes_with_everything_that_changes_results():
    explainer = explainer_for("bert")
    known = hash_model(explainer)
    assert hash_model(explainer) == known
    for setting, value in {"chat_template": "{{ messages }}", "model_max_length": 9, "mask_token": "[UNK]"}.items():
        tokenizer = copy.deepcopy(explainer.tokenizer)
        setattr(tokenizer, setting, value)
        assert hash_model(tl.Explainer(explainer.model, tokenizer)) != known, setting
    model = copy.deepcopy(explainer.model)
    assert hash_model(tl.Explainer(model, explainer.tokenizer)) == known
    model.get_input_embeddings().register_forward_hook(double_output)
    assert hash_model(tl.Explainer(model, explainer.tokenizer)) != known


def test_an_adapter_that_is_switched_off_is_another_model():
    explainer = explainer_for("bert")
    adapted: Any = get_peft_model(copy.deepcopy(explainer.model), LoraConfig(target_modules=["query"], r=2))
    on = hash_model(tl.Explainer(adapted, explainer.tokenizer))
    adapted.base_model.disable_adapter_layers()
    assert hash_model(tl.Explainer(adapted, explainer.tokenizer)) != on
