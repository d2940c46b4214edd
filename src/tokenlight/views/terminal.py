"""Heatmaps and explained answers in the terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tokenlight.common.console import SafeConsole
from tokenlight.common.errors import RefusedValue
from tokenlight.common.progress import in_notebook, show_html
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation, printable
from tokenlight.results.units import ANSWER, Passage
from tokenlight.views.answer_page import answer_frame
from tokenlight.views.document_table import group_name, one_line, score_text
from tokenlight.views.drawing import css, ink, shade
from tokenlight.views.html import fragment
from tokenlight.views.layout import (
    BREAK,
    Fold,
    Piece,
    Results,
    by_text,
    explained,
    folded,
    group_notes,
    headline,
    pieces,
    shared_notes,
    strongest,
)

VISIBLE = 0.06  # weaker words have no shade
WORTH_A_NUMBER = 0.2  # without color, only stronger words have a number
SENTENCE = 160  # characters of a sentence shown before a long text


def show(results: Results, console: Console | None = None) -> None:
    """Show an explanation, several, or the result of `explain_all`; in a notebook, as HTML."""
    groups = by_text(results)
    if not groups:
        raise RefusedValue("there is nothing to show: expected at least one explanation")
    if console is None and in_notebook():
        show_html("".join(map(fragment, groups)))
        return
    console = console or SafeConsole()
    shared = shared_notes(groups)
    for index, group in enumerate(groups):
        if index:
            console.print()
        print_explanations(group, console, shared)
    print_notes(shared, console)
    if console.is_terminal:
        console.print(legend(console))


def print_explanations(explanations: Sequence[Explanation], console: Console, shown_notes: Sequence[str] = ()) -> None:
    """Explanations of one text; numbers where color would be lost, and one line each where a program may read it.

    Notes that are `said` elsewhere are left out.
    """
    if has_shades(console):
        console.print(render(explanations, heat_line))
    elif console.is_terminal:
        console.print(render(explanations, plain_line))
    else:
        print_plain(explanations, console)
    print_notes([note for note in group_notes(explanations) if note not in shown_notes], console)


def print_notes(notes: Iterable[str], console: Console) -> None:
    for note in notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"), soft_wrap=not console.is_terminal)


def has_shades(console: Console) -> bool:
    """NO_COLOR leaves a terminal its color system, and removes the colors when something is printed."""
    return console.color_system is not None and not console.no_color


def print_plain(explanations: Sequence[Explanation], console: Console) -> None:
    width = max(len(explanation.method) for explanation in explanations)
    console.print(header(explanations[0]), soft_wrap=True)
    for explanation in explanations:
        lines = (*front(explanation), plain_line(explanation))
        for name, line in zip_longest([explanation.method], lines, fillvalue=""):
            console.print(Text(f"{name:{width + 2}}").append(line), soft_wrap=True)


def render(explanations: Sequence[Explanation], line: Callable[[Explanation], Text]) -> RenderableType:
    """A header with the prediction, then a heatmap for each method."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for explanation in explanations:
        table.add_row(explanation.method, Group(*front(explanation), Wrapped(line(explanation), closing(explanation))))
    return Group(header(explanations[0]), table)


def header(explanation: Explanation) -> Text:
    says = ("the model says ", (printable(headline(explanation)), "bold"))
    return Text.assemble(*says, "; explained: ", (printable(explained(explanation)), "bold"), style="dim")


def front(explanation: Explanation) -> list[Text]:
    """The strongest sentences of a long text, one per line."""
    scored_sentences = [
        (sentence.score, printable(" ".join(sentence.text.split()))) for sentence in strongest(explanation)
    ]
    return [Text.assemble((f"{score:+9.3g}  ", "bold"), shorten(text)) for score, text in scored_sentences]


def shorten(text: str) -> str:
    return text if len(text) <= SENTENCE else text[: SENTENCE - 2].rstrip() + " …"


@dataclass(frozen=True)
class Wrapped:
    """Text in the full width, or narrower if special tokens would be alone on the last line."""

    text: Text
    closing: str  # special tokens at the end of the text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text[len(self.text.plain) - len(self.text.plain.lstrip()) :]
        narrowest = Measurement.get(console, options, text).minimum  # so that no word is split
        for width in range(options.max_width, narrowest - 1, -1):
            lines = text.wrap(console, width)
            if not self.closing.endswith(lines[-1].plain.strip()):
                break
        else:
            lines = text.wrap(console, options.max_width)
        yield from lines

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)


def closing(explanation: Explanation) -> str:
    """The special tokens at the end of a text, as they are printed."""
    special = takewhile(lambda word: word.special, reversed(explanation.words()))
    return " ".join(printable(word.text) for word in reversed(list(special)))


