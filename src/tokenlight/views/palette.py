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
    """Black or white, whichever can be read better on it (WCAG's relative luminance)."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in background)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)  # the two contrasts are equal there


def css(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
