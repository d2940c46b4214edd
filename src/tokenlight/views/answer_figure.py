"""An explained answer as a figure, word by word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.views.answer_page import drawable_answer
from tokenlight.views.drawing import css, ink, new_figure, shade
from tokenlight.views.layout import BREAK

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Kind = Literal["word", "between", "added", "break", "fold"]
FEW = 2  # the largest number of added tokens that are shown; more are counted


@dataclass(frozen=True)
class AnswerWord:
    """A word, text between words, tokens that a template added, the token of a line break, or a fold."""

    text: str
    kind: Kind
    tokens: tuple[int, ...] = ()
    strength: float = 0.0  # -1 to 1, relative to the strongest word of the prompt
    chosen: bool = False  # whether it is explained


def answer_words(answer: ExplainedAnswer, chosen: Sequence[int]) -> list[tuple[str, list[AnswerWord]]]:
    """Each message of the prompt, then the answer, with its role; `chosen` are tokens of the answer, from 0."""
    blocks = [(block["role"], list(words_of(block))) for block in drawable_answer(answer)["blocks"]]
    scores = answer.matrix[list(chosen)].sum(0)
    start = answer.prompt_length
    explained_tokens = {start + i for i in chosen} if len(chosen) < len(answer) else set()

    def score(word: AnswerWord) -> float:
        return float(scores[list(word.tokens)].sum())

    words = [word for _, block_words in blocks for word in block_words if word.kind == "word"]
    prompt_sizes = [abs(score(word)) for word in words if word.tokens[0] < start]
    largest = max(prompt_sizes, default=0.0) or max(map(abs, map(score, words)), default=0.0)

    def shaded(word: AnswerWord) -> AnswerWord:
        strength = max(-1.0, min(1.0, score(word) / largest)) if word.kind == "word" and largest else 0.0
        return replace(word, strength=strength, chosen=not explained_tokens.isdisjoint(word.tokens))

    return [(role, [shaded(word) for word in block_words]) for role, block_words in blocks]


def words_of(block: Mapping[str, Any]) -> Iterator[AnswerWord]:
    if block["head"]:
        tokens = tuple(token for piece in block["head"] for token in piece["tokens"])
        written = "".join(piece["text"] for piece in block["head"])
        yield AnswerWord(written if len(tokens) <= FEW else f"[{len(tokens)} template tokens]", "added", tokens)
        yield AnswerWord(" ", "between")
    position = 0
    for first, end, label in block["folds"]:
        yield from joined(block["pieces"][position:first])
        yield AnswerWord(label, "fold")
        yield AnswerWord(" ", "between")
        position = end
    yield from joined(block["pieces"][position:])


def joined(pieces: Sequence[Mapping[str, Any]]) -> Iterator[AnswerWord]:
    """Join the pieces of each word."""
    for _, group in groupby(pieces, key=lambda piece: piece["word"]):
        group_pieces = list(group)
        text, first = "".join(piece["text"] for piece in group_pieces), group_pieces[0]
        kind: Kind = "between" if not first["tokens"] else "added" if first["special"] else "word"
        tokens = tuple(token for piece in group_pieces for token in piece["tokens"])
        yield AnswerWord(text, "break" if first["newline"] else kind, tokens)


WIDTH = 6.5  # width of the text, in inches
LINE, BETWEEN = 0.21, 0.09  # the height of a line, and the space between messages
INDENT, MARGIN = 0.85, 0.05  # left edge of the text, after the names of roles, and margin on the right
SIZE, SMALL = 9.0, 7.0  # font sizes in points
QUIET = "#57606a"


@dataclass(frozen=True)
class Placed:
    """A word and its position, in inches."""

    word: AnswerWord
    text: str
    left: float
    top: float
    width: float


def answer_figure(answer: ExplainedAnswer, chosen: Sequence[int]) -> "Figure":
    """Chosen tokens are underlined; shade is strength, relative to the strongest word of the prompt."""
    new_figure(1, 1)  # raises an error that names the extra if matplotlib is missing
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
    for word in placed:
        draw(axes, word)
    for role, height in roles:
        axes.text(MARGIN, height + 0.73 * LINE, role, fontsize=SMALL, color=QUIET)
    return figure


def place_words(words: Sequence[AnswerWord], top: float) -> tuple[list[Placed], float]:
    """The words of a message in lines, and the top of the next message."""
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
    """The width in inches, in the figure's font."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)
    return width / 72


def draw(axes: Any, placed: Placed) -> None:
    from matplotlib.patches import Rectangle

    background = shade(placed.word.strength)
    if placed.word.kind == "word":
        rectangle = ((placed.left, placed.top + 0.02), placed.width, LINE - 0.03)
        axes.add_patch(Rectangle(*rectangle, color=css(background), linewidth=0))
    if placed.word.chosen:
        under = placed.top + LINE - 0.01
        axes.plot([placed.left, placed.left + placed.width], [under, under], color="black", linewidth=1)
    color = css(ink(background)) if font_size(placed.word) == SIZE else QUIET
    axes.text(placed.left, placed.top + 0.73 * LINE, placed.text, fontsize=font_size(placed.word), color=color)
