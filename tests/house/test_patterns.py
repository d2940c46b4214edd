"""Regular expressions take time in proportion to the text, whatever the text is: checked by counting steps."""

import ast
import itertools
import random
import re

import pytest

from tests.house.plan import PACKAGE
from tests.regex_steps import count_steps
from tokenlight.cli.app import COLORS
from tokenlight.corpus.shards import SHARD
from tokenlight.runs.run_folder import LOCATIONS
from tokenlight.text import segmentation
from tokenlight.text.tokenize import PLACEHOLDER
from tokenlight.views.answer_page import IMPORT
from tokenlight.views.drawing import NOT_IN_XML
from tokenlight.views.latex import BEYOND_LATIN, BLANKS

# Pieces of adversarial texts: characters that the pattern matches, each also followed by one that it does not.
STOPS = (".", "!", ")", '"', " ", "\n", "\t", "a", "A", "1", "-", "。", "」")
PATTERNS = {
    "text/segmentation.py": [
        (segmentation.END, STOPS),
        (segmentation.PARAGRAPH, ("\n", " ", "\r", "a")),
        (segmentation.VISIBLE, (" ", "a")),
        (segmentation.ABBREVIATION, ("M", "r", ".", "e", " ")),
        (segmentation.WORD, ("a", "'", "s", "-", "\u0301", "\u200d", "京", "ก", "😀", "\U0001f1e6", " ")),
        (segmentation.IN_NUMBER, ("1", ".", "a")),
    ],
    "cli/app.py": [(COLORS, ("\x1b", "\x1b[", "1", ";", "m", "a"))],
    "text/tokenize.py": [(PLACEHOLDER, ("\ue000", "\ue001", "1", "a"))],
    "views/latex.py": [(BEYOND_LATIN, ("a", "京", " ")), (BLANKS, (" ", "\n", "a"))],
    "views/drawing.py": [(NOT_IN_XML, ("a", "\x00", " "))],
    "views/answer_page.py": [(IMPORT, ())],  # reads files of the package alone
    "heads/parse_placement.py": [(re.compile(r"a\s++b"), ("a", " ", "b"))],  # made from a word with blanks in it
    "corpus/shards.py": [(SHARD, ("part-", "1", ".", "parquet"))],
    "runs/run_folder.py": [(LOCATIONS, ("model", ".name", "seed_models", ".", "1", "data"))],
}
LISTED = [(pattern, parts) for listed in PATTERNS.values() for pattern, parts in listed]
SHORT = 48  # characters
# A text of twice the length takes twice the steps and a constant; fourfold, if every start looks at all that follows.
MOST_GROWTH = 2.5


def hard_texts(parts: tuple[str, ...], length: int) -> list[str]:
    """One part again and again before any other; two parts again and again."""
    single = [part * (length // len(part)) + behind for part in parts for behind in ("", *parts)]
    return single + [(a + b) * (length // len(a + b)) for a, b in itertools.permutations(parts, 2)]


def growth(pattern: re.Pattern[str], parts: tuple[str, ...]) -> float:
    """The most that a text of twice the length needs, as a factor."""
    one, two = (count_steps(pattern, hard_texts(parts, length)) for length in (SHORT, 2 * SHORT))
    return max((more / less for less, more in zip(one, two, strict=True)), default=0)


@pytest.mark.parametrize(("pattern", "parts"), LISTED, ids=[pattern.pattern[:20] for pattern, _ in LISTED])
def test_steps_grow_linearly_with_the_text(pattern, parts):
    assert growth(pattern, parts) < MOST_GROWTH


def test_quadratic_patterns_are_found():
    assert growth(re.compile(r"[.]+\)*(?= )"), (".", "a")) > MOST_GROWTH
    assert growth(re.compile(r"\s*\n"), (" ", "a")) > MOST_GROWTH


def test_every_pattern_of_the_package_is_listed():
    named = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
    used = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id == "re":
                used |= {path.relative_to(PACKAGE).as_posix()} if call.attr in named else set()
    assert used == set(PATTERNS)


def test_sentence_ends_equal_those_of_the_quadratic_pattern():
    """Without what keeps the search linear, the pattern finds the same ends."""
    plain = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s+[^\s])|[。！？｡।۔։።]+[」』”’）]*|\n(?=[ \t]*(?:[-*•–]|\d+[.)])\s)")
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(draw.choices([*STOPS, "…", "’", "*"], k=draw.randrange(30)))
        assert [m.span() for m in segmentation.END.finditer(text)] == [m.span() for m in plain.finditer(text)]
