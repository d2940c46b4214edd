"""Tokens become words of the original text, whatever the tokenizer did to it."""

import random
from typing import Any

import pytest

from tests.tokenizers_ import TOKENIZERS
from tokenlight.text.segmentation import find_whole, group_tokens, is_word_border, number_words
from tokenlight.text.tokenize import encode
from tokenlight.text.tokenized_text import TokenizedText, parts

MIXED = "It isn't naïve – 東京 😀 ok"
TEXTS = [
    MIXED,
    "The unbelievable films are here.",
    "A well-known author's book; isn’t it?",
    "100,000 people -- e.g. 3.5% of U.S.A.!",
    '"quoted" (brackets) [more] <tags> a/b x_y',
    "  blanks   around\tand\nlines  ",
    "no\u00a0break cafe\u0301 👍🏽 👨‍👩‍👧 🇫🇷",
    "हिन्दी भाषा தமிழ் العَرَبِيَّة שָׁלוֹם ภาษาไทย 한국어",
    "می‌خواهم zero\u200bwidth",
    "日本語のテキスト。",
    "a",
]


def row_of(name: str, *texts: str) -> TokenizedText:
    text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    return encode(TOKENIZERS[name](), [text], None)[0]


def groups_of(tokenized_text: TokenizedText) -> list[list[int]]:
    return group_tokens(
        parts(tokenized_text.text), tokenized_text.segments, tokenized_text.spans, tokenized_text.special
    )


def words_of(tokenized_text: TokenizedText) -> list[str]:
    """The characters of each word, special tokens left out."""
    words = []
    for group in groups_of(tokenized_text):
        if not tokenized_text.special[group[0]]:
            text = parts(tokenized_text.text)[tokenized_text.segments[group[0]] or 0]
            words.append(text[tokenized_text.spans[group[0]][0] : tokenized_text.spans[group[-1]][1]])
    return words


