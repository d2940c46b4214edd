"""Parses of the templated texts in `papers/small_texts.py`: `--small` counts heads on them without a parser."""

import random
import re
from collections.abc import Callable, Iterator, Sequence

from papers import small_texts
from tokenlight.heads.parses import Parse, ParsedWord

# A pattern for each clause. A group is named after the relation of its word, which depends on the group `head`.
CLAUSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"this is about the (?P<head>\w+)",
        r"the \w+ (?P<nsubj>\w+) (?P<head>did) (?P<obj>it)",
        r"(?P<nsubj>it) was in (?P<head>\w+)",
        r"the (?P<nsubj>year) was (?P<head>\w+)",
        r"the (?P<nsubj>\w+) (?P<head>came) (?P<advmod>later)",
        r"(?P<nsubj>who) (?P<head>did) (?P<obj>it)",
        r"(?P<advmod>where|when) (?P<head>was) (?P<nsubj>it)",
        r"(?P<advmod>where) does (?P<nsubj>\w+) (?P<head>live)",
        r"(?P<obj>what) does (?P<nsubj>\w+) (?P<head>do)",
        r"which (?P<obj>job|food) does (?P<nsubj>\w+) (?P<head>\w+)",
        r"(?P<advmod>how) (?P<head>old) is (?P<nsubj>\w+)",
        r"what does (?P<nsubj>\w+) (?P<head>like) to eat",
        r"(?P<head>what) is the (?P<nsubj>age)",
        r"in which (?P<head>city) is the (?P<nsubj>home)",
        r"(?P<nsubj>\w+) does (?P<advmod>not) (?P<head>\w+) there",
        r"(?P<nsubj>\w+) (?P<head>lives|works) (?P<advmod>there)",
        r"(?P<nsubj>\w+) (?P<head>lives|works) in",
        r"(?P<nsubj>\w+) is (?P<head>\w+)",
    )
)


def parse_words(text: str, segment: int, shift: int) -> list[ParsedWord]:
    """The words of one text of a pair, numbered from `shift`; words of no pattern have no syntactic head."""
    starts = {match.start(): shift + number for number, match in enumerate(re.finditer(r"\S+", text))}
    relations: dict[int, tuple[str, int]] = {}  # start of a word -> its relation and the number of its syntactic head
    for clause in re.finditer(r"[^.?]+", text):
        relation_words = next((match for pattern in CLAUSES if (match := pattern.match(clause[0].strip()))), None)
        if relation_words is None:
            continue
        first = clause.start() + len(clause[0]) - len(clause[0].lstrip())
        for relation in relation_words.groupdict():
            if relation != "head":
                relations[first + relation_words.start(relation)] = (
                    relation,
                    starts[first + relation_words.start("head")],
                )
    words = []
    for match in re.finditer(r"\S+", text):
        relation, head = relations.get(match.start(), ("root", None))
        words.append(ParsedWord(segment, match.span(), head, relation))
    return words


def parse_pair(first: str, second: str) -> Parse:
    words = parse_words(first, 0, 0)
    return Parse((first, second), (*words, *parse_words(second, 1, len(words))))


def question_pair(draw: random.Random) -> Sequence[str]:
    question = small_texts.make_question(draw)
    return question.question, question.passage


def inference_pair(draw: random.Random) -> Sequence[str]:
    return small_texts.make_inference(draw)[:2]


def duplicate_pair(draw: random.Random) -> Sequence[str]:
    return small_texts.make_pair(draw)[:2]


MAKERS: dict[str, Callable[[random.Random], Sequence[str]]] = {
    "mnli": inference_pair,
    "qqp": duplicate_pair,
    "squad1": question_pair,
    "squad2": question_pair,
}


def small_parses(data: str, count: int, seed: int = 0) -> Iterator[Parse]:
    """Training texts of a small model with their parses; `data` names the set that they stand for."""
    draw = random.Random(seed)
    for _ in range(count):
        first, second = MAKERS[data](draw)
        yield parse_pair(first, second)
