"""An answer in the terminal: under each of its sentences, what of the prompt made the model write it."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.console import SafeConsole
from tokenlight.foundation.notebook import in_notebook, show_html
from tokenlight.results.by_source import ANSWER
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation, printable
from tokenlight.results.passage import Passage
from tokenlight.views.answer_page import answer_frame
from tokenlight.views.layout import Piece, pieces
from tokenlight.views.source_table import group_name, one_line, score_text
from tokenlight.views.terminal import heat_style

SOURCES = 2  # under each sentence; one that is far weaker than the first is left out
WEAK = 0.1  # of the first
AROUND = 150  # characters of a source that are printed, around its strongest word
WORDS = 5  # that are named


def show_answer(answer: ExplainedAnswer, console: Console | None = None) -> None:
    """Print every sentence with its strongest sources: those that were named, or sentences of the prompt.

    In a notebook, the page to click on is shown instead.
    """
    if console is None and in_notebook():
        show_html(answer_frame(answer))
        return
    console = console or SafeConsole()
    console.print(heading(answer))
    for line in sentence_blocks(answer):
        console.print(line)
    console.print(Text(shares_line(answer), style="dim"))
    for note in dict.fromkeys(map(printable, answer.notes)):
        console.print(Text(f"note: {note}", style="yellow"))


def heading(answer: ExplainedAnswer) -> Text:
    chance = f"log-probability {answer.log_probability:.1f} for {len(answer)} tokens"
    return Text(f"{answer.method}; {chance}", style="dim")


def sentence_blocks(answer: ExplainedAnswer) -> Iterator[RenderableType]:
    for number, tokens in enumerate(answer.sentences()):
        if not tokens:  # all of its characters are part of tokens that begin before it
            continue
        explanation = answer.of(tokens=tokens)
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(justify="right", no_wrap=True, min_width=7)
        table.add_column()
        table.add_row(f"{number + 1}.", Text(one_line(explanation.target), style="bold"))
        for source in strongest_documents(explanation):
            table.add_row(Text(score_text(source.score), style="cyan"), document_line(explanation, source))
        table.add_row("", Text(named_words(explanation), style="dim"))
        yield table


def strongest_documents(explanation: Explanation) -> list[Passage]:
    """By their absolute scores."""
    named = [one for one in explanation.by_document() if one.segment is not None] or explanation.sentences()
    ordered = sorted(named, key=lambda one: -abs(one.score))[:SOURCES]
    return [one for one in ordered if abs(one.score) >= WEAK * abs(ordered[0].score)]


def document_line(explanation: Explanation, source: Passage) -> Text:
    """Its name, and its text around the strongest word."""
    laid = list(pieces(explanation))
    inside = [i for i, piece in enumerate(laid) if piece.word and piece.word.tokens[0] in source.tokens]
    line = Text().append(f"{one_line(source.name)}: " if source.name else "", style="cyan")
    return line.append(excerpt(laid[inside[0] : inside[-1] + 1])) if inside else line


def excerpt(laid: Sequence[Piece]) -> Text:
    """As many characters as there is room for, the strongest word among them."""
    first = max(range(len(laid)), key=lambda i: abs(laid[i].strength) if laid[i].word else -1.0)
    last = first
    length = len(laid[first].text)
    while length < AROUND and last - first + 1 < len(laid):
        before = first > 0 and (last == len(laid) - 1 or length % 2 == 0)
        first, last = (first - 1, last) if before else (first, last + 1)
        length += len(laid[first if before else last].text)
    line = Text("… " if first else "")
    for piece in laid[first : last + 1]:
        newline = piece.word is not None and piece.word.newline
        line.append(" " if newline else printable(piece.text), style=heat_style(piece) if piece.word else "")
    return line.append(" …") if last < len(laid) - 1 else line


def named_words(explanation: Explanation) -> str:
    """The strongest words of the prompt, for and against."""
    words = sorted((word for word in explanation.words() if word.counts), key=lambda word: -abs(word.score))[:WORDS]
    return "most on: " + ", ".join(f"{printable(word.text)} {score_text(word.score)}" for word in words)


def shares_line(answer: ExplainedAnswer) -> str:
    """Where all absolute scores of the whole answer lie, prompt and answer together."""
    sizes = answer.matrix.sum(0).abs()
    total = float(sizes.sum()) or 1.0
    whole = [one for one in answer.total().by_document() if one.tokens]
    groups = {"documents": [token for one in whole if one.segment is not None for token in one.tokens]}
    groups |= {group_name(one, answer.documents): list(one.tokens) for one in whole if one.segment is None}
    groups |= {ANSWER: list(range(answer.prompt_length, len(answer.tokens)))}
    shares = [f"{name} {float(sizes[tokens].sum()) / total:.0%}" for name, tokens in groups.items() if tokens]
    return "Shares of all absolute scores: " + ", ".join(shares)
