"""Colors of scores, and functions that all matplotlib figures share."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Color = tuple[int, int, int]


@dataclass(frozen=True)
class Theme:
    """The colors that shades are mixed from; a test compares them with static/heatmap.js."""

    paper: Color
    support: Color
    against: Color
    more: Color  # in differences: the first method gives more, or less
    less: Color


LIGHT = Theme((255, 255, 255), support=(33, 102, 172), against=(204, 85, 0), more=(0, 120, 60), less=(190, 30, 45))
DARK = Theme((22, 27, 34), support=(92, 160, 225), against=(240, 136, 62), more=(63, 170, 106), less=(240, 98, 104))
PAPER, SUPPORT, AGAINST = LIGHT.paper, LIGHT.support, LIGHT.against


def shade(strength: float, theme: Theme = LIGHT) -> Color:
    """The color of a strength: that of the paper at 0, the full color at -1 and 1."""
    return mix(theme.paper, theme.support if strength >= 0 else theme.against, abs(strength))


def tint(strength: float, theme: Theme = LIGHT) -> Color:
    """The color of a difference: full green from 1, full red from -1."""
    return mix(theme.paper, theme.more if strength >= 0 else theme.less, abs(strength))


def mix(paper: Color, color: Color, share: float) -> Color:
    red, green, blue = (round(p + (c - p) * min(1.0, share)) for p, c in zip(paper, color, strict=True))
    return red, green, blue


def luminance(color: Color) -> float:
    """WCAG's relative luminance, from 0 (black) to 1 (white)."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (channel / 255 for channel in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(background: Color) -> Color:
    """Black or white, whichever has more contrast with the background."""
    return (0, 0, 0) if luminance(background) > 0.179 else (255, 255, 255)  # where both contrasts are equal


def css(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def rgb(color: str) -> Color:
    """The inverse of `css`."""
    red, green, blue = (int(color[index : index + 2], 16) for index in (1, 3, 5))
    return red, green, blue


NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # invalid in SVG
FORMATS: dict[str, Any] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}  # and metadata that is left out, for equal files

SAVING: Any = {
    "svg.hashsalt": "tokenlight",
    "pdf.fonttype": 42,  # TrueType: conferences refuse Type 3
    "ps.fonttype": 42,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # for texts that are created while drawing, such as tick labels
}


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, without pyplot, which has global state."""
    with from_extra("figures", "a figure"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", path: str | Path) -> None:
    """Save as PNG, SVG or PDF, by the name's ending; equal figures give equal files.

    Dollar signs are ordinary characters: text between two of them is not a formula.
    """
    import matplotlib
    from matplotlib.text import Text

    check_figure_name(path)
    ending = Path(path).suffix
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_text(NOT_IN_XML.sub("\ufffd", text.get_text()))
    with matplotlib.rc_context(SAVING), atomic_write(path) as temporary:
        figure.savefig(temporary, format=ending.removeprefix("."), dpi=200, metadata=FORMATS[ending])


def check_figure_name(path: str | Path) -> None:
    if Path(path).suffix not in FORMATS:
        raise RefusedValue(f"the name of a figure must end in {', '.join(FORMATS)}; found {Path(path).name!r}")
