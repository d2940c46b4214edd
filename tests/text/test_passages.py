"""Sentences and paragraphs, in several languages and in the ways people write."""

import pytest

from tokenlight.text.segmentation import paragraphs, sentences

CASES = {
    "two": ["It rained. ", "We stayed in."],
    "names": ["Mr. Smith met J. R. R. Tolkien, e.g. in Oxford. ", "They talked."],
    "numbers": ["It cost 3.50 dollars. ", "See Fig. 3. ", "Good."],
    "speech": ['"Stop!" she said. ', '"Why?" ', "He left."],
    "dots": ["Well... maybe not. ", "Or yes…"],
    "closing": ["(It was late.) ", "He slept [soundly.] ", "End"],
    "blank line": ["A heading\n\n", "And its text"],
    "list": ["We need:\n", "- milk\n", "- bread. ", "Fresh\n", "2. butter"],
    "wrapped lines": ["A sentence that\ngoes on in the next line. ", "Another."],
    "Chinese": ["今天下雨。", "我们在家！", "好吗？", "好"],
    "Hindi": ["यह एक वाक्य है। ", "यह दूसरा है।"],
    "no end": ["all of it without any end"],
    "blanks in front": ["\n\n  Begins here. ", "Ends here.  "],
}


@pytest.mark.parametrize("expected", CASES.values(), ids=CASES)
def test_sentences(expected):
    text = "".join(expected)
    assert [text[start:end] for start, end in sentences(text)] == expected


def test_paragraphs():
    text = "One. Two.\n\nThree\nfour\n \t\n\nfive"
    assert [text[start:end] for start, end in paragraphs(text)] == ["One. Two.\n\n", "Three\nfour\n \t\n\n", "five"]


@pytest.mark.parametrize("text", ["", " ", "\n\n", ".", "...", "?! ", "\n\n\n- \n\n1. a", "a. \n\n\n b. C.", "。。"])
@pytest.mark.parametrize("cut", [sentences, paragraphs])
def test_spans_cover_the_text_and_never_overlap(cut, text):
    spans = cut(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


def test_a_very_long_text_is_cut_in_proportion():
    """No step looks at all that follows."""
    text = "It rained. We stayed in.\n\n" * 20_000
    assert len(sentences(text)) == 2 * len(paragraphs(text)) == 40_000
