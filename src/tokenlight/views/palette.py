"""Two colors that color-blind people tell apart: blue supports the target, orange speaks against it."""

from dataclasses import dataclass

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
