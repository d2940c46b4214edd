"""Colors of scores, and what every matplotlib figure needs."""

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
    """What shades are mixed from; static/heatmap.js has the same, and a test compares them."""

    paper: Color
    support: Color
    against: Color
    more: Color  # where one method gives more than another, and less
    less: Color


LIGHT = Theme((255, 255, 255), support=(33, 102, 172), against=(204, 85, 0), more=(0, 120, 60), less=(190, 30, 45))
DARK = Theme((22, 27, 34), support=(92, 160, 225), against=(240, 136, 62), more=(63, 170, 106), less=(240, 98, 104))
PAPER, SUPPORT, AGAINST = LIGHT.paper, LIGHT.support, LIGHT.against


def shade(strength: float, theme: Theme = LIGHT) -> Color:
    """Paper at 0, the full color at -1 and 1."""
    return mix(theme.paper, theme.support if strength >= 0 else theme.against, abs(strength))


def tint(strength: float, theme: Theme = LIGHT) -> Color:
    """The same for differences: green from 1 on, red from -1 on."""
    return mix(theme.paper, theme.more if strength >= 0 else theme.less, abs(strength))


def mix(paper: Color, color: Color, share: float) -> Color:
    red, green, blue = (round(p + (c - p) * min(1.0, share)) for p, c in zip(paper, color, strict=True))
    return red, green, blue


def luminance(color: Color) -> float:
    """WCAG's relative luminance, from 0 (black) to 1 (white)."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(background: Color) -> Color:
    """Black or white, whichever can be read better on it."""
    return (0, 0, 0) if luminance(background) > 0.179 else (255, 255, 255)  # the two contrasts are equal there


def css(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def rgb(color: str) -> Color:
    """The inverse of `css`."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return red, green, blue


NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # an SVG with one cannot be read
FORMATS: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # and what is left out

SAVING: Any = {
    "svg.hashsalt": "tokenlight",
    "pdf.fonttype": 42,  # TrueType: conferences refuse Type 3
    "ps.fonttype": 42,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # of what is made while it is drawn, such as labels of ticks
}


def new_figure(width: float, height: float) -> "Figure":
    """Without pyplot: no window, no state of the process."""
    with from_extra("figures", "a figure"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", path: str | Path) -> None:
    """PNG, SVG or PDF by the name's ending; the same figure gives the same file.

    Dollar signs are letters as any other: between two of them in a text or a name there is no formula.
    """
    import matplotlib
    from matplotlib.text import Text

    check_figure_name(path)
    ending = Path(path).suffix
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_text(NOT_IN_XML.sub("\ufffd", text.get_text()))
    with matplotlib.rc_context(SAVING), atomic_write(path) as part:
        figure.savefig(part, format=ending.removeprefix("."), dpi=200, metadata=FORMATS[ending])


def check_figure_name(path: str | Path) -> None:
    if Path(path).suffix not in FORMATS:
        raise RefusedValue(f"a figure's name ends in {', '.join(FORMATS)}; found {Path(path).name!r}")
