"""Figures that a paper can take: names that do not touch, fonts that are no pictures, letters that can be read."""

import itertools
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from tests.views.test_drawing import TEXT, contrast
from tokenlight.embedded import FILES
from tokenlight.heads.mask import HeadMask
from tokenlight.views.drawing import new_figure, rgb, save
from tokenlight.views.heads import head_figure


@pytest.fixture(scope="module")
def figure() -> Any:
    """The calibrated mask inside the package: a long name, and two maps."""
    return head_figure(HeadMask.load(FILES / "calibrated.json"))


def test_names_above_maps_do_not_overlap(figure: Any) -> None:
    figure.draw_without_rendering()
    whole = figure.bbox
    boxes = [text.get_window_extent() for axes in figure.axes for text in (axes._left_title, axes.xaxis.label)]
    assert len(boxes) == 4
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    assert all(box.x0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1 for box in boxes)


def test_labels_can_be_read_on_their_heads(figure: Any) -> None:
    from matplotlib.colors import to_hex

    for axes in figure.axes:
        for box, text in zip(axes.patches, axes.texts, strict=True):
            if text.get_text():
                assert contrast(rgb(to_hex(box.get_facecolor())), rgb(to_hex(text.get_color()))) >= TEXT


def test_pdf_has_no_type_3_fonts(figure: Any, tmp_path: Any) -> None:
    save(figure, tmp_path / "heads.pdf")
    written = (tmp_path / "heads.pdf").read_bytes()
    assert b"/Type3" not in written
    assert b"/CIDFontType2" in written


def test_a_figure_of_control_characters_can_be_read(tmp_path: Any) -> None:
    figure = new_figure(2, 1)
    figure.text(0, 0.5, "a\x00b\x1b[31m \ufffe c\nd")
    save(figure, tmp_path / "figure.svg")
    ElementTree.parse(tmp_path / "figure.svg")
    assert figure.texts[0].get_text() == "a\ufffdb\ufffd[31m \ufffd c\nd"


@pytest.mark.parametrize("heads", [1, 4, 12])
def test_the_legend_of_a_head_map_fits_into_the_figure(heads):
    mask = HeadMask(torch.ones(2, heads), torch.zeros(2, heads), calibrated=torch.ones(2, heads))
    figure = head_figure(mask)
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.width
