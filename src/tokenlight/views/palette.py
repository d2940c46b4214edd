"""Two colours that colour-blind people tell apart: blue supports the target, orange speaks against it."""

SUPPORT = (33, 102, 172)
AGAINST = (204, 85, 0)
PAPER = (255, 255, 255)


def shade(strength: float) -> tuple[int, int, int]:
    """White at 0, the full colour at -1 and 1."""
    colour = SUPPORT if strength >= 0 else AGAINST
    share = min(1.0, abs(strength))
    red, green, blue = (round(p + (c - p) * share) for p, c in zip(PAPER, colour, strict=True))
    return red, green, blue


def ink(background: tuple[int, int, int]) -> tuple[int, int, int]:
    """Black or white, whichever can be read on it."""
    red, green, blue = background
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)


def css(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
