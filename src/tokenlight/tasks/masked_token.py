"""The token at a mask."""

from dataclasses import dataclass, replace
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.common.samples import SAMPLE
from tokenlight.tasks import register
from tokenlight.tasks.positions import Positioned
from tokenlight.tasks.target_functions import OutputFunction
from tokenlight.tasks.targets import ResolvedTarget, TargetSpec
from tokenlight.tasks.vocabulary import Worded
from tokenlight.text.tokenized_text import Text, TokenizedText


@register
@dataclass(frozen=True)
class MaskedToken(Positioned, Worded):
    """The token at a mask. A target names its position only if the text has several masks."""

    name = "fill-mask"
    heads = ("ForMaskedLM",)
    auto_class = "AutoModelForMaskedLM"
    gap = "inside"

    def split_target(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, Any]:
        if isinstance(target, tuple):
            return super().split_target(tokenized_text, target)
        masks = self.masks(tokenized_text)
        if len(masks) != 1:
            found = f"{len(masks)} of them, at {masks}: name one with target=(position, token)" if masks else "none"
            raise RefusedValue(f"expected one {self.tokenizer.mask_token} in the text, found {found}")
        return masks[0], target

    def masks(self, tokenized_text: TokenizedText) -> list[int]:
        return [i for i, token in enumerate(tokenized_text.input_ids) if token == self.tokenizer.mask_token_id]

    def resolve_function(self, tokenized_text: TokenizedText, function: OutputFunction) -> ResolvedTarget:
        masks = self.masks(tokenized_text)
        position = masks[0] if len(masks) == 1 else None
        return replace(super().resolve_function(tokenized_text, function), position=position)

    def default_position(self, tokenized_text: TokenizedText) -> int | None:
        return next(iter(self.masks(tokenized_text)), None)

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        return f"{SAMPLE} It is {self.tokenizer.mask_token} .", None
