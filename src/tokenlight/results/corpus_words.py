"""Which words support each label over a whole corpus."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WordSupport:
    """A word in texts that were explained for one label; upper and lower case are the same."""

    word: str
    uses: int
    strongest: int  # how often no other word of the text supported the label more
    strength: float  # mean over uses of score / largest |score| of a word in that text: 1 is the strongest support
    distinctness: float  # standard errors by which that is above the mean of all words, for a word used as often


@dataclass(frozen=True)
class LabelWords:
    """The words of one label, the most distinctive first."""

    label: str
    texts: int
    words: tuple[WordSupport, ...]

    def find(self, word: str) -> WordSupport | None:
        return next((one for one in self.words if one.word == word), None)


@dataclass(frozen=True)
class CorpusSummary:
    """What one method says about one model on a corpus; the most frequent label first."""

    model: str
    method: str
    labels: tuple[LabelWords, ...]

    def find(self, label: str) -> LabelWords | None:
        return next((one for one in self.labels if one.label == label), None)
