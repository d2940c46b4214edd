"""Parsed texts from a file, whatever it holds."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenlight.foundation.files import hash_file
from tokenlight.foundation.sizes import describe_count
from tokenlight.syntax.parses import Parse, conllu_parses, jsonl_parses, spacy_parses
from tokenlight.text.rows import Text

PARSERS = ("spacy", "conllu", "jsonl")


@dataclass(frozen=True)
class ParseSource:
    """A file of texts or parses that can be read from any place on."""

    path: Path
    parser: str
    column: str | None
    limit: int | None

    @property
    def name(self) -> str:
        """What is read, without where it lies: two runs with the same name read the same."""
        digest = hash_file(self.path)[:12]
        first = "" if self.limit is None else f", first {self.limit:,}"
        column = "" if self.column is None else f", column {self.column}"
        return f"{self.path.name} ({self.parser}{column}{first}; sha256 {digest})"

    def behind(self, done: int) -> Iterator[Parse]:
        """The parses behind the first `done`, up to the limit."""
        if self.parser == "spacy":  # texts that are counted already need no parse
            return spacy_parses(islice(read_texts(self.path, self.column), done, self.limit))
        stream = conllu_parses(self.path) if self.parser == "conllu" else jsonl_parses(self.path, self.column)
        return islice(stream, done, self.limit)


def parse_source(
    path: str | Path, parser: str | None = None, column: str | None = None, limit: int | None = None
) -> ParseSource:
    """Without a parser: treebanks and parsed JSON-lines hold their parses, any other text goes to spaCy."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file of texts {str(path)!r}")
    parser = guess_parser(path) if parser is None else parser
    if parser not in PARSERS:
        raise ValueError(f"a parser is one of {', '.join(PARSERS)}; found {parser!r}")
    return ParseSource(path, parser, column, limit)


def guess_parser(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".conllu":
        return "conllu"
    if suffix in (".jsonl", ".json"):
        with open(path, encoding="utf-8") as file:
            return "jsonl" if '"parsed"' in file.read(1 << 16) else "spacy"
    return "spacy"


def read_texts(path: Path, column: str | None) -> Iterator[Text]:
    """Of the rows that have one; a warning counts the others."""
    from tokenlight.data.examples import BadRow
    from tokenlight.data.reading_examples import read_examples
    from tokenlight.data.source import Source

    bad: list[BadRow] = []
    for example in read_examples(Source(path, text=column)):
        if isinstance(example, BadRow):
            bad.append(example)
        else:
            yield example.text
    if bad:
        warnings.warn(
            f"{describe_count(len(bad), 'row')} of {path.name} skipped. The first: {bad[0].where}: {bad[0].reason}",
            RuntimeWarning,
            stacklevel=2,
        )
