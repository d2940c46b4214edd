"""Do scores depend on what the model has learned? Its weights are shuffled from the top down (Adebayo et al. 2018)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tokenlight.common.progress import track
from tokenlight.explain.explainer import DEFAULT_METHOD, Explainer
from tokenlight.explain.running import RunOptions
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import find_method
from tokenlight.methods.config import MethodConfig, Option
from tokenlight.metrics.agreement import spearman
from tokenlight.metrics.evaluate import rows_of
from tokenlight.metrics.probability import measured_targets_of
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
    """(layer, mean Spearman similarity to the model's own scores) as layer after layer is shuffled, from the head down.

    What is explained stays what the model itself predicts. `absolute` compares |scores|. The weights of a copy are
    shuffled, each tensor in itself, so that only what was learned is lost; the model is left as it is.
    """
    listed, _ = texts_of(texts)
    method_configs = {method: config_for_any_model(explainer, method, options)}
    own = explainer.explain_configs(listed, method_configs, target=target, run_options=RunOptions(progress=progress))[
        method
    ]
    model = copy.deepcopy(explainer.inner)
    targets = fixed_targets(explainer, own, target)
    shuffled = Explainer(model, explainer.tokenizer)
    generator = torch.Generator().manual_seed(seed)
    similarities = []
    layers = parts_from_top(shuffled, listed[0])
    for name, parameters in track(layers, "shuffling", show=progress):
        for parameter in parameters:
            shuffle(parameter, generator)
        again = shuffled.explain_configs(
            listed, method_configs, target=targets, run_options=RunOptions(progress=False)
        )[method]
        pairs = [alike(one, two, absolute) for one, two in zip(own, again, strict=True)]
        similarities.append((name, sum(pairs) / len(pairs)))
    return similarities


def config_for_any_model(explainer: Explainer, method: str, options: Mapping[str, Option]) -> MethodConfig:
    """With the head mask of the model itself, without its fingerprint: the shuffled copies are explained through it."""
    method_config = MethodConfig.for_model(find_method(method), options, explainer.inner)
    mask = method_config.options.get("heads")
    if not isinstance(mask, HeadMask):
        return method_config
    return replace(method_config, options={**method_config.options, "heads": replace(mask, model=None, fingerprint=())})


def alike(one: Explanation, two: Explanation, absolute: bool) -> float:
    words = ~one.special
    first, second = (e.scores[words].abs() if absolute else e.scores[words] for e in (one, two))
    return spearman(first, second)


def fixed_targets(explainer: Explainer, own: Sequence[Explanation], target: TargetSpecs) -> list[TargetSpec]:
    """What was explained, in indices: another model would predict something else."""
    tokenized_texts = rows_of(explainer, own)
    targets = spread(target, len(tokenized_texts), "target")
    if callable(targets[0]):
        return targets
    measured_targets = measured_targets_of(
        explainer, InstrumentedModel(explainer.model), tokenized_texts, own, targets, [None] * len(tokenized_texts)
    )
    return [measured_target.target for measured_target in measured_targets]


def parts_from_top(explainer: Explainer, text: Text) -> list[tuple[str, list[nn.Parameter]]]:
    """The head, the blocks from the last to the first, the embeddings; by the order in which they run.

    A head that shares its weights with the embeddings is shuffled together with them. Modules that did not run belong
    to their block, or else to the embeddings: their weights may be read without a call, as those of Mamba's
    convolutions are, or for other texts, as those of experts.
    """
    model = explainer.inner
    blocks = block_structure.blocks(model)
    inside = {id(module): i for i, block in enumerate(blocks) for module in block.modules()}
    groups: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 2)]  # embeddings, blocks, head
    seen: set[int] = set()
    begun = False

    def note(module: nn.Module, args: Any) -> None:
        nonlocal begun
        place = inside.get(id(module))
        begun = begun or place is not None
        add(module, groups[-1 if begun else 0] if place is None else groups[place + 1])

    def add(module: nn.Module, group: list[nn.Parameter]) -> None:
        fresh = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, fresh))
        group.extend(fresh)

    hooks = [module.register_forward_pre_hook(note) for module in model.modules()]
    try:
        with torch.no_grad():
            given = explainer.collate(explainer.encode([text]), model.device).inputs()
            model(**{name: tensor for name, tensor in given.items() if name in config.accepted_inputs(model)})
    finally:
        for hook in hooks:
            hook.remove()
    for module in model.modules():  # those that another one reads, and experts that this text has not met
        add(module, groups[inside.get(id(module), -1) + 1])
    named = {id(module): name for name, module in model.named_modules()}
    names = ["embeddings", *(named[id(block)] for block in blocks), "head"]
    return [(name, group) for name, group in zip(names, groups, strict=True) if group][::-1]


def shuffle(parameter: nn.Parameter, generator: torch.Generator) -> None:
    """Its numbers in another order."""
    with torch.no_grad():
        flat = parameter.reshape(-1)
        parameter.copy_(flat[torch.randperm(len(flat), generator=generator).to(flat.device)].view_as(parameter))
