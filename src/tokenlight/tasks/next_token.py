"""The token that follows a text, and continuations of several tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks import register
from tokenlight.tasks.selectors import ContinuationSelector, OutputSelector
from tokenlight.tasks.targets import Candidate, ChangedInput, ResolvedTarget, check_indices, refuse_equal
from tokenlight.tasks.vocabulary import Worded
from tokenlight.text.batch import Batch
from tokenlight.text.tokenize import follow, refuse_too_long
from tokenlight.text.tokenized_text import TokenizedText


@register
@dataclass(frozen=True)
class NextToken(Worded):
    """The token that follows a text, or several: a continuation."""

    name = "text-generation"
    heads = ("ForCausalLM", "LMHeadModel")
    auto_class = "AutoModelForCausalLM"
    cut = "start"  # the next token depends most on the end of a text
    logits_for = "last token"
    gap = "end"
    target_kinds = ("index", "continuation")
    generates = True
    trial_settings: ClassVar[Mapping[str, Any]] = {"is_decoder": True}

    # The model reads the text followed by the continuation, and each of its tokens is read at the token before it.

    def resolve_names(self, tokenized_text: TokenizedText, target: Any, foil: Any) -> ResolvedTarget:
        indices = self.continuation_ids(tokenized_text, target)
        foil_indices = self.continuation_ids(tokenized_text, foil)
        if not indices and not foil_indices:
            return super().resolve_names(tokenized_text, target, foil)
        if target is None:
            raise RefusedValue("a foil of several tokens needs a target to be compared with")
        indices = indices or (self.index(target),)
        foil_indices = foil_indices or (() if foil is None else (self.index(foil),))
        refuse_equal(indices, foil_indices, target)
        return ResolvedTarget(indices, foil_indices, "continuation", quantity="log_probability")

    def continuation_ids(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, ...]:
        """The ids of several tokens, given as a text or as a tuple of ids; () for a single token or for None."""
        if target is None:
            return ()
        try:
            self.index(target)
        except (ValueError, TypeError):
            pass
        else:
            return ()
        ids = target if isinstance(target, tuple) else ()
        if isinstance(target, str):
            ids = tuple(self.tokenizer.encode(target, add_special_tokens=False))
        if not ids or self.tokenizer.unk_token_id in ids:
            return ()  # `index` raises the error for a single token
        ids = tuple(self.index(i) for i in ids)
        refuse_too_long(tokenized_text, ids, self.max_length)
        return ids

    def check_resolved(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> None:
        super().check_resolved(tokenized_text, replace(target, given=()))
        for continuation in (target.continuation, target.foil_continuation):
            ids = target.given + continuation
            check_indices(ids, self.outputs)
            if ids:
                refuse_too_long(tokenized_text, ids, self.max_length)

    def append_continuation(self, tokenized_text: TokenizedText, target: ResolvedTarget) -> TokenizedText:
        ids = target.given + target.continuation
        return follow(tokenized_text, ids, self.tokenizer) if ids else tokenized_text

    def check_shared(self, target: Any) -> None:
        if not isinstance(target, str) or not self.tokenizer.encode(target, add_special_tokens=False):
            super().check_shared(target)

    def read_positions(self, targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        return step_positions(targets, batch) if targets[0].continuation else batch.last

    def positions(self, targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        return batch.last

    def select(
        self, targets: Sequence[ResolvedTarget], output: Any, batch: Batch, model: PreTrainedModel
    ) -> tuple[OutputSelector, ...]:
        if not targets[0].continuation:
            return super().select(targets, output, batch, model)
        steps = max(target.steps for target in targets)
        together = ContinuationSelector(
            step_positions(targets, batch),
            ids=batch.input_ids.new_tensor([pad_right(target.indices, steps) for target in targets]),
            weight=torch.tensor(
                [[float(step < target.steps) for step in range(steps)] for target in targets],
                device=batch.input_ids.device,
            ),
            against_all=targets[0].quantity == "log_probability",
        )
        parts = [pad_right(target.parts, steps) for target in targets if target.parts is not None]
        return together.apart(batch.input_ids.new_tensor(parts)) if parts else (together,)

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, target: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        return super().prediction(tokenized_text, self.first_step(output, target), target, i)

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        target: ResolvedTarget,
        named: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        return super().candidates(tokenized_text, self.first_step(output, target), target, named, i)

    def first_step(self, output: Any, target: ResolvedTarget) -> Any:
        """The output for the first token after the text."""
        return {"logits": output["logits"][:, 0]} if target.continuation else output

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        return self.tokenizer.decode(list(indices))

    def measured_target(self, selected: ResolvedTarget) -> ResolvedTarget:
        if len(selected.foil) > 1 or (selected.foil and len(selected.indices) > 1):
            raise RefusedValue(
                "the probability of one continuation among two is not measured: name a target= and no foil"
            )
        if len(selected.indices) > 1:
            return replace(selected, kind="continuation", position=None, quantity="log_probability")
        return selected

    def logits_of_text(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[length - count : length]

    def complete_input(self, changed: ChangedInput) -> ChangedInput:
        """With the continuation after the text, without its last token, after which nothing is read."""
        appended, types = changed.target.given + changed.target.indices[:-1], changed.token_type_ids
        return replace(
            changed,
            input_ids=changed.input_ids + appended,
            original_ids=changed.original_ids + appended,
            token_type_ids=types if types is None else types + types[-1:] * len(appended),
        )


def step_positions(targets: Sequence[ResolvedTarget], batch: Batch) -> Tensor:
    """[batch, step] for each token of the continuations, with which the rows end, the token before it."""
    lengths = batch.input_ids.new_tensor([target.steps for target in targets])
    steps = torch.arange(int(lengths.max()), device=lengths.device)
    first = batch.last - lengths
    return torch.minimum(first[:, None] + steps, batch.last[:, None])


def pad_right(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    return values + (0,) * (length - len(values))
