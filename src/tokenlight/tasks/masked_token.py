"""The word in a gap of the text."""

from dataclasses import dataclass
from typing import Any

from tokenlight.foundation.first_look import SAMPLE
from tokenlight.tasks import register
from tokenlight.tasks.positioned import Positioned
from tokenlight.tasks.targets import TargetLike, Wanted
from tokenlight.tasks.task import Field, Fields
from tokenlight.tasks.vocabulary import Worded
from tokenlight.text.rows import Row, Text


@register
@dataclass(frozen=True)
class MaskedToken(Positioned, Worded):
    """Which word stands behind the mask? A target names its position only where there are several masks."""

    name = "fill-mask"
    heads = ("ForMaskedLM",)
    auto_class = "AutoModelForMaskedLM"
    gap = "inside"

    def place(self, row: Row, target: Any) -> tuple[int, Any]:
        if isinstance(target, tuple):
            return super().place(row, target)
        masks = self.masks(row)
        if len(masks) != 1:
            found = f"{len(masks)} of them, at {masks}: name one with target=(position, token)" if masks else "none"
            raise ValueError(f"expected one {self.tokenizer.mask_token} in the text, found {found}")
        return masks[0], target

    def masks(self, row: Row) -> list[int]:
        return [i for i, token in enumerate(row.input_ids) if token == self.tokenizer.mask_token_id]

    def want_any(self, row: Row) -> Wanted:
        masks = self.masks(row)
        return Wanted(position=masks[0] if len(masks) == 1 else None)

    def default_position(self, row: Row) -> int | None:
        return next(iter(self.masks(row)), None)

    @property
    def fields(self) -> Fields:
        gap = self.tokenizer.mask_token
        return Fields(Field(f"Text with a gap ({gap})", f"The keys {gap} on the table."))

    @property
    def examples(self) -> list[Text]:
        return [f"The keys to the cabinet {self.tokenizer.mask_token} on the table."]

    @property
    def sample(self) -> tuple[Text, TargetLike]:
        return f"{SAMPLE} It is {self.tokenizer.mask_token} .", None
