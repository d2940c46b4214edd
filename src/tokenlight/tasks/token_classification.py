"""A label for every token: named entities, parts of speech."""

from dataclasses import dataclass

from tokenlight.common.samples import SAMPLE
from tokenlight.tasks import register
from tokenlight.tasks.labels import Labeled
from tokenlight.tasks.positions import Positioned
from tokenlight.tasks.targets import TargetSpec
from tokenlight.text.tokenized_text import Text, TokenizedText


@register
@dataclass(frozen=True)
class TokenClassification(Positioned, Labeled):
    """The label of a token."""

    name = "token-classification"
    heads = ("ForTokenClassification",)
    auto_class = "AutoModelForTokenClassification"
    needs_position = True

    def default_position(self, tokenized_text: TokenizedText) -> int | None:
        return next((i for i, special in enumerate(tokenized_text.special) if not special), None)

    @property
    def sample(self) -> tuple[Text, TargetSpec]:
        return SAMPLE, ("boat", None)
