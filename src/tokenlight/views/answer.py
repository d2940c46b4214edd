"""An answer in the terminal: under each of its sentences, what of the prompt made the model write it."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.explanation import Explanation, printable
from tokenlight.text import passages
from tokenlight.views.terminal import front, heat_line, plain_line

INDENT = "  "


def show_answer(answer: ExplainedAnswer, console: Console | None = None) -> None:
    """Print every sentence with the prompt's heatmap for it; scores as numbers where colour would be lost."""
    console = console or Console()
    coloured = console.color_system is not None
    for line in lines(answer, coloured):
        console.print(line, soft_wrap=not coloured)
    for note in dict.fromkeys(map(printable, answer.notes)):
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=not coloured)


def lines(answer: ExplainedAnswer, coloured: bool) -> Iterator[Text]:
    chance = f"log-probability {answer.log_probability:.1f} for {len(answer)} tokens"
    yield Text(f"{answer.method}; {chance}", style="dim")
    for number in range(len(passages.sentences(answer.answer))):
        explanation = answer.of(sentence=number)
        yield Text.assemble((printable(explanation.target.strip()), "bold"), (f"  {own_share(explanation)}", "dim"))
        for line in (*front(explanation), heat_line(explanation) if coloured else plain_line(explanation)):
            yield Text(INDENT).append(line)


def own_share(explanation: Explanation) -> str:
    """How much of the scores lies on what the model wrote before, of all that it is made of."""
    own = abs(explanation.extras["answer_share"])
    prompt = float(explanation.scores.abs().sum())
    return f"{own / (own + prompt):.0%} from the answer itself" if own else ""
