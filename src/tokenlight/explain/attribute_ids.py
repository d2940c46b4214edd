"""Explanations of token ids, without a tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight._compat.torch_internals import is_out_of_memory
from tokenlight.common.errors import RefusedValue, UnsupportedModelError
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.memory import refuse_too_large, shape_of
from tokenlight.explain.options import DEFAULT_RUN_OPTIONS, RunOptions
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import Attribution, find_method
from tokenlight.methods.config import MethodConfig, Option
from tokenlight.model import config as model_config
from tokenlight.model.behavior_probes import behavior_of, reads_left_padding
from tokenlight.model.config import embedding_rows, padding_id
from tokenlight.model.instrumentation_cache import borrowed_model
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.rules.mode import RuleTable
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget, TargetSpecs, shared_function, spread
from tokenlight.text.batch import Batch


def attribute(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    *,
    method: str,
    target: TargetSpecs | Tensor = None,
    foil: TargetSpecs | Tensor = None,
    rules: RuleTable | None = None,
    low_memory: bool = False,
    fused: bool | None = None,
    **options: Option,
) -> Tensor:
    """Scores [batch, token] for token ids of your own.

    `target` and `foil` are an index for all rows or one for each row; `target` may also be a function of the model
    output. Models with an output for every token take (position, index), extractive question answering takes (first
    token, token after the last). With `low_memory`, blocks are computed again in the backward pass: less memory, more
    time, the same scores. `fused` decides whether attention runs as one operation or step by step; by default it is
    fused unless a method needs the attention weights.
    """
    inputs = (input_ids, attention_mask, token_type_ids)
    run_options = RunOptions(low_memory=low_memory, fused=fused)
    return attribute_ids(model, *inputs, method, options, target, foil, rules, run_options).scores


def attribute_ids(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    method: str,
    options: dict[str, Option],
    target: TargetSpecs | Tensor = None,
    foil: TargetSpecs | Tensor = None,
    rules: RuleTable | None = None,
    run_options: RunOptions = DEFAULT_RUN_OPTIONS,
) -> Attribution:
    """Scores, extras and maps of a method."""
    with borrowed_model(model) as instrumented:
        method_config = MethodConfig.for_model(find_method(method), options, instrumented.model, rules)
        batch = raw_batch(input_ids, attention_mask, token_type_ids, instrumented).map(
            lambda t: t.to(instrumented.device)
        )
        targets, foils = (spread(plain(x), len(input_ids), n) for x, n in ((target, "target"), (foil, "foil")))
        function = shared_function(targets, foils)
        task = task_of(instrumented.model)
        resolved = tuple(
            task.resolve_target_ids(target, foil)
            if function is None
            else ResolvedTarget(kind="function", function=function)
            for target, foil in zip(targets, foils, strict=True)
        )
        plan = plan_passes(BatchTarget(task, resolved), [method_config])
        refuse_too_large(shape_of(instrumented), plan, input_ids.shape, run_options.record_options, instrumented.device)
        with refusing_too_many_tokens(instrumented.model, input_ids.shape[1]):
            _, (attribution,) = execute_plan(instrumented, batch, plan, record_options=run_options.record_options)
    return attribution


def raw_batch(ids: Tensor, mask: Tensor | None, types: Tensor | None, instrumented: InstrumentedModel) -> Batch:
    model = instrumented.model
    for name, tensor in {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}.items():
        optional = name != "input_ids" and tensor is None
        if not optional and (not isinstance(tensor, Tensor) or tensor.ndim != 2 or tensor.shape != ids.shape):
            found = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise RefusedValue(f"{name} must be a tensor [batch, token] like input_ids; found {found}")
    if ids.numel() == 0:
        raise RefusedValue("input_ids is empty")
    ids = whole_numbers(ids, "input_ids")
    check_range(ids, "input_ids", embedding_rows(model), "tokens in the vocabulary")
    mask = torch.ones_like(ids) if mask is None else read_mask(mask)
    if types is not None:
        types = whole_numbers(types, "token_type_ids")
        check_range(types, "token_type_ids", type_count(model), "types in the model")
    pad = padding_id(model)
    batch = Batch(ids, mask, types, pad_id=None if pad == model_config.NO_PADDING else pad, start_id=start_id(model))
    if not mask.all():
        refuse_padding(instrumented, batch)
    if mask[:, 0].all():
        return batch
    return model_config.count_from_first(model, batch)  # padding on the left would shift them


def whole_numbers(tensor: Tensor, name: str) -> Tensor:
    """As 64-bit integers, whatever integer type they have: smaller ones cannot hold every id."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise RefusedValue(f"{name} holds whole numbers, in a tensor of an integer type; found {tensor.dtype}")
    return tensor.long()


