"""The token that follows a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from tokenlight.tasks import register
from tokenlight.tasks.targets import Question, Wanted
from tokenlight.tasks.task import Field, Fields
from tokenlight.tasks.vocabulary import Worded
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

    def reads_at(self, batch: Batch) -> Tensor | None:
        return batch.last

    def positions(self, wanted: Sequence[Wanted], batch: Batch) -> Tensor | None:
        return batch.last

    def answer_rows(self, output: Any, i: int, length: int, position: int | None, count: int = 1) -> Tensor | None:
        logits = output["logits"][i]
        return logits[None] if logits.ndim == 1 else logits[length - count : length]

    def continuation(self, row: Row, target: Any, foil: Any) -> tuple[int, ...]:
        """Of several tokens, given as a text or as a tuple of ids; () for a single token."""
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
        if foil is not None:
            raise ValueError("a continuation of several tokens has no foil: compare single tokens")
        total = len(row) + len(ids) - 1
        if self.max_length is not None and total > self.max_length:
            raise ValueError(f"the text and its continuation have {total} tokens, the model reads {self.max_length}")
        return ids

    def pose(self, question: Question) -> Question:
        """With the continuation behind it, all but its last token."""
        tail, types = question.goal.index[:-1], question.token_type_ids
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
