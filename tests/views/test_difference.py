"""Differences between two explanations of one text: scaled, colored, and drawn as a page and as a figure."""

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.views.difference import difference, difference_figure, difference_page, scale_to_one, text_figure
from tokenlight.views.drawing import LIGHT, css, save, tint


def explain(method: str, text: str = "it is a <good> movie") -> tl.Explanation:
    return explainer_for("bert").explain(text, method, target=1)


def test_a_difference_compares_scores_of_unit_maximum():
    first, second = explain("attcat"), explain("raw_attention")
    between = difference(first, second)
    scaled = [e.scores.double() / max(abs(w.score) for w in e.words() if not w.special) for e in (first, second)]
    torch.testing.assert_close(between.scores, scaled[0] - scaled[1])
    assert between.method == "attcat − raw_attention"
    assert not difference(first, first).scores.any()
    with pytest.raises(ValueError, match="of one text"):
        difference(first, explain("attcat", "another text"))


def test_higher_scores_are_green_and_lower_ones_red_and_underlined():
    assert (tint(1), tint(-1), tint(0), tint(-7)) == (LIGHT.more, LIGHT.less, (255, 255, 255), LIGHT.less)
    first, second = explain("attcat"), explain("raw_attention")
    page = difference_page([(first, second)])
    for word in difference(first, second).words():
        if not word.special:
            kind = "word shaded less" if word.score < -0.05 else "word shaded"
            assert f'class="{kind}" style="background:{css(tint(word.score))}' in page
    assert "&lt;" in page
    assert "<good>" not in page


def test_a_difference_becomes_a_figure(tmp_path):
    pair = explain("attcat", "it is a $good$ movie and " * 12), explain("rollout", "it is a $good$ movie and " * 12)
    figure = difference_figure([pair, pair])
    save(figure, tmp_path / "difference.png")
    drawn = [text.get_text() for text in figure.axes[0].texts]
    assert drawn.count("movie") == 24
    assert len({text.get_position()[1] for text in figure.axes[0].texts}) > 6  # long texts go on in a new line


def test_texts_have_titles_of_their_own():
    first, second = explain("attcat"), explain("raw_attention")
    scaled = scale_to_one(first)
    assert max(abs(word.score) for word in scaled.words() if not word.special) == pytest.approx(1)
    figure = text_figure({"Ours": scaled, "ΔRawAtt": difference(first, second)})
    drawn = [text.get_text() for text in figure.axes[0].texts]
    assert [name for name in drawn if name in ("Ours", "ΔRawAtt")] == ["Ours", "ΔRawAtt"]
    assert drawn.count("movie") == 2