def check_range(tensor: Tensor, name: str, count: int | None, what: str) -> None:
    lowest, highest = int(tensor.min()), int(tensor.max())
    if lowest < 0 or (count is not None and highest >= count):
        room = "numbers from 0 up" if count is None else f"numbers from 0 to {count - 1}, for {count} {what}"
        raise RefusedValue(f"{name} goes from {lowest} to {highest}; expected {room}")


def read_mask(mask: Tensor) -> Tensor:
    """1 for tokens that count and 0 for others, in any type."""
    if not ((mask == 0) | (mask == 1)).all():
        raise RefusedValue("attention_mask holds 1 for tokens and 0 for padding; found other numbers")
    if not mask.any(1).all():
        raise RefusedValue("attention_mask hides every token of a row")
    return mask.long()


def type_count(model: PreTrainedModel) -> int | None:
    """How many token types the model tells apart; None where it looks none of them up."""
    found = getattr(
        model.config.get_text_config(), "type_vocab_size", embedding_rows(model)
    )  # GPT-2 embeds them as ids
    return found if isinstance(found, int) and found > 0 else None


@contextmanager
def refusing_too_many_tokens(model: PreTrainedModel, tokens: int) -> Iterator[None]:
    """Raise a clear error if a model fails on more tokens than it has positions; some families accept more."""
    try:
        yield
    except (LookupError, RuntimeError) as error:
        limit = model_config.max_length(model, 10**9)
        if limit is None or tokens <= limit or is_out_of_memory(error):
            raise
        raise RefusedValue(
            f"input_ids has rows of {tokens} tokens, and {type(model).__name__} has positions for {limit}: "
            "shorten the rows"
        ) from error


def start_id(model: PreTrainedModel) -> int | None:
    """The id that texts begin with, or else end with, where the configuration names one."""
    config = model.config.get_text_config()
    ids = (getattr(config, "bos_token_id", None), getattr(config, "eos_token_id", None))
    return next((i for i in ids if isinstance(i, int) and 0 <= i < embedding_rows(model)), None)


def refuse_padding(instrumented: InstrumentedModel, batch: Batch) -> None:
    """Where padded rows get other answers than alone."""
    model, behavior = instrumented.model, behavior_of(instrumented)
    name, last = type(model).__name__, model_config.classifies(model) and behavior.reads_last
    if last and padding_id(model) == model_config.NO_PADDING:
        if not batch.attention_mask[:, -1].all():
            raise RefusedValue(f"{name} has no padding id to find the end of a row by: set config.pad_token_id")
    elif behavior.equal_lengths:
        raise UnsupportedModelError(
            f"{name} looks at padding: in a batch with longer rows, a row gets another answer than on its own. "
            "Give rows of equal length, one call for each length"
        )
    elif last:
        places = model_config.end_by_padding(model, batch)
        unread = [row for row, place in enumerate(places) if not batch.attention_mask[row, place]]
        if unread:
            raise RefusedValue(
                f"row {unread[0]} is padded with another id than config.pad_token_id, so its end is not found"
            )
    if model_config.classifies(model) and not last and not batch.attention_mask[:, 0].all():
        raise RefusedValue(f"{name} does not read the last token: pad on the right, not on the left")
    if not batch.attention_mask[:, 0].all() and reads_left_padding(instrumented):
        raise UnsupportedModelError(
            f"{name} looks at padding on the left: it counts positions from there, or reads padding in a recurrence, "
            "so a row gets another answer than on its own. Pad on the right"
        )


def plain(target: TargetSpecs | Tensor) -> TargetSpecs:
    return target.tolist() if isinstance(target, Tensor) else target
