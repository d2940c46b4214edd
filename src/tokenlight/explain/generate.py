"""Lets a language model write an answer to a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.model.private_copy import device_of, private_copy
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.tasks.task import Task
from tokenlight.text.tokenize import refuse_too_long
from tokenlight.text.tokenized_text import Chat, TokenizedText

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer

LEAST_TEMPERATURE = 0.01  # with less, sampling is the same as taking the likeliest token
NEW_TOKENS = 60  # default for the length of an answer


@dataclass(frozen=True)
class Generated:
    """What a model wrote after a prompt."""

    prompt: str | Chat
    text: str
    ids: tuple[int, ...]
    explainer: "Explainer" = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def explain(self, method: str = "attn_lrp", **settings: Any) -> ExplainedAnswer:
        """Explain every token that the model wrote, as `Explainer.explain_answer`."""
        return self.explainer.explain_answer(self.prompt, self, method, **settings)


AnswerLike = str | Generated | tuple[int, ...]


def generate_ids(
    model: PreTrainedModel, task: Task, tokenized_text: TokenizedText, seed: int | None, settings: Mapping[str, Any]
) -> tuple[int, ...]:
    """The token ids that transformers' own `generate` writes after a prompt.

    It runs on the model as it was given, which may be wrapped, or on a copy without dropout.
    """
    generating: Any = model
    if not task.generates:
        raise RefusedValue(f"only language models write answers; this is a {task.name} model")
    if isinstance(tokenized_text.text, tuple):
        raise RefusedValue("a language model continues one text or a chat; found a pair")
    if any(module.training for module in task.model.modules()):
        generating = evaluating_copy(task.model)
    if not callable(getattr(generating, "generate", None)):
        generating = task.model  # without a wrapper that spreads a model over devices
    if not callable(getattr(generating, "generate", None)):
        raise RefusedValue(
            f"{type(generating).__name__} cannot write: transformers gives it no generate(); use explain_answer"
        )
    ids = torch.tensor([tokenized_text.input_ids], device=device_of(task.model.get_input_embeddings()))
    settings = with_defaults(task, tokenized_text, settings)
    with torch.no_grad(), torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        output: Any = generating.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    sequences = getattr(output, "sequences", output)
    if len(sequences) != 1:
        raise RefusedValue(f"one answer at a time: num_return_sequences= asks for {len(sequences)}")
    written = tuple(sequences[0, len(tokenized_text) :].tolist())
    if not written:
        raise RefusedValue("the model wrote nothing: allow more with max_new_tokens=")
    return written


def evaluating_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A private copy around the same weights, in eval mode, because explanations are of the model without dropout.

    The model itself keeps its mode, and another thread may go on training it.
    """
    copy = private_copy(model, own_experts=True)
    copy.config.use_cache = getattr(model.config, "use_cache", True)
    return copy


def refuse_tiny_temperature(temperature: Any) -> None:
    """Refuse temperatures that logits divided by them overflow with."""
    if isinstance(temperature, int | float) and 0 < temperature < LEAST_TEMPERATURE:
        raise RefusedValue(
            f"temperature is 0 (always the likeliest token) or a number from {LEAST_TEMPERATURE}, found {temperature}"
        )


def with_defaults(task: Task, tokenized_text: TokenizedText, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `generate`, with lengths that the model can read again."""
    tokenizer = task.tokenizer
    chosen: dict[str, Any] = {"pad_token_id": tokenizer.pad_token_id, **settings}
    if "custom_generate" in chosen:  # otherwise transformers asks on standard input whether to run its code
        chosen.setdefault("trust_remote_code", False)
    refuse_tiny_temperature(chosen.get("temperature"))
    if chosen.get("stop_strings"):
        chosen.setdefault("tokenizer", tokenizer)
    checkpoint_config = cast(Any, task.model.generation_config)
    default_length = type(checkpoint_config)().max_length
    has_length = checkpoint_config.max_new_tokens or checkpoint_config.max_length != default_length
    if not has_length and not chosen.keys() & {"max_new_tokens", "max_length", "generation_config"}:
        chosen["max_new_tokens"] = NEW_TOKENS
    limit = task.max_length
    if limit is not None:
        refuse_too_long(tokenized_text, (0,), limit)
        limits = {"max_new_tokens": limit - len(tokenized_text), "max_length": limit}
        config = chosen.get("generation_config") or checkpoint_config
        set_by_config = {name: getattr(config, name, None) for name in limits if name not in chosen}
        for name, most in limits.items():
            if chosen.get(name):
                chosen[name] = min(chosen[name], most)
            elif (set_by_config.get(name) or 0) > most and not chosen.keys() & limits.keys():
                chosen[name] = most
    return chosen
