"""Single texts of the paper's data, found by a few words of them, for maps of one text."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import tokenlight as tl
from papers.alti.runs import alti_parser
from papers.options import Run
from tokenlight.data.reading_examples import read_examples

SMALL_SENTENCE = "a patient and surprisingly funny portrait of two old friends ."
SMALL_REVIEW = (
    "we stopped here before a concert . the waiter was quick but that is all . the fish was dry , the rice was "
    "tasteless , and my friend felt sick for the rest of the evening . what a disappointing place ."
)


def text_parser(description: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    parser = alti_parser(description, names)
    parser.add_argument("--text", help="in place of the paper's text")
    return parser


def choose_text(options: argparse.Namespace, run: Run, words: str, small: str) -> str:
    """`--text`, the small text, or the first of the run's data with these words in it."""
    if options.text:
        return options.text
    if run.small or run.source.data != run.paper.data:
        return small
    for row in read_examples(replace(run.source, limit=None, sample=None), None):
        if isinstance(row, tl.Example) and words in str(row.text).lower():
            return str(row.text)
    raise SystemExit(f"no text of {run.source.name} has the words {words!r}: give one with --text")
