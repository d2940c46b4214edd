"""Parsed texts from a file, whatever it holds."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tokenlight.batch import Text
from tokenlight.heads.parses import Parse, conllu_parses, jsonl_parses, spacy_parses

PARSERS = ("spacy", "conllu", "jsonl")


def parse_source(
    path: str | Path, parser: str | None = None, column: str | None = None, limit: int | None = None
) -> Callable[[int], Iterator[Parse]]:
    """A function that gives the parses behind the first n: what `count_heads` reads and resumes from."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file of texts {str(path)!r}")
    parser = guess_parser(path) if parser is None else parser
    if parser not in PARSERS:
        raise ValueError(f"a parser is one of {', '.join(PARSERS)}; found {parser!r}")

    def parses(done: int) -> Iterator[Parse]:
        if parser == "spacy":  # texts that are counted already need no parse
            return spacy_parses(islice(read_texts(path, column), done, limit))
        stream = conllu_parses(path) if parser == "conllu" else jsonl_parses(path, column)
        return islice(stream, done, limit)

    return parses


def guess_parser(path: Path) -> str:
    """Treebanks and parsed JSON-lines hold their parses; any other text goes to spaCy."""
    if path.suffix == ".conllu":
        return "conllu"
    if path.suffix in (".jsonl", ".json"):
        with open(path, encoding="utf-8") as file:
            start = file.read(1 << 16)
        return "jsonl" if '"parsed"' in start else "spacy"
    return "spacy"


def read_texts(path: Path, column: str | None) -> Iterator[Text]:
    from tokenlight.bench.data import BadRow, read_examples

    for example in read_examples(path, text=column):
        if isinstance(example, BadRow):
            raise ValueError(f"{example.where}: {example.reason}")
        yield example.text
