"""Heatmaps as LaTeX: words in coloured boxes that wrap at line ends. Every character of a text is escaped."""

import re
import unicodedata
from collections.abc import Sequence

from tokenlight.results.explanation import Explanation
from tokenlight.views.layout import Piece, explained, headline, pieces
from tokenlight.views.palette import AGAINST, SUPPORT, ink, shade

VISIBLE = 0.01  # weaker words stay without a box: less than one part of a hundred cannot be mixed
SPECIAL = {
    "↵": r"$\hookleftarrow$",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # a shorthand of babel in some languages
    "'": "'{}",  # two of them would be one quotation mark, two hyphens a dash
    "`": r"\textasciigrave{}",
    "-": "-{}",
    "?": "?{}",  # before a grave accent
    "!": "!{}",
    ",": ",{}",
    "[": "{[}",  # after a line break or an item it would be an option
    "]": "{]}",
    "*": "{*}",
}
PREAMBLE = r"""% Put this into a document with \input{{...}}. It needs in the preamble:
%   \usepackage{{xcolor}}
% Letters beyond Latin need LuaLaTeX or XeLaTeX and a font that has them.
\providecolor{{tokenlightsupport}}{{RGB}}{{{support}}}
\providecolor{{tokenlightagainst}}{{RGB}}{{{against}}}
\providecommand{{\tokenlightword}}[3]{{{{\setlength{{\fboxsep}}{{1.5pt}}\colorbox{{#1}}{{\strut\textcolor{{#2}}{{#3}}}}}}}}
\providecommand{{\tokenlightspecial}}[1]{{{{\footnotesize\textcolor{{gray}}{{#1}}}}}}
"""


def heatmaps(explanations: Sequence[Explanation]) -> str:
    """A snippet with a paragraph for each explanation; those of one text stand under what the model says of it."""
    if isinstance(explanations, Explanation) or not len(explanations):
        raise ValueError("expected a list of explanations, with one or more in it")
    lines = [preamble()]
    said = None
    for explanation in explanations:
        heading = (explanation.text, headline(explanation), explained(explanation))
        if heading != said:
            lines.append(
                rf"\par\noindent\textit{{the model says}} {escape(heading[1])}; "
                rf"\textit{{explained:}} {escape(heading[2])}\par"
            )
            said = heading
        lines += [rf"\par\noindent\texttt{{{escape(explanation.method)}}}\quad", heat(explanation) + r"\par"]
        lines += [rf"{{\footnotesize note: {escape(note)}\par}}" for note in explanation.notes]
    return "\n".join(lines) + "\n"


def preamble() -> str:
    """What every snippet begins with; in a document that has it already, it does nothing."""
    return PREAMBLE.format(support=",".join(map(str, SUPPORT)), against=",".join(map(str, AGAINST)))


def heat(explanation: Explanation) -> str:
    """The text with its boxes; blanks between them are line ends of the source, and lines break there in print."""
    return "".join(map(box, pieces(explanation))).strip()


def box(piece: Piece) -> str:
    if piece.word is None:
        return "\n" if piece.text.isspace() and "\n" not in piece.text else escape(piece.text)
    if piece.word.special:
        before, after = (" " if end.isspace() else "" for end in (piece.text[:1], piece.text[-1:]))
        return f"{before}\\tokenlightspecial{{{escape(piece.text.strip())}}}{after}"
    return shaded(piece.text, piece.strength)


def shaded(text: str, strength: float) -> str:
    """A word in its box; in a box no line can end: blanks around the word stand outside of it."""
    if abs(strength) < VISIBLE or not text.strip():
        return escape(text)
    word = text.strip()
    before, after = map(escape, text.split(word, 1))
    colour, letters = mixed(strength)
    return rf"{before}\tokenlightword{{{colour}}}{{{letters}}}{{{escape(' '.join(word.split()))}}}{after}"


def mixed(strength: float) -> tuple[str, str]:
    """The colour of a strength, as xcolor mixes it, and that of letters on it."""
    side = "tokenlightsupport" if strength > 0 else "tokenlightagainst"
    letters = "black" if ink(shade(strength)) == (0, 0, 0) else "white"
    return f"{side}!{min(100, round(100 * abs(strength)))}", letters


def escape(text: str) -> str:
    """As LaTeX prints it: nothing is a command, nothing joins. A run of blanks is one, a line break ends a line."""
    parts = re.split(r"(\s+)", text)
    return "".join(blank(part) if i % 2 else "".join(map(letter, part)) for i, part in enumerate(parts))


def blank(spaces: str) -> str:
    return "\\par\\noindent\n" if "\n" in spaces else " "


def letter(character: str) -> str:
    """Control characters are blanks: TeX gives some of them a meaning."""
    if unicodedata.category(character) in ("Cc", "Cs", "Cn", "Co"):
        return " "
    return SPECIAL.get(character, character)
