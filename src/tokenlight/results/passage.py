"""Parts of a text with their scores."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A word of the original text; its score is the sum over its tokens."""

    text: str  # as it is written there
    score: float  # of all its tokens together
    tokens: tuple[int, ...]  # their numbers in the explanation
    special: bool  # a token that the tokenizer added, such as [CLS]
    segment: int | None  # the text of a pair, or the message of a chat, that it stands in
    span: tuple[int, int]  # its characters there
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

    text: str  # as it is written there
    score: float  # of all its tokens together
    tokens: tuple[int, ...]  # their numbers in the explanation
    segment: int | None  # the text of a pair, or the message of a chat, that it stands in
    span: tuple[int, int]  # its characters there
    name: str = ""  # of a source or a turn; empty for others
