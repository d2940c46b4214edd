"""Explained answers and tables of their sources as LaTeX. Every character of a text is escaped."""

from collections.abc import Sequence
from textwrap import wrap

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.source_table import DocumentTable
from tokenlight.views.answer_words import AnswerWord, answer_words
from tokenlight.views.latex import escape, mixed, note_line, preamble, shaded
from tokenlight.views.layout import BREAK
from tokenlight.views.source_table import is_document, strengths

HEAD = 10  # characters of a line of a name above a column
TABLE_NEEDS = r"""% The table needs \usepackage{booktabs} and \usepackage[table]{xcolor}.
% Where a page has two columns, it belongs into a table*.
"""


def answer_latex(answer: ExplainedAnswer, chosen: Sequence[int]) -> str:
    """Prompt and answer, a paragraph for each message; the chosen tokens of the answer are underlined."""
    lines = [preamble() + r"{\raggedright"]
    for role, words in answer_words(answer, chosen):
        lines += [rf"\par\noindent\textit{{{escape(role)}}}\quad", "".join(map(written, words)).strip() + r"\par"]
    lines += map(note_line, answer.notes)
    return "\n".join(lines) + "}\n"


def written(word: AnswerWord) -> str:
    if word.kind == "between":
        return "\n" if word.text.isspace() and "\n" not in word.text else escape(word.text)
    if word.kind != "word":
        mark = rf"\tokenlightspecial{{{escape(BREAK if word.kind == 'break' else word.text.strip())}}}"
        return mark + escape("\n") * word.text.count("\n") if word.kind == "break" else mark
    box = shaded(word.text, word.strength)
    return rf"\underline{{{box}}}" if word.chosen else box


def table_latex(table: DocumentTable) -> str:
    """Sentences down, sources across, shaded; behind a line the scores that lie elsewhere."""
    count = sum(map(is_document, table.documents))
    columns = (
        r">{\raggedright\arraybackslash}p{.34\linewidth}"
        + "r" * count
        + r"@{\qquad}"
        + "r" * (len(table.documents) - count)
    )
    heads = " & ".join(head(column.name) for column in table.documents)
    lines = [preamble() + TABLE_NEEDS + rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rf" & {heads} \\", r"\midrule"]
    for part, scores, shades in zip(table.parts, table.scores.tolist(), strengths(table), strict=True):
        cells = [cell(score, strength) for score, strength in zip(scores, shades, strict=True)]
        lines.append(" & ".join([escape(" ".join(part.text.split())), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def head(name: str) -> str:
    """A name in short lines."""
    lines = r" \\ ".join(map(escape, wrap(name, HEAD, break_long_words=False)))
    return rf"\footnotesize\shortstack[r]{{{lines}}}"


def cell(score: float, strength: float) -> str:
    number = f"${score:+.3g}$"
    if abs(strength) < 0.01:
        return number
    color, letters = mixed(strength)
    return rf"\cellcolor{{{color}}}\textcolor{{{letters}}}{{{number}}}"
