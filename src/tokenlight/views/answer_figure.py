"""An explained answer as a figure: prompt and answer as text, lit by what made the model write a part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.views.answer_words import AnswerWord, answer_words
from tokenlight.views.figure import new_figure
from tokenlight.views.layout import BREAK
from tokenlight.views.palette import css, ink, shade

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 6.5  # of the text, in inches
LINE, BETWEEN = 0.21, 0.09  # the height of a line, and more between messages
INDENT, MARGIN = 0.85, 0.05  # where the text begins, behind the names of the roles, and ends before the edge
SIZE, SMALL = 9.0, 7.0  # of letters, in points
QUIET = "#57606a"


@dataclass(frozen=True)
class Placed:
    """A word and its place, in inches."""

    word: AnswerWord
    text: str
    left: float
    top: float
    width: float


def answer_figure(answer: ExplainedAnswer, chosen: Sequence[int]) -> "Figure":
    """The chosen tokens have a line under them; shade is strength, relative to the strongest word of the prompt."""
    new_figure(1, 1)  # says what to install, where matplotlib is missing
    placed: list[Placed] = []
    roles, top = [], BETWEEN
    for role, words in answer_words(answer, chosen):
        roles.append((role, top))
        lines, top = place_words(words, top)
        placed += lines
        top += BETWEEN
    figure = new_figure(WIDTH, top)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(top, 0))
    axes.axis("off")
    for one in placed:
        draw(axes, one)
    for role, height in roles:
        axes.text(MARGIN, height + 0.73 * LINE, role, fontsize=SMALL, color=QUIET)
    return figure


def place_words(words: Sequence[AnswerWord], top: float) -> tuple[list[Placed], float]:
    """Line by line; and where the next message may begin."""
    placed, left = [], INDENT
    for word in words:
        text = BREAK if word.kind == "break" else word.text.strip("\n") if word.kind == "between" else word.text
        width = text_width(text, font_size(word))
        if left + width > WIDTH - MARGIN and left > INDENT:
            left, top = INDENT, top + LINE
            text, width = (text, width) if text.strip() else ("", 0.0)
        if text:
            placed.append(Placed(word, text, left, top, width))
            left += width
        if word.kind in ("break", "between") and "\n" in word.text:
            left, top = INDENT, top + LINE * word.text.count("\n")
    return placed, top + LINE


def font_size(word: AnswerWord) -> float:
    return SIZE if word.kind in ("word", "between") else SMALL


def text_width(text: str, size: float) -> float:
    """In inches, in the figure's font."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)
    return width / 72


def draw(axes: Any, one: Placed) -> None:
    from matplotlib.patches import Rectangle

    background = shade(one.word.strength)
    if one.word.kind == "word":
        place = ((one.left, one.top + 0.02), one.width, LINE - 0.03)
        axes.add_patch(Rectangle(*place, color=css(background), linewidth=0))
    if one.word.chosen:
        under = one.top + LINE - 0.01
        axes.plot([one.left, one.left + one.width], [under, under], color="black", linewidth=1)
    color = css(ink(background)) if font_size(one.word) == SIZE else QUIET
    axes.text(one.left, one.top + 0.73 * LINE, one.text, fontsize=font_size(one.word), color=color)
