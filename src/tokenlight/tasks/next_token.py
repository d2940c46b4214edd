"""The token that follows a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tokenlight.record.choices import Choice, Continuation
from tokenlight.tasks import register
from tokenlight.tasks.targets import Candidate, Goal, Question, Target, TargetLike, Wanted, refuse_equal
from tokenlight.tasks.task import Field, Fields
from tokenlight.tasks.vocabulary import Worded
from tokenlight.text.answers import follow, refuse_too_long
from tokenlight.text.batches import Batch
from tokenlight.text.rows import Row, Text


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

    def want(self, row: Row, target: TargetLike, foil: TargetLike) -> Wanted:
        answer, other = self.continuation(row, target), self.continuation(row, foil)
        if not answer and not other:
            return super().want(row, target, foil)
        if target is None:
            raise ValueError("a foil of several tokens needs a target to be compared with")
        answer, other = answer or (self.index(target),), other or (() if foil is None else (self.index(foil),))
        refuse_equal(answer, other, target)
        return Wanted(answer=answer, foil_answer=other, against_all=True)

    def continuation(self, row: Row, target: Any) -> tuple[int, ...]:
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
        refuse_too_long(row, ids, self.max_length)
        return ids

    def read_on(self, row: Row, wanted: Wanted) -> Row:
        return follow(row, wanted.answer, self.tokenizer) if wanted.answer else row

    def check_shared(self, target: Any) -> None:
        if not isinstance(target, str) or not self.tokenizer.encode(target, add_special_tokens=False):
            super().check_shared(target)

    def reads_at(self, wanted: Sequence[Wanted], batch: Batch) -> Tensor | None:
        return step_places(wanted, batch) if wanted[0].answer else batch.last

    def positions(self, wanted: Sequence[Wanted], batch: Batch) -> Tensor | None:
        return batch.last

    def choose(self, target: Target, output: Any, batch: Batch, model: PreTrainedModel) -> tuple[Choice, ...]:
        wanted = target.wanted
        if target.function is not None or not wanted[0].answer:
            return super().choose(target, output, batch, model)
        steps = max(len(one.answer) for one in wanted)
        ids = [one.answer + (0,) * (steps - len(one.answer)) for one in wanted]
        weight = [[float(step < len(one.answer)) for step in range(steps)] for one in wanted]
        whole = Continuation(
            step_places(wanted, batch),
            ids=batch.input_ids.new_tensor(ids),
            weight=torch.tensor(weight, device=batch.input_ids.device),
            against_all=wanted[0].against_all,
        )
        if not wanted[0].each:
            return (whole,)
        parts = [one.parts or tuple(range(len(one.answer))) for one in wanted]
        return whole.apart(batch.input_ids.new_tensor([some + (0,) * (steps - len(some)) for some in parts]))

    def moved(self, wanted: Wanted, row: Row, goal: Goal) -> Wanted:
        """Without an answer: what follows the text is then read right behind it."""
        return replace(super().moved(wanted, row, goal), answer=(), foil_answer=())

    def prediction(self, row: Row, output: Any, wanted: Wanted, i: int) -> tuple[str, float | None]:
        return super().prediction(row, self.first_step(output, wanted), wanted, i)

    def candidates(
        self, row: Row, output: Any, wanted: Wanted, asked: Sequence[int] = (), i: int = 0
    ) -> tuple[Candidate, ...]:
        return super().candidates(row, self.first_step(output, wanted), wanted, asked, i)

    def first_step(self, output: Any, wanted: Wanted) -> Any:
        """What is said right behind the text."""
        return {"logits": output["logits"][:, 0]} if wanted.answer else output

    def words(self, row: Row, indices: Sequence[int]) -> str:
        return self.tokenizer.decode(list(indices))

    def goal(self, index: Sequence[int], foil: Sequence[int], position: int | None) -> Goal:
        if len(foil) > 1 or (foil and len(index) > 1):
            raise ValueError(
                "the probability of one continuation among two is not measured: name a target= and no foil"
            )
        return super().goal(index, foil, position)

    def answer_rows(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[length - count : length]

    def pose(self, question: Question) -> Question:
        """With the continuation behind it, all but its last token."""
        tail, types = question.goal.given + question.goal.index[:-1], question.token_type_ids
        return replace(
            question,
            input_ids=question.input_ids + tail,
            original_ids=question.original_ids + tail,
            token_type_ids=types if types is None else types + types[-1:] * len(tail),
        )

    @property
    def fields(self) -> Fields:
        return Fields(Field("Prompt", "The beginning of a text: the next token is explained"))

    @property
    def examples(self) -> list[Text]:
        return ["The keys to the cabinet"]


def step_places(wanted: Sequence[Wanted], batch: Batch) -> Tensor:
    """[batch, step] of each token of the answers, which rows end with, the token before it."""
    lengths = batch.input_ids.new_tensor([len(one.answer) for one in wanted])
    steps = torch.arange(int(lengths.max()), device=lengths.device)
    first = batch.last - lengths
    return torch.minimum(first[:, None] + steps, batch.last[:, None])
