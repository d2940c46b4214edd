"""Which words support each label over a whole corpus, shard by shard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.corpus.explain_dataset import FORMAT
from tokenlight.results.tables import CorpusSummary, LabelWords, WordSupport
from tokenlight.runs.run_folder import RUN_FILE, read_run
from tokenlight.text.segmentation import MARK_SET, Span
from tokenlight.text.tokenized_text import TokenGroups

READ = (
    "text",
    "text_pair",
    "messages",
    "method",
    "target",
    "foil",
    "starts",
    "ends",
    "segments",
    "special",
    "scores",
    "answer_starts",
)
BATCH = 256  # rows in memory


@dataclass
class Tally:
    """Counts of words for one method and label. Memory grows with the vocabulary, not with the corpus."""

    texts: int = 0
    uses: dict[str, int] = field(default_factory=dict)
    strongest: dict[str, int] = field(default_factory=dict)
    strength: dict[str, float] = field(default_factory=dict)
    squares: float = 0.0  # of the strengths of all uses

    def add(self, words: Sequence[tuple[str, float]]) -> None:
        self.texts += 1
        largest = max((abs(score) for _, score in words), default=0.0)
        best = max((score for _, score in words), default=0.0)
        for word, score in words:
            strength = score / largest if largest else 0.0
            self.uses[word] = self.uses.get(word, 0) + 1
            self.strength[word] = self.strength.get(word, 0.0) + strength
            self.squares += strength**2
        for word in {word for word, score in words if score == best > 0}:
            self.strongest[word] = self.strongest.get(word, 0) + 1

    def words(self, min_uses: int) -> tuple[WordSupport, ...]:
        """Words by distinctness: the standardized mean strength, since sums rank frequent words like "the" first."""
        uses = sum(self.uses.values())
        mean = sum(self.strength.values()) / max(uses, 1)
        spread = max(self.squares / max(uses, 1) - mean**2, 0.0) ** 0.5

        def support(word: str, uses: int) -> WordSupport:
            strength = self.strength[word] / uses
            distinctness = (strength - mean) * uses**0.5 / spread if spread else 0.0
            return WordSupport(word, uses, self.strongest.get(word, 0), strength, distinctness)

        supports = [support(word, uses) for word, uses in self.uses.items() if uses >= min_uses]
        return tuple(sorted(supports, key=lambda s: (-s.distinctness, -s.strength, s.word)))


def summarize(folder: str | Path, method: str | None = None, min_uses: int = 1) -> list[CorpusSummary]:
    """A summary for each method of an explained corpus, or for one method. Unfinished runs are summarized so far."""
    about = read_run(Path(folder))
    if about.get("format") != FORMAT:
        raise RefusedValue(f"{folder} holds no explained corpus; make one with `tokenlight explain-file`")
    try:
        methods, keep_text = list(about["methods"]), about["settings"]["keep_text"]
        name = about["model"]["name"] or about["model"]["sha256"][:8]
    except (KeyError, TypeError) as error:
        raise RefusedValue(
            f"{Path(folder) / RUN_FILE} is damaged ({type(error).__name__}: {error}): restore it from a copy, or "
            "explain the corpus again into another folder"
        ) from error
    if method is not None and method not in methods:
        raise RefusedValue(f"{folder} was not explained with {method!r}; it has {', '.join(methods)}")
    if not keep_text:
        raise RefusedValue(f"{folder} was written without the texts, so its words are not known: keep the texts")
    tallies: dict[str, dict[str, Tally]] = {label: {} for label in methods if method in (None, label)}
    for row in read_rows(Path(folder), method):
        tallies[row["method"]].setdefault(label_of(row), Tally()).add(words_of(row))
    if not any(tallies.values()):
        raise RefusedValue(f"{folder} holds no explained texts yet")
    return [CorpusSummary(name, label, sort_labels(by_label, min_uses)) for label, by_label in tallies.items()]


def label_of(row: Mapping[str, Any]) -> str:
    """The label that a row counts for: the target, with the foil if there is one. All answers count as one label."""
    if row["answer_starts"] is not None:
        return "answers"
    return row["target"] if row["foil"] is None else f"{row['target']} minus {row['foil']}"


def sort_labels(tallies: Mapping[str, Tally], min_uses: int) -> tuple[LabelWords, ...]:
    labels = sorted(tallies, key=lambda label: (-tallies[label].texts, label))
    return tuple(LabelWords(label, tallies[label].texts, tallies[label].words(min_uses)) for label in labels)


def read_rows(folder: Path, method: str | None) -> Iterator[dict[str, Any]]:
    """The rows of all existing shards, as dicts by column."""
    with from_extra("scale", "Parquet"):
        from pyarrow.parquet import ParquetFile

    from tokenlight.corpus.shards import hash_path, is_unchanged, shards

    for number, path in shards(folder).items():
        if hash_path(folder, number).exists() and not is_unchanged(folder, number):  # copied shards may lack hashes
            raise RefusedValue(
                f"{path} is damaged: it is not what was written. Explain the corpus with the same call again, which "
                "computes damaged shards again"
            )
        with ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=list(READ)):
                yield from (row for row in batch.to_pylist() if method in (None, row["method"]))


class StoredTokens(TokenGroups):
    """The tokens of a row of an explained corpus."""

    def __init__(self, row: Mapping[str, Any]):
        texts = tuple(text for text in (row["text"], row["text_pair"]) if text is not None)
        self._texts: tuple[str, ...] = texts or tuple(message["content"] for message in row["messages"])
        self.segments: list[int | None] = [None if segment < 0 else segment for segment in row["segments"]]
        self.spans: list[Span] = list(zip(row["starts"], row["ends"], strict=True))
        self.special: list[bool] = row["special"]

    @property
    def texts(self) -> tuple[str, ...]:
        return self._texts


def words_of(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The words of the text in lower case, with their scores; without special tokens."""
    stored = StoredTokens(row)
    words = [(word_of(stored, group), group) for group in stored.units("words")]
    return [(word, sum(float(row["scores"][i]) for i in group)) for word, group in words if word]


def word_of(stored: StoredTokens, group: Sequence[int]) -> str:
    """A word as it is counted: in lower case, with each accented letter as one character.

    A text may have such a letter as a letter and an accent, which tokenizers that drop accents leave out of its token.
    """
    text, end = stored.texts[stored.segments[group[0]] or 0], stored.span_of(group)[1]
    after = next((i for i in range(end, len(text)) if text[i] not in MARK_SET), len(text))
    return normalize("NFC", stored.text_of(group) + text[end:after]).lower()
