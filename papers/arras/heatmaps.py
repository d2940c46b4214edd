"""Tokens with their relevance as color: red for positive, blue for negative; the subject underlined, the verb green."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers.figures import reduce_colors
from tokenlight.bench.cases import Case
from tokenlight.results.explanation import Explanation
from tokenlight.views.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = 24  # characters of a line before the tokens, for the method's name
LONGEST = 100  # characters of tokens in a line
CHARACTER, LINE = 0.075, 0.24  # inches
VERB = "#1a8a3c"
TOKEN: dict[str, Any] = {"fontsize": 7, "family": "monospace", "ha": "center", "va": "center"}


@dataclass(frozen=True)
class Heatmap:
    """One sentence under one method."""

    method: str
    note: str  # behind the tokens
    explanation: Explanation
    subject: Sequence[bool]  # for each token
    verb: str


def heatmaps_of(case: Case, explanations: Mapping[str, Explanation], notes: Mapping[str, str]) -> list[Heatmap]:
    """A heatmap for each method of a case; `notes` stand behind the tokens."""
    assert case.draft.marks is not None, "cases of the protocol have a subject"
    subject, verb = case.draft.marks.tolist(), str(case.draft.example.target).strip()
    return [
        Heatmap(name, notes.get(name, ""), explanation, subject, verb) for name, explanation in explanations.items()
    ]


def draw_heatmaps(groups: Sequence[tuple[str, Sequence[Heatmap]]]) -> "Figure":
    """Groups of heatmaps, each group under its heading."""
    placed = [(heading, [(heatmap, place_tokens(heatmap)) for heatmap in heatmaps]) for heading, heatmaps in groups]
    lines = sum(1.6 + sum(1.1 + places[-1][1] for _, places in heatmaps) for _, heatmaps in placed)
    width = max(column_behind(heatmap, places) for _, heatmaps in placed for heatmap, places in heatmaps)
    figure = new_figure(CHARACTER * width, LINE * lines)
    axes = figure.subplots()
    axes.set(xlim=(0, width), ylim=(lines, 0))
    axes.axis("off")
    top = 0.6
    for heading, heatmaps in placed:
        axes.text(0, top, heading, fontsize=8, fontweight="bold", va="center")
        top += 1.1
        for heatmap, places in heatmaps:
            axes.text(0, top, heatmap.method, fontsize=7, va="center")
            draw_tokens(axes, heatmap, places, top)
            top += 1.1 + places[-1][1]
        top += 0.5
    return figure


def column_behind(heatmap: Heatmap, places: Sequence[tuple[int, int, str]]) -> int:
    """The first free column behind the tokens and the note."""
    return max(column + len(word) for column, _, word in places) + 1 + len(heatmap.note)


def place_tokens(heatmap: Heatmap) -> list[tuple[int, int, str]]:
    """Column, line and word of each token, and of the verb behind them."""
    words = [word_of(heatmap.explanation, i) for i in range(len(heatmap.explanation.tokens))]
    words.append(heatmap.verb)
    places, column, line = [], NAMES, 0
    for word in words:
        if column > NAMES and column + len(word) > NAMES + LONGEST:
            column, line = NAMES, line + 1
        places.append((column, line, word))
        column += len(word) + 1
    return places


def word_of(explanation: Explanation, token: int) -> str:
    start, end = explanation.spans[token]
    return str(explanation.text)[start:end].strip() or explanation.tokens[token]


def draw_tokens(axes: Any, heatmap: Heatmap, places: Sequence[tuple[int, int, str]], top: float) -> None:
    from matplotlib import colormaps

    scores = heatmap.explanation.scores.double()
    largest = max(float(scores.abs().max()), 1e-300)
    last_column, last_line, last_word = places[-1]
    axes.text(last_column + len(last_word) + 2, top + last_line, heatmap.note, fontsize=7, va="center", color="#555555")
    for i, (column, line, word) in enumerate(places):
        share = float(scores[i]) / largest if i < len(scores) else 0.0  # behind the tokens, the verb
        color = "white" if i == len(scores) else colormaps["bwr"](0.5 + share / 2)
        ink = VERB if i == len(scores) else "white" if abs(share) > 0.7 else "black"
        middle, edge = top + line, column + len(word)
        axes.fill_between([column - 0.3, edge + 0.3], middle - 0.45, middle + 0.45, color=color, linewidth=0)
        axes.text((column + edge) / 2, middle, word, color=ink, **TOKEN)
        if i < len(heatmap.subject) and heatmap.subject[i]:
            axes.plot([column, edge], [middle + 0.4] * 2, color="black", linewidth=1.2)


def save_for_docs(figure: "Figure", path: Path) -> None:
    """With few pixels and colors, so that the file is small."""
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100)
    reduce_colors(path)
