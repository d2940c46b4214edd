"""Checks that scores depend on the learned weights, by shuffling them from the top layer down (Adebayo et al. 2018)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tokenlight.common.progress import track
from tokenlight.explain.explainer import DEFAULT_METHOD, Explainer
from tokenlight.explain.options import RunOptions
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig, Option
from tokenlight.metrics.agreement import spearman
from tokenlight.metrics.evaluate import encode_explained
from tokenlight.metrics.probability import complete_targets
from tokenlight.model import block_structure, config
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.results.explanation import Explanation
from tokenlight.tasks.targets import TargetSpec, TargetSpecs, spread
from tokenlight.text.tokenize import texts_of
from tokenlight.text.tokenized_text import Text


def sanity(
    explainer: Explainer,
    texts: Sequence[Text],
    method: str = DEFAULT_METHOD,
    *,
    target: TargetSpecs = None,
    absolute: bool = False,
    seed: int = 0,
    progress: bool = False,
    **options: Option,
) -> list[tuple[str, float]]:
    """(layer, mean Spearman similarity to the model's own scores), as layer after layer is shuffled from the head down.

    The target stays the same: what the original model predicts, unless `target` is given. `absolute` compares |scores|.
    Weights are shuffled in a copy, within each tensor, so that their distribution is kept; the model is not changed.
    """
    listed, _ = texts_of(texts)
    method_configs = {method: config_for_any_model(explainer, method, options)}
    run_options = RunOptions(progress=progress)
    original = explainer.explain_configs(listed, method_configs, target=target, run_options=run_options)[method]
    model = copy.deepcopy(explainer.inner)
    targets = fix_targets(explainer, original, target)
    shuffled = Explainer(model, explainer.tokenizer, type(explainer.task))
    generator = torch.Generator().manual_seed(seed)
    similarities = []
    layers = layers_from_top(shuffled, listed[0])
    for name, parameters in track(layers, "shuffling", show=progress):
        for parameter in parameters:
            shuffle(parameter, generator)
        repeated = shuffled.explain_configs(
            listed, method_configs, target=targets, run_options=RunOptions(progress=False)
        )[method]
        values = [similarity(*pair, absolute) for pair in zip(original, repeated, strict=True)]
        similarities.append((name, sum(values) / len(values)))
    return similarities


def config_for_any_model(explainer: Explainer, method: str, options: Mapping[str, Option]) -> MethodConfig:
    """The method with the original model's head mask, without its fingerprint, so that shuffled copies accept it."""
    method_config = MethodConfig.for_model(find_method(method), options, explainer.inner)
    mask = method_config.options.get("heads")
    if not isinstance(mask, HeadMask):
        return method_config
    return replace(method_config, options={**method_config.options, "heads": replace(mask, model=None, fingerprint=())})


def similarity(first: Explanation, second: Explanation, absolute: bool) -> float:
    """Spearman correlation of the scores without special tokens."""
    words = ~first.special
    first_scores, second_scores = (e.scores[words].abs() if absolute else e.scores[words] for e in (first, second))
    return spearman(first_scores, second_scores)


def fix_targets(explainer: Explainer, explanations: Sequence[Explanation], target: TargetSpecs) -> list[TargetSpec]:
    """The explained targets in indices, because a shuffled model would predict something else."""
    tokenized_texts = encode_explained(explainer, explanations)
    targets = spread(target, len(tokenized_texts), "target")
    if callable(targets[0]):
        return targets
    foils: list[TargetSpec] = [None] * len(tokenized_texts)
    instrumented = InstrumentedModel(explainer.model)
    return [*complete_targets(explainer, instrumented, tokenized_texts, explanations, targets, foils)]


def layers_from_top(explainer: Explainer, text: Text) -> list[tuple[str, list[nn.Parameter]]]:
    """(name, parameters) of the head, of the blocks from the last to the first, and of the embeddings.

    The order is that in which modules run on `text`. A head that shares its weights with the embeddings is shuffled
    together with them. Modules that do not run belong to their block, or else to the embeddings: their weights may be
    read without a call of the module (Mamba's convolutions), or for other texts (experts).
    """
    model = explainer.inner
    blocks = block_structure.blocks(model)
    block_of = {id(module): i for i, block in enumerate(blocks) for module in block.modules()}
    groups: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 2)]  # embeddings, blocks, head
    seen: set[int] = set()
    in_blocks = False  # whether a block has run

    def add_called(module: nn.Module, args: Any) -> None:
        nonlocal in_blocks
        block = block_of.get(id(module))
        in_blocks = in_blocks or block is not None
        add_parameters(module, groups[-1 if in_blocks else 0] if block is None else groups[block + 1])

    def add_parameters(module: nn.Module, group: list[nn.Parameter]) -> None:
        unseen = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, unseen))
        group.extend(unseen)

    hooks = [module.register_forward_pre_hook(add_called) for module in model.modules()]
    try:
        with torch.no_grad():
            inputs = explainer.collate(explainer.encode([text]), model.device).inputs()
            model(**{name: tensor for name, tensor in inputs.items() if name in config.accepted_inputs(model)})
    finally:
        for hook in hooks:
            hook.remove()
    for module in model.modules():  # those whose weights another module reads, and experts that this text did not use
        add_parameters(module, groups[block_of.get(id(module), -1) + 1])
    name_of = {id(module): name for name, module in model.named_modules()}
    names = ["embeddings", *(name_of[id(block)] for block in blocks), "head"]
    return [(name, group) for name, group in zip(names, groups, strict=True) if group][::-1]


def shuffle(parameter: nn.Parameter, generator: torch.Generator) -> None:
    """Permute the elements of a parameter in place."""
    with torch.no_grad():
        flat = parameter.reshape(-1)
        parameter.copy_(flat[torch.randperm(len(flat), generator=generator).to(flat.device)].view_as(parameter))
