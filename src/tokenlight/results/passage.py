"""Parts of a text with their scores."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A word of the original text; its score is the sum over its tokens."""

    text: str
    score: float
    tokens: tuple[int, ...]
    special: bool
    segment: int | None
    span: tuple[int, int]
    error: float | None = None  # the score's standard error, where it is a mean over contexts

    @property
    def newline(self) -> bool:
        """A line break that takes a token of its own."""
        return not self.special and self.text.isspace()

    @property
    def counts(self) -> bool:
        """Neither special nor a line break or blank."""
        return not self.special and bool(self.text.strip())


@dataclass(frozen=True)
class Passage:
    """A sentence, a paragraph or another part of the original text; its score is the sum over its tokens."""

    text: str
    score: float
    tokens: tuple[int, ...]
    segment: int | None
    span: tuple[int, int]
    name: str = ""
