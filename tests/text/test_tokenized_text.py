"""Tokens grouped, selected and found: the methods that a tokenized text shares with results of it."""

from dataclasses import replace

import pytest

from tests.tokenizers_ import TOKENIZERS
from tokenlight.text.documents import find_documents
from tokenlight.text.segmentation import paragraphs
from tokenlight.text.tokenize import encode
from tokenlight.text.tokenized_text import Document, Text, TokenizedText

TEXT = "It is a [MASK] movie. They are here!\n\nThe key is here"


def tokenized(text: Text, name: str = "wordpiece", length: int | None = None) -> TokenizedText:
    return encode(TOKENIZERS[name](), [text], length)[0]


def written(tokenized_text: TokenizedText, groups: list[list[int]]) -> list[str]:
    return [" ".join(tokenized_text.tokens[token] for token in group) for group in groups]


def test_special_tokens_are_in_no_unit_unless_they_are_kept():
    found = tokenized(TEXT)
    mask = found.tokens.index("[MASK]")
    added = [0, len(found) - 1]
    for kind in ("tokens", "words", "sentences"):
        assert not {mask, *added} & {token for unit in found.units(kind) for token in unit}
    for kind in ("tokens", "words"):
        assert all([token] in found.units(kind, keep_special=True) for token in (mask, *added))
    kept = {token for unit in found.units("sentences", keep_special=True) for token in unit}
    assert mask in kept  # it stands in a sentence
    assert kept.isdisjoint(added)  # these stand nowhere


def test_documents_are_units_of_the_tokens_that_begin_in_them():
    found = tokenized(TEXT)
    found = replace(found, documents=(Document("a", 0, (3, 8)), Document("none", 0, (4, 5)), Document("b", 0, (8, 14))))
    assert written(found, found.units("documents")) == ["is a"]
    assert written(found, found.units("documents", keep_special=True)) == ["is a", "[MASK]"]
    with pytest.raises(ValueError, match="the text has none: name them"):
        replace(found, documents=()).units("documents")


def test_unknown_units_are_refused():
    with pytest.raises(
        ValueError, match="units must be one of tokens, words, sentences, documents; found 'paragraphs'"
    ):
        tokenized(TEXT).units("paragraphs")  # type: ignore[arg-type]


def test_a_text_is_divided_by_a_function():
    found = tokenized(TEXT)
    sections = found.divide(paragraphs)
    assert [TEXT[slice(*section.span)] for section in sections] == [TEXT[:38], TEXT[38:]]
    assert written(found, [sections[1].tokens]) == ["the key is here"]
    (whole,) = found.divide(lambda text: [])
    assert whole.span == (0, len(TEXT))
    assert [whole.tokens] == [[token for (token,) in found.units("tokens")]]


def test_segments_are_divided_separately():
    pair = tokenized(("It is. They are.", "The key"))
    assert [section.segment for section in pair.divide(paragraphs)] == [0, 1]
    assert written(pair, pair.units("sentences")) == ["it is .", "they are .", "the key"]
    (second,) = pair.divide(paragraphs, segments=[1])
    assert written(pair, [second.tokens]) == ["the key"]


def test_every_occurrence_of_a_phrase_is_found():
    pair = tokenized(("aaa", "a key"))
    assert pair.find("aa") == [(0, (0, 2)), (0, (1, 3))]
    assert pair.find("a", segment=1) == [(1, (0, 1))]
    assert pair.find("") == pair.find("b") == []


def test_a_word_is_found_by_its_text():
    found = tokenized("this movie is unbelievable", "wordpiece")
    assert found.tokens[found.token_of_word("is")] == "is"  # not the end of "this"
    assert found.tokens[found.token_of_word("believable")] == "##believ"
    with pytest.raises(ValueError, match="'i' occurs 4 times in the text"):
        found.token_of_word("i")
    with pytest.raises(ValueError, match="'unbelievable' is not among the tokens that fit"):
        tokenized("this movie is unbelievable", length=5).token_of_word("unbelievable")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_index_finds_the_tokens_that_share_a_character(name):
    text = "unbelievable  films, 東京 and 😀 are here"
    found = tokenized(text, name)
    index = found.segment_index(0)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            touching = found.tokens_touching(0, (start, end))
            filled = [token for token in touching if found.spans[token][0] < found.spans[token][1]]
            assert index.find((start, end)) == ((filled[0], filled[-1] + 1) if filled else None)
    assert found.segment_index(1).find((0, 9)) is None


def test_selected_tokens_keep_their_attributes():
    found = replace(tokenized(("It is.", "The key")), documents=find_documents(("It is.", "The key"), "turns"))
    kept = [0, 2, 5, 6]
    left = found.select(kept)
    for name in ("input_ids", "token_type_ids", "tokens", "special", "segments", "spans"):
        assert getattr(left, name) == [getattr(found, name)[i] for i in kept]
    assert (left.text, left.truncated, left.documents) == (found.text, found.truncated, found.documents)


def test_words_are_written_as_in_the_text():
    found = tokenized("It isn't [MASK]")
    words = found.units("words", keep_special=True)
    assert [found.text_of(word) for word in words] == ["[CLS]", "It", "isn't", "[MASK]", "[SEP]"]
    assert [found.span_of(word) for word in words] == [(0, 0), (0, 2), (3, 8), (9, 15), (0, 0)]
