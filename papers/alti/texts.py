"""Single texts of the paper's data, found by a few words of them, for maps of one text."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import tokenlight as tl
from papers.alti.runs import alti_parser
from papers.options import Run
from tokenlight.data.read import read_examples

SMALL_SENTENCE = "a patient and surprisingly funny portrait of two old friends ."
# Reviews of our own, each of the kind that the table of this number shows.
SMALL_REVIEWS = {
    "table1": (  # a bad evening at a restaurant
        "my sister chose this place for her birthday . the table was ready on time and the music was pleasant , but "
        "the soup arrived cold , the steak was burnt , and nobody apologized . two of us were ill the next day ."
    ),
    "table3": (  # a lukewarm remark on a shop, with a verdict at its end
        "it is fine for nails and light bulbs , and the owner is polite . still , half of the shelves were empty , the "
        "floor was sticky , and the line at the only register was endless . the whole visit was tiresome , and next "
        "time we will drive to the other side of town ."
    ),
    "table8": (  # short: praise first, then what was wrong
        "cheerful waiters and a pretty terrace . the pasta was bland , though , and the portions were tiny . no idea "
        "why my colleagues keep coming back ."
    ),
    "table9": (  # long and positive, with reservations, about a film
        "this is a cheap thriller from a small studio , and for the first ten minutes it looks like one . the titles "
        "shake , the sound is thin , and a boat that is meant to be at sea is clearly tied to something . stay with it "
        "anyway . once the three sisters arrive at the lighthouse , the film finds its pace and hardly ever loses it . "
        "the eldest , who has to lie to everybody , is wonderful : she says little , and you believe every word . the "
        "script is clever about money , about old letters , and about the way families keep quiet at breakfast . there "
        "is one chase too many in the middle , and the policeman is only there to ask what we already know . but the "
        "storm is beautifully shot , the music is used with care , and the last scene on the stairs is as tense as "
        "anything i have seen this year . my father , who never watches films of this kind , laughed at the right "
        "moments and asked for the name of the director . it is not a masterpiece and does not try to be one . it is "
        "a warm , smart and very entertaining film that was made with love , and i am glad that i gave it a chance ."
    ),
}


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