def split(text: str) -> list[str]:
    """The text cut where the number of the word changes, blanks left out."""
    words: dict[int, str] = {}
    for character, number in zip(text, number_words(text), strict=True):
        words[number] = words.get(number, "") + character
    words.pop(-1, None)
    return list(words.values())


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_are_spans_of_the_original_text(name):
    assert words_of(row_of(name, MIXED)) == ["It", "isn't", "naïve", "–", "東", "京", "😀", "ok"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_merge_to_whole_words(name):
    assert words_of(row_of(name, "The unbelievable films are here .")) == [
        "The",
        "unbelievable",
        "films",
        "are",
        "here",
        ".",
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_of_the_two_texts_of_a_pair_are_separate(name):
    tokenized_text = row_of(name, "the key", "the book")
    assert words_of(tokenized_text) == ["the", "key", "the", "book"]
    for group in groups_of(tokenized_text):
        assert len({tokenized_text.segments[i] for i in group}) == 1


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_token_is_in_exactly_one_word_in_order(name, text):
    tokenized_text = row_of(name, text)
    assert [i for group in groups_of(tokenized_text) for i in group] == list(range(len(tokenized_text)))
    assert all(groups_of(tokenized_text))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_character_of_every_token_lies_in_exactly_one_word(name, text):
    tokenized_text = row_of(name, text)
    owners: dict[int, set[int]] = {}
    for number, group in enumerate(groups_of(tokenized_text)):
        for i in group:
            for character in range(*tokenized_text.spans[i]):
                owners.setdefault(character, set()).add(number)
    assert all(len(words) == 1 for words in owners.values())
    covered = {character for i in range(len(tokenized_text)) for character in range(*tokenized_text.spans[i])}
    assert set(owners) == covered


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_special_token_is_a_word_of_its_own(name, text):
    tokenized_text = row_of(name, text)
    for group in groups_of(tokenized_text):
        assert len(group) == 1 or not any(tokenized_text.special[i] for i in group)


def test_a_mask_inside_a_text_is_a_word_of_its_own():
    tokenized_text = row_of("wordpiece", "the [MASK]s are")
    assert [[tokenized_text.tokens[i] for i in group] for group in groups_of(tokenized_text)] == [
        *(["[CLS]"], ["the"], ["[MASK]"], ["s"], ["are"], ["[SEP]"])
    ]


def test_a_blank_that_is_a_token_belongs_to_the_next_word():
    texts, segments = ("a  b ",), [0, 0, 0, 0]
    spans = [(0, 1), (2, 2), (3, 4), (5, 5)]  # a, blank, b, blank, as `trim` leaves them
    assert group_tokens(texts, segments, spans, [False] * 4) == [[0], [1, 2], [3]]


def test_a_blank_before_a_special_token_is_not_lost():
    spans = [(0, 1), (2, 2), (2, 8)]  # a, blank, [MASK]
    assert group_tokens(("a [MASK]",), [0, 0, 0], spans, [False, False, True]) == [[0], [1], [2]]


def test_a_character_that_a_normalizer_makes_several_words_of_is_one_word():
    """NFKC writes U+FDFA with blanks: byte-level tokens that begin with one have an empty span behind it."""
    spans = [(0, 1), (1, 1), (0, 1), (0, 1), (2, 3)]
    assert group_tokens(("\ufdfa b",), [0] * 5, spans, [False] * 5) == [[0, 1, 2, 3], [4]]


def test_a_token_that_spans_two_words_joins_them():
    assert group_tokens(("ab cd",), [0, 0, 0], [(0, 1), (1, 4), (4, 5)], [False] * 3) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn't", ["It", "isn't"]),
        ("the author's book", ["the", "author's", "book"]),
        ("isn’t", ["isn’t"]),
        ("a well-known fact", ["a", "well-known", "fact"]),
        ("'quoted'", ["'", "quoted", "'"]),
        ("it 's", ["it", "'s"]),
        ("(no)", ["(", "no", ")"]),
        ("wait...", ["wait", ".", ".", "."]),
        ("東京", ["東", "京"]),
        ("café", ["café"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("العَرَبِيَّة لغة", ["العَرَبِيَّة", "لغة"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("می‌خواهم", ["می‌خواهم"]),
        ("한국어 좋아", ["한국어", "좋아"]),
        ("👍🏽 ok", ["👍🏽", "ok"]),
        ("👨‍👩‍👧 ok", ["👨‍👩‍👧", "ok"]),
        ("❤️!", ["❤️", "!"]),
        ("🇫🇷🇩🇪", ["🇫🇷", "🇩🇪"]),
        ("😀😀", ["😀", "😀"]),
    ],
)
def test_what_a_word_is(text, words):
    assert split(text) == words


@pytest.mark.parametrize(
    ("phrase", "text", "place"),
    [
        ("5", "3.5 or 5", 7),
        ("3", "3.5 or 3.", 7),
        ("3.", "3.5", None),
        ("000", "1,000", None),
        ("1,000", "it is 1,000, not 1", 6),
        ("5", "it is 5, not 6", 6),
        ("\u0301", "a\u0300\u0301.", None),  # between two marks of one letter
        ("\u0301", "a" + "\u0301" * 100_000, None),
        ("b", "a" + "\u0301" * 100_000 + "b b", 100_003),
    ],
    ids=range(9),
)
def test_a_phrase_is_no_part_of_a_number_or_of_a_letter(phrase, text, place):
    assert find_whole(text, phrase) == place


class Counted(str):
    """A text that counts how many of its characters are looked at."""

    __slots__ = ("steps",)
    steps: int

    def __getitem__(self, key: Any) -> str:
        self.steps += 1 if isinstance(key, int) else len(range(*key.indices(len(self))))
        return str.__getitem__(self, key)

    def find(self, part: str, start: int = 0, *more: int) -> int:  # type: ignore[override]
        """Compares what it passes over, and the part that it finds."""
        place = str.find(self, part, start, *more)
        self.steps += len(self) - start if place < 0 else place - start + len(part)
        return place


def steps_to_find(text: str, phrase: str) -> int:
    read, sought = Counted(text), Counted(phrase)
    read.steps = sought.steps = 0
    assert find_whole(read, sought) is None
    return read.steps + sought.steps


@pytest.mark.parametrize(
    ("unit", "before", "behind"),
    [("a", "", ""), ("ab", "", "a"), ("a", "", "\u0301"), ("1,", "", "1"), ("aab", "x", "")],
)
def test_steps_to_find_a_phrase_grow_with_the_text_and_not_with_its_square(unit, before, behind):
    """A phrase that overlaps itself stands everywhere in a long word, and nowhere as a word of its own."""
    few, many = (
        steps_to_find(before + unit * (4 * size) + behind, unit * size + behind[: len(unit) - 1]) for size in (100, 200)
    )
    assert many < 2.5 * few


def test_occurrences_equal_those_of_a_search_at_every_index():
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(draw.choices("aab 1,", k=draw.randrange(24)))
        phrase = "".join(draw.choices("aab 1,", k=draw.randrange(1, 6)))
        ends = [(place, place + len(phrase)) for place in range(len(text)) if text.startswith(phrase, place)]
        whole = [first for first, end in ends if is_word_border(text, first) and is_word_border(text, end)]
        assert find_whole(text, phrase) == (whole[0] if whole else None)
