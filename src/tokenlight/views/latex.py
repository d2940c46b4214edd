"""Heatmaps, explained answers and their document tables as LaTeX. Every character of a text is escaped."""

import re
import unicodedata
from collections.abc import Sequence
from textwrap import wrap

from tokenlight.common.errors import RefusedValue
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation
from tokenlight.results.units import DocumentTable
from tokenlight.views.answer_figure import AnswerWord, answer_words
from tokenlight.views.document_table import is_document, strengths
from tokenlight.views.drawing import AGAINST, SUPPORT, ink, shade
from tokenlight.views.layout import BREAK, Piece, explained, headline, notes_of, pieces

VISIBLE = 0.01  # weaker words have no box, because colors are mixed in steps of 1/100
SPECIAL = {
    "↵": r"$\hookleftarrow$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
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
# Characters that pdfLaTeX does not print: all but Latin letters and common signs.
BLANKS = re.compile(r"(\s+)")
BEYOND_LATIN = re.compile("[^\u0000-\u017f–—‘’‚“”„†‡•…‰‹›€™↵]+")
LONG_WORD, STRETCH = 24, 12  # words longer than this may break, in parts of this length
PREAMBLE = r"""% Put this into a document with \input{{...}}. It needs in the preamble:
%   \usepackage{{xcolor}}
%   \usepackage[T1]{{fontenc}}  for pdfLaTeX, if the text is more than plain ASCII
% Letters beyond Latin need LuaLaTeX or XeLaTeX and a font that has them; pdfLaTeX prints their numbers.
\providecolor{{tokenlightsupport}}{{RGB}}{{{support}}}
\providecolor{{tokenlightagainst}}{{RGB}}{{{against}}}
\providecommand{{\tokenlightword}}[3]{{%
  {{\setlength{{\fboxsep}}{{0pt}}\colorbox{{#1}}{{\rule[-.32em]{{0pt}}{{1.12em}}\textcolor{{#2}}{{#3}}}}}}}}
\providecommand{{\tokenlightletters}}[2]{{\ifdefined\Umathcode#2\else{{\setlength{{\fboxsep}}{{1pt}}\fbox{{\tiny#1}}}}\fi}}
\providecommand{{\tokenlightspecial}}[1]{{{{\footnotesize\textcolor{{gray}}{{#1}}}}}}
"""


def heatmaps(explanations: Sequence[Explanation]) -> str:
    """A snippet with a paragraph for each explanation, under a heading with the prediction for each text."""
    if isinstance(explanations, Explanation) or not len(explanations):
        raise RefusedValue("expected a list of explanations, with one or more in it")
    lines = [preamble() + r"{\raggedright"]
    last_heading, shown_notes = None, set[str]()
    for explanation in explanations:
        heading = (explanation.text, headline(explanation), explained(explanation))
        if heading != last_heading:
            lines.append(
                rf"\par\medskip\noindent\textit{{the model says}} {escape(heading[1])}; "
                rf"\textit{{explained:}} {escape(heading[2])}\par"
            )
            last_heading = heading
        lines += [rf"\par\noindent\texttt{{{escape(explanation.method)}}}\quad", heat(explanation) + r"\par"]
        lines += [note_line(note) for note in notes_of(explanation) if note not in shown_notes]
        shown_notes.update(notes_of(explanation))
    return "\n".join(lines) + "}\n"


def note_line(note: str) -> str:
    return rf"{{\footnotesize\noindent note: {escape(note)}\par}}"


def preamble() -> str:
    """The definitions that every snippet begins with; repeating them has no effect."""
    return PREAMBLE.format(support=",".join(map(str, SUPPORT)), against=",".join(map(str, AGAINST)))


def heat(explanation: Explanation) -> str:
    """The text with its boxes; blanks between them are line ends of the source, where lines may break."""
    return "".join(map(box, pieces(explanation))).strip().removeprefix("~")


def box(piece: Piece) -> str:
    if piece.word is None:
        return "\n" if piece.text.isspace() and "\n" not in piece.text else escape(piece.text)
    if piece.word.special:
        before = "~" if piece.text[:1].isspace() else ""  # so that it is never alone at the beginning of a line
        after = " " if piece.text[-1:].isspace() else ""
        return f"{before}\\tokenlightspecial{{{escape(piece.text.strip())}}}{after}"
    return shaded(piece.text, piece.strength)


def shaded(text: str, strength: float) -> str:
    """A word in its box. Lines do not break in boxes: blanks are outside, and a long word has several boxes."""
    word = text.strip()
    if not word:
        return escape(text)
    before, after = map(escape, text.split(word, 1))
    word = " ".join(word.split())
    length = STRETCH if len(word) > LONG_WORD else len(word)
    pieces_ = [escape(word[start : start + length]) for start in range(0, len(word), length)]
    if abs(strength) >= VISIBLE:
        color, letters = mixed(strength)
        pieces_ = [rf"\tokenlightword{{{color}}}{{{letters}}}{{{piece}}}" for piece in pieces_]
    return before + r"\allowbreak{}".join(pieces_) + after


def mixed(strength: float) -> tuple[str, str]:
    """The color of a strength in xcolor's notation, and that of letters on it."""
    side = "tokenlightsupport" if strength > 0 else "tokenlightagainst"
    letters = "black" if ink(shade(strength)) == (0, 0, 0) else "white"
    return f"{side}!{min(100, round(100 * abs(strength)))}", letters


def escape(text: str) -> str:
    """Escape a text: no commands, no ligatures. Several blanks become one, a line break ends a line."""
    segments = BLANKS.split(text)
    return "".join(
        blank(segment) if i % 2 else BEYOND_LATIN.sub(numbered, written(segment)) for i, segment in enumerate(segments)
    )


def numbered(match: re.Match[str]) -> str:
    """Letters with their code points, for programs without these letters."""
    codes = " ".join(f"{ord(character):04X}" for character in match[0])
    return rf"\tokenlightletters{{{codes}}}{{{match[0]}}}"


def written(text: str) -> str:
    return "".join(map(letter, text))


def blank(spaces: str) -> str:
    return "\\par\\noindent\n" if "\n" in spaces else " "


def letter(character: str) -> str:
    """An escaped character; control characters become blanks, because some have a meaning in TeX."""
    if unicodedata.category(character) in ("Cc", "Cs", "Cn", "Co"):
        return " "
    return SPECIAL.get(character, character)


HEAD = 10  # characters in a line of a name above a column
TABLE_NEEDS = r"""% The table needs \usepackage{booktabs} and \usepackage[table]{xcolor}.
% Where a page has two columns, it belongs into a table*.
"""


def answer_latex(answer: ExplainedAnswer, chosen: Sequence[int]) -> str:
    """Prompt and answer, a paragraph for each message; the chosen tokens of the answer are underlined."""
    lines = [preamble() + r"{\raggedright"]
    for role, words in answer_words(answer, chosen):
        lines += [rf"\par\noindent\textit{{{escape(role)}}}\quad", "".join(map(written_word, words)).strip() + r"\par"]
    lines += map(note_line, answer.notes)
    return "\n".join(lines) + "}\n"


def written_word(word: AnswerWord) -> str:
    if word.kind == "between":
        return "\n" if word.text.isspace() and "\n" not in word.text else escape(word.text)
    if word.kind != "word":
        mark = rf"\tokenlightspecial{{{escape(BREAK if word.kind == 'break' else word.text.strip())}}}"
        return mark + escape("\n") * word.text.count("\n") if word.kind == "break" else mark
    box = shaded(word.text, word.strength)
    return rf"\underline{{{box}}}" if word.chosen else box


def table_latex(table: DocumentTable) -> str:
    """A shaded table of sentences by documents; after a gap, the scores outside documents."""
    count = sum(map(is_document, table.documents))
    columns = (
        r">{\raggedright\arraybackslash}p{.34\linewidth}"
        + "r" * count
        + r"@{\qquad}"
        + "r" * (len(table.documents) - count)
    )
    heads = " & ".join(head(column.name) for column in table.documents)
    lines = [preamble() + TABLE_NEEDS + rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rf" & {heads} \\", r"\midrule"]
    for sentence, scores, shades in zip(table.parts, table.scores.tolist(), strengths(table), strict=True):
        cells = [cell(score, strength) for score, strength in zip(scores, shades, strict=True)]
        lines.append(" & ".join([escape(" ".join(sentence.text.split())), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def head(name: str) -> str:
    """A name, wrapped in short lines."""
    lines = r" \\ ".join(map(escape, wrap(name, HEAD, break_long_words=False)))
    return rf"\footnotesize\shortstack[r]{{{lines}}}"


def cell(score: float, strength: float) -> str:
    number = f"${score:+.3g}$"
    if abs(strength) < 0.01:
        return number
    color, letters = mixed(strength)
    return rf"\cellcolor{{{color}}}\textcolor{{{letters}}}{{{number}}}"
