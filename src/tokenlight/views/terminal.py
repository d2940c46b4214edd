"""Heatmaps as colored lines; without color, the scores stand behind the words."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tokenlight.foundation.console import SafeConsole
from tokenlight.foundation.notebook import in_notebook, show_html
from tokenlight.results.explanation import Explanation, printable
from tokenlight.views.html import fragment
from tokenlight.views.layout import BREAK, Piece, Results, by_text, explained, group_notes, headline, shared_notes
from tokenlight.views.long_texts import Fold, folded, strongest
from tokenlight.views.palette import css, ink, shade

VISIBLE = 0.06  # weaker words stay plain
WORTH_A_NUMBER = 0.2  # without color, only these words get one
SENTENCE = 160  # characters of a sentence that stands in front of a long text


def show(results: Results, console: Console | None = None) -> None:
    """Show one explanation, several, or what `explain_all` gives, one under another; in a notebook, as HTML."""
    groups = by_text(results)
    if not groups:
        raise ValueError("there is nothing to show: expected at least one explanation")
    if console is None and in_notebook():
        show_html("".join(map(fragment, groups)))
        return
    console = console or SafeConsole()
    shared = shared_notes(groups)
    for place, group in enumerate(groups):
        if place:
            console.print()
        print_explanations(group, console, shared)
    print_notes(shared, console)
    if console.is_terminal:
        console.print(legend(console))


def print_explanations(explanations: Sequence[Explanation], console: Console, said: Sequence[str] = ()) -> None:
    """Explanations of one text; numbers where color would be lost, and one line each where a program may read it.

    Notes that are `said` elsewhere are left out.
    """
    if has_shades(console):
        console.print(render(explanations, heat_line))
    elif console.is_terminal:
        console.print(render(explanations, plain_line))
    else:
        print_plain(explanations, console)
    print_notes([note for note in group_notes(explanations) if note not in said], console)


def print_notes(notes: Iterable[str], console: Console) -> None:
    for note in notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"), soft_wrap=not console.is_terminal)


def has_shades(console: Console) -> bool:
    """NO_COLOR leaves a terminal its color system, and takes the colors away when something is printed."""
    return console.color_system is not None and not console.no_color


def print_plain(explanations: Sequence[Explanation], console: Console) -> None:
    width = max(len(explanation.method) for explanation in explanations)
    console.print(header(explanations[0]), soft_wrap=True)
    for explanation in explanations:
        lines = (*front(explanation), plain_line(explanation))
        for name, line in zip_longest([explanation.method], lines, fillvalue=""):
            console.print(Text(f"{name:{width + 2}}").append(line), soft_wrap=True)


def render(explanations: Sequence[Explanation], line: Callable[[Explanation], Text]) -> RenderableType:
    """A header with what the model says, then a heatmap for each method."""
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
    """The strongest sentences of a long text, a line each."""
    found = [(sentence.score, printable(" ".join(sentence.text.split()))) for sentence in strongest(explanation)]
    return [Text.assemble((f"{score:+9.3g}  ", "bold"), shorten(text)) for score, text in found]


def shorten(text: str) -> str:
    return text if len(text) <= SENTENCE else text[: SENTENCE - 2].rstrip() + " …"


@dataclass(frozen=True)
class Wrapped:
    """As wide as there is room, or a little narrower where special tokens would stand alone on the last line."""

    text: Text
    closing: str  # the special tokens at its end

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text[len(self.text.plain) - len(self.text.plain.lstrip()) :]
        narrowest = Measurement.get(console, options, text).minimum  # no word is cut
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
    """What shades mean, or the numbers in their place."""
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
