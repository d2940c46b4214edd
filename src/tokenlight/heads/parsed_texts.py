"""Parsed texts of a data source: parses of a treebank or of JSON lines, or texts that spaCy parses."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from tokenlight.data.examples import BadRow
from tokenlight.data.reading_examples import read_examples
from tokenlight.data.sampling import draw_numbers, pick
from tokenlight.data.source import Data, DataSource
from tokenlight.foundation.sizes import describe_count
from tokenlight.syntax.parses import SPACY_PIPELINE, Parse, conllu_parses, jsonl_parses, spacy_parses
from tokenlight.text.rows import Text

PARSERS = ("spacy", "conllu", "jsonl")


@dataclass(frozen=True)
class ParsedTextSource:
    """Texts or parses that can be read from any place on."""

    source: DataSource
    parser: str
    spacy: str = SPACY_PIPELINE  # the pipeline that parses texts

    @property
    def name(self) -> str:
        """What is read, without where it lies: two runs with the same name read the same."""
        source = self.source
        read = [self.parser if self.spacy == SPACY_PIPELINE else f"{self.parser} {self.spacy}"]
        read += [] if source.kind in (None, self.parser) else [f"kind {source.kind}"]
        read += [] if source.split is None else [f"split {source.split}"]
        read += [] if source.text is None else [f"column {source.text}"]
        read += [] if source.pair is None else [f"columns {' and '.join(source.pair)}"]
        read += [] if source.limit is None else [f"first {source.limit:,}"]
        read += [] if source.sample is None else [f"sample of {source.sample:,} by seed {source.seed}"]
        digest = source.hash()
        return f"{short_name(source)} ({', '.join(read)}{'' if digest is None else f'; sha256 {digest[:12]}'})"

    @property
    def count(self) -> int | None:
        """How many texts there are, for a progress bar; None if not known."""
        if self.parser == "spacy":
            return self.source.count()
        return self.source.limit if self.source.sample is None else len(self._sampled_parses)

    def behind(self, done: int) -> Iterator[Parse]:
        """The parses behind the first `done`, up to the limit."""
        if self.parser == "spacy":  # texts that are counted already need no parse
            return spacy_parses(islice(read_texts(self.source), done, None), self.spacy)
        if self.source.sample is None:
            return islice(self._read_parses(), done, self.source.limit)
        return pick(self._read_parses(), self._sampled_parses[done:], self.source.name)

    @cached_property
    def _sampled_parses(self) -> tuple[int, ...]:
        """The numbers of the parses in the sample, ascending; the file is read once to count them."""
        total = sum(1 for _ in self._read_parses())
        return draw_numbers(total, self.source.sample or total, self.source.seed)

    def _read_parses(self) -> Iterator[Parse]:
        [path] = self.source.files
        return (
            conllu_parses(path) if self.parser == "conllu" else jsonl_parses(path, self.source.text or self.source.pair)
        )


def parse_source(
    data: Data | DataSource,
    parser: str | None = None,
    column: str | None = None,
    limit: int | None = None,
    spacy: str | None = None,
) -> ParsedTextSource:
    """Without a parser: treebanks and parsed JSON lines hold their parses, any other text goes to spaCy.

    `spacy` is the name or the path of a spaCy pipeline, such as "en_core_web_trf". `column` and `limit` are for data
    that are not a `DataSource`, which names its columns and rows itself.
    """
    if not isinstance(data, DataSource):
        kind = parser if parser in ("conllu", "jsonl") else None
        data = DataSource(data, text=column, limit=limit, kind=kind)
    parser = guess_parser(data) if parser is None else parser
    if parser not in PARSERS:
        raise ValueError(f"a parser is one of {', '.join(PARSERS)}; found {parser!r}")
    if parser != "spacy" and len(data.files) != 1:
        raise ValueError(f"{data.name}: expected one file with parses in the format {parser!r}")
    if spacy is not None and parser != "spacy":
        raise ValueError(f"{data.name} holds parses ({parser}), and needs no spaCy pipeline {spacy!r}: leave it out")
    return ParsedTextSource(data, parser, spacy or SPACY_PIPELINE)


def guess_parser(source: DataSource) -> str:
    kinds: dict[str, Callable[[Path], bool]] = {"conllu": lambda path: True, "jsonl": holds_parses}
    for path in source.files[:1]:
        kind = source.kind_of(path)
        if kind in kinds and kinds[kind](path):
            return kind
    return "spacy"


def holds_parses(path: Path) -> bool:
    """Whether a file of JSON lines holds parses in the format of the Mask-LRP release."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return '"parsed"' in file.read(1 << 16)


def short_name(source: DataSource) -> str:
    """Of a file or a folder, without where it lies."""
    return Path(source.name).name if source.files else source.name


def read_texts(source: DataSource) -> Iterator[Text]:
    """Of the rows that have one; a warning counts the others."""
    bad: list[BadRow] = []
    for example in read_examples(source):
        if isinstance(example, BadRow):
            bad.append(example)
        else:
            yield example.text
    if bad:
        first = f"The first: {bad[0].where}: {bad[0].reason}"
        skipped = f"{describe_count(len(bad), 'row')} of {short_name(source)} skipped"
        warnings.warn(f"{skipped}. {first}", RuntimeWarning, stacklevel=2)
