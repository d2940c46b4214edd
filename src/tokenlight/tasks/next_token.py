"""The token that follows a text, and answers of several tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.common.errors import RefusedValue
from tokenlight.tasks import register
from tokenlight.tasks.mixins import Worded
from tokenlight.tasks.selectors import ContinuationSelector, OutputSelector
from tokenlight.tasks.targets import (
    Candidate,
    ChangedInput,
    MeasuredTarget,
    ResolvedTarget,
    Target,
    TargetSpec,
    refuse_equal,
)
from tokenlight.text.batch import Batch
from tokenlight.text.tokenize import follow, refuse_too_long
from tokenlight.text.tokenized_text import TokenizedText


@register
@dataclass(frozen=True)
class NextToken(Worded):
    """How does the text go on?"""

    name = "text-generation"
    heads = ("ForCausalLM", "LMHeadModel")
    auto_class = "AutoModelForCausalLM"
    cut = "start"  # what follows depends on what is at the end
    logits_for = "last token"
    gap = "end"
    reads_on = True
    trial_settings: ClassVar[Mapping[str, Any]] = {"is_decoder": True}

    # A target of several tokens stands behind the text: the model reads it, and is asked about each of its tokens

    def resolve_target(self, tokenized_text: TokenizedText, target: TargetSpec, foil: TargetSpec) -> ResolvedTarget:
        answer, other = self.continuation(tokenized_text, target), self.continuation(tokenized_text, foil)
        if not answer and not other:
            return super().resolve_target(tokenized_text, target, foil)
        if target is None:
            raise RefusedValue("a foil of several tokens needs a target to be compared with")
        answer, other = answer or (self.index(target),), other or (() if foil is None else (self.index(foil),))
        refuse_equal(answer, other, target)
        return ResolvedTarget(answer=answer, foil_answer=other, against_all=True)

    def continuation(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, ...]:
        """Of several tokens, given as a text or as a tuple of ids; () for a single token, or none."""
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
            return ()  # the single token's own error says what is wrong
        ids = tuple(self.index(i) for i in ids)
        refuse_too_long(tokenized_text, ids, self.max_length)
        return ids

    def read_on(self, tokenized_text: TokenizedText, resolved: ResolvedTarget) -> TokenizedText:
        return follow(tokenized_text, resolved.answer, self.tokenizer) if resolved.answer else tokenized_text

    def check_shared(self, target: Any) -> None:
        if not isinstance(target, str) or not self.tokenizer.encode(target, add_special_tokens=False):
            super().check_shared(target)

    def reads_at(self, resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        return step_places(resolved, batch) if resolved[0].answer else batch.last

    def positions(self, resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor | None:
        return batch.last

    def select(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[OutputSelector, ...]:
        resolved = target.resolved
        if target.function is not None or not resolved[0].answer:
            return super().select(target, output, batch, model)
        steps = max(len(one.answer) for one in resolved)
        ids = [one.answer + (0,) * (steps - len(one.answer)) for one in resolved]
        weight = [[float(step < len(one.answer)) for step in range(steps)] for one in resolved]
        whole = ContinuationSelector(
            step_places(resolved, batch),
            ids=batch.input_ids.new_tensor(ids),
            weight=torch.tensor(weight, device=batch.input_ids.device),
            against_all=resolved[0].against_all,
        )
        if not resolved[0].each:
            return (whole,)
        parts = [one.parts or tuple(range(len(one.answer))) for one in resolved]
        return whole.apart(batch.input_ids.new_tensor([some + (0,) * (steps - len(some)) for some in parts]))

    def moved(
        self, resolved: ResolvedTarget, tokenized_text: TokenizedText, measured_target: MeasuredTarget
    ) -> ResolvedTarget:
        """Without an answer: what follows the text is then read right behind it."""
        return replace(super().moved(resolved, tokenized_text, measured_target), answer=(), foil_answer=())

    def prediction(
        self, tokenized_text: TokenizedText, output: Any, resolved: ResolvedTarget, i: int
    ) -> tuple[str, float | None]:
        return super().prediction(tokenized_text, self.first_step(output, resolved), resolved, i)

    def candidates(
        self,
        tokenized_text: TokenizedText,
        output: Any,
        resolved: ResolvedTarget,
        asked: Sequence[int] = (),
        i: int = 0,
    ) -> tuple[Candidate, ...]:
        return super().candidates(tokenized_text, self.first_step(output, resolved), resolved, asked, i)

    def first_step(self, output: Any, resolved: ResolvedTarget) -> Any:
        """What is said right behind the text."""
        return {"logits": output["logits"][:, 0]} if resolved.answer else output

    def words(self, tokenized_text: TokenizedText, indices: Sequence[int]) -> str:
        return self.tokenizer.decode(list(indices))

    def measured_target(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> MeasuredTarget:
        if len(foil) > 1 or (foil and len(index) > 1):
            raise RefusedValue(
                "the probability of one continuation among two is not measured: name a target= and no foil"
            )
        return super().measured_target(index, foil, position)

    def answer_rows(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[length - count : length]

    def pose(self, question: ChangedInput) -> ChangedInput:
        """With the continuation behind it, all but its last token."""
        tail, types = question.measured_target.given + question.measured_target.index[:-1], question.token_type_ids
        return replace(
            question,
            input_ids=question.input_ids + tail,
            original_ids=question.original_ids + tail,
            token_type_ids=types if types is None else types + types[-1:] * len(tail),
        )


def step_places(resolved: Sequence[ResolvedTarget], batch: Batch) -> Tensor:
    """[batch, step] of each token of the answers, which rows end with, the token before it."""
    lengths = batch.input_ids.new_tensor([len(one.answer) for one in resolved])
    steps = torch.arange(int(lengths.max()), device=lengths.device)
    first = batch.last - lengths
    return torch.minimum(first[:, None] + steps, batch.last[:, None])