def heat_line(explanation: Explanation) -> Text:
    line = Text()
    for piece in folded(explanation):
        if isinstance(piece, Fold):
            line.append(f" {piece.label} ", style="dim italic")
        elif piece.word is not None and piece.word.newline:
            line.append(BREAK, style=heat_style(piece)).append("\n")
        elif piece.word is None or piece.word.special:
            line.append(printable(piece.text), style="dim")
        else:
            line.append(printable(piece.text), style=heat_style(piece))
    return line


def heat_style(piece: Piece) -> str:
    if abs(piece.strength) < VISIBLE:
        return "dim" if piece.word is not None and piece.word.newline else ""
    background = shade(piece.strength)
    return f"{css(ink(background))} on {css(background)}"


def plain_line(explanation: Explanation) -> Text:
    """'a charming[+1.00] journey': scores relative to the strongest word."""
    line = Text()
    for piece in folded(explanation):
        if isinstance(piece, Fold):
            line.append(f" {piece.label} ")
            continue
        line.append(printable(piece.text))
        if piece.word is not None and abs(piece.strength) >= WORTH_A_NUMBER:
            line.append(f"[{piece.strength:+.2f}]")
    return line


def legend(console: Console) -> Text:
    """A legend of the shades, or of the numbers instead of them."""
    if not has_shades(console):
        return Text(
            "[+] supports what is explained, [-] speaks against it; 1 is the strongest word of the line, "
            f"and words below {WORTH_A_NUMBER:g} have no number",
            style="dim",
        )
    blue, orange = shade(1), shade(-1)
    return Text.assemble(
        (" supports ", f"{css(ink(blue))} on {css(blue)}"),
        " what is explained  ",
        (" speaks against it ", f"{css(ink(orange))} on {css(orange)}"),
        "  full shade = strongest word",
    )


SOURCES = 2  # documents under each sentence; those much weaker than the first are left out
WEAK = 0.1  # relative to the first
AROUND = 150  # characters of a document that are printed, around its strongest word
WORDS = 5  # the number of words that are listed


def show_answer(answer: ExplainedAnswer, console: Console | None = None) -> None:
    """Print every sentence with its strongest documents, or sentences of the prompt.

    In a notebook, the interactive page is shown instead.
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
        if not tokens:  # all its characters belong to tokens that begin before it
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
    """The documents, or sentences of the prompt, with the largest absolute scores."""
    passages = [
        passage for passage in explanation.by_document() if passage.segment is not None
    ] or explanation.sentences()
    ordered = sorted(passages, key=lambda passage: -abs(passage.score))[:SOURCES]
    return [passage for passage in ordered if abs(passage.score) >= WEAK * abs(ordered[0].score)]


def document_line(explanation: Explanation, source: Passage) -> Text:
    """The name of a document, and its text around the strongest word."""
    all_pieces = list(pieces(explanation))
    indices = [i for i, piece in enumerate(all_pieces) if piece.word and piece.word.tokens[0] in source.tokens]
    line = Text().append(f"{one_line(source.name)}: " if source.name else "", style="cyan")
    return line.append(excerpt(all_pieces[indices[0] : indices[-1] + 1])) if indices else line


def excerpt(passage_pieces: Sequence[Piece]) -> Text:
    """About AROUND characters around the strongest word."""
    first = max(
        range(len(passage_pieces)), key=lambda i: abs(passage_pieces[i].strength) if passage_pieces[i].word else -1.0
    )
    last = first
    length = len(passage_pieces[first].text)
    while length < AROUND and last - first + 1 < len(passage_pieces):
        before = first > 0 and (last == len(passage_pieces) - 1 or length % 2 == 0)
        first, last = (first - 1, last) if before else (first, last + 1)
        length += len(passage_pieces[first if before else last].text)
    line = Text("… " if first else "")
    for piece in passage_pieces[first : last + 1]:
        newline = piece.word is not None and piece.word.newline
        line.append(" " if newline else printable(piece.text), style=heat_style(piece) if piece.word else "")
    return line.append(" …") if last < len(passage_pieces) - 1 else line


def named_words(explanation: Explanation) -> str:
    """The strongest words of the prompt, with their scores."""
    words = sorted((word for word in explanation.words() if word.counts), key=lambda word: -abs(word.score))[:WORDS]
    return "most on: " + ", ".join(f"{printable(word.text)} {score_text(word.score)}" for word in words)


def shares_line(answer: ExplainedAnswer) -> str:
    """The shares of absolute scores in documents, the rest of the prompt, and the answer."""
    sizes = answer.matrix.sum(0).abs()
    total = float(sizes.sum()) or 1.0
    passages = [passage for passage in answer.total().by_document() if passage.tokens]
    groups = {"documents": [token for passage in passages if passage.segment is not None for token in passage.tokens]}
    groups |= {
        group_name(passage, answer.documents): list(passage.tokens) for passage in passages if passage.segment is None
    }
    groups |= {ANSWER: list(range(answer.prompt_length, len(answer.tokens)))}
    shares = [f"{name} {float(sizes[tokens].sum()) / total:.0%}" for name, tokens in groups.items() if tokens]
    return "Shares of all absolute scores: " + ", ".join(shares)
