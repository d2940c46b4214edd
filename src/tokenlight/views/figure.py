"""What every figure needs. Written with matplotlib (the extra `figures`) to the format that the file name says."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenlight.foundation.extras import from_extra
from tokenlight.foundation.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    with matplotlib.rc_context(SAVING), replacing(path) as part:
        figure.savefig(part, format=ending.removeprefix("."), dpi=200, metadata=FORMATS[ending])


def check_figure_name(path: str | Path) -> None:
    if Path(path).suffix not in FORMATS:
        raise ValueError(f"a figure's name ends in {', '.join(FORMATS)}; found {Path(path).name!r}")
