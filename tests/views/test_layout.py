"""Long texts: the strongest sentences stand in front, what matters little is folded, nothing is lost."""

import re
from html import unescape
from io import StringIO

import pytest
import torch
from rich.console import Console

import tokenlight as tl
from tokenlight.results.explanation import Explanation
from tokenlight.views import layout
from tokenlight.views.layout import Fold, Piece, folded, is_long, pieces
from tokenlight.views.terminal import show

FILLER = "The train was on time and the weather was as it always is in this part of the country in autumn. "


def explained(text, scores):
    """Word by word, with a score for the words that have one."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    words = [text[slice(*span)] for span in spans]
    return Explanation(
        text=text,
        tokens=words,
        scores=torch.tensor([scores.get(word, 0.001) for word in words]),
        special=torch.zeros(len(words), dtype=torch.bool),
        segments=[0] * len(words),
        spans=spans,
        **{"score": 1.0, "target": "good", "foil": None, "prediction": "good", "probability": 0.9},
        **{"method": "test", "options": {}, "task": "text-classification", "model": "none"},
    )


@pytest.fixture
def long():
    text = (
        FILLER * 20
        + "Then a wonderful thing happened! "
        + FILLER * 20
        + "Nobody liked the dreadful ending. "
        + FILLER * 9
    )
    return explained(text, {"wonderful": 3.0, "dreadful": -2.0})


def printed(explanation, **settings):
    console = Console(width=200, record=True, file=StringIO(), **settings)
    show([explanation], console)
    return console.export_text()


def test_sentences_add_up_to_the_text(long):
    assert len(long.sentences()) == 51
    assert sum(one.score for one in long.sentences()) == pytest.approx(float(long.scores.sum()), rel=1e-5)
    assert [one.text for one in long.strongest(2)] == [
        "Then a wonderful thing happened!",
        "Nobody liked the dreadful ending.",
    ]
    assert sorted(token for one in long.sentences() for token in one.tokens) == list(range(len(long.tokens)))


def test_paragraphs_and_pairs_and_special_tokens():
    e = tl.load().explain(("A charming film. Truly.", "Dull.\n\nVery dull."), "attn_lrp")
    assert [(one.text, one.segment) for one in e.sentences()] == [
        *(("A charming film.", 0), ("Truly.", 0)),
        *(("Dull.", 1), ("Very dull.", 1)),
    ]
    assert [one.text for one in e.paragraphs()] == ["A charming film. Truly.", "Dull.", "Very dull."]
    total = float(e.scores[~e.special].sum())
    assert sum(one.score for one in e.paragraphs()) == pytest.approx(total, abs=1e-5)


def test_weak_sentences_are_folded(long):
    assert is_long(long)
    laid = list(folded(long))
    folds = [piece for piece in laid if isinstance(piece, Fold)]
    assert 2 <= len(folds) <= 8
    shown = "".join(piece.text for piece in laid if isinstance(piece, Piece))
    assert "wonderful thing happened" in shown
    assert "dreadful ending" in shown
    assert len(shown) < 0.4 * len(long.text)


def test_folding_loses_nothing(long):
    parts = [list(piece.pieces) if isinstance(piece, Fold) else [piece] for piece in folded(long)]
    assert [piece for part in parts for piece in part] == list(pieces(long))


def test_a_short_text_is_not_folded():
    e = tl.load().explain("A charming film. Truly.", "attn_lrp")
    assert list(folded(e)) == list(pieces(e))
    assert layout.strongest(e) == []


@pytest.mark.parametrize("settings", [{}, {"force_terminal": True, "color_system": "truecolor"}])
def test_the_terminal_shows_the_strongest_sentences_first(long, settings):
    lines = printed(long, **settings)
    assert lines.index("Then a wonderful thing happened!") < lines.index("Nobody liked the dreadful ending.")
    assert lines.index("Nobody liked the dreadful ending.") < lines.index("The train was on time")
    assert re.search(r"… [\d,]+ words …", lines)
    assert len(lines) < 0.6 * len(long.text)


def test_html_folds_can_be_opened(long):
    page = long.to_html()
    assert page.count("<details>") == sum(isinstance(piece, Fold) for piece in folded(long))
    assert page.index('<ol class="strongest">') < page.index("<details>")
    heat = page[page.index("</ol>") : page.index("</td></tr>")]
    bare = unescape(re.sub(r"<summary>.*?</summary>|<[^>]*>", "", heat))
    assert bare.strip() == long.text.strip()


def test_text_that_was_not_read_is_folded():
    e = tl.load().explain("A charming film. " + FILLER * 60, "attn_lrp")
    last = [piece for piece in folded(e) if isinstance(piece, Fold)][-1]
    assert re.fullmatch(r"… [\d,]+ words that were not read …", last.label)
    assert "… \n" not in printed(e)
