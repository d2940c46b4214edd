"""An answer in the terminal, as a figure and as LaTeX: under each sentence what the matrix says, nothing left out."""

import io
import re
from dataclasses import replace

import pytest
from IPython.display import HTML
from rich.console import Console

from tests.tokenizers_ import explainer_for
from tokenlight.common.console import SafeConsole
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.views import terminal as views_answer
from tokenlight.views.answer_figure import answer_figure, answer_words
from tokenlight.views.answer_page import TALLEST
from tokenlight.views.terminal import shares_line, show_answer

PASSAGES = {"keys": "The keys are on the table.", "film": "It is a good movie."}
PROMPT = f"{PASSAGES['keys']}\n\n{PASSAGES['film']} Who wrote the book?"
ANSWER = " The author is here. It is not bad at all."


@pytest.fixture(scope="module")
def answer() -> ExplainedAnswer:
    explainer = explainer_for("gpt2", "text-generation")
    return explainer.explain_answer(PROMPT, ANSWER, "attn_lrp", documents=PASSAGES, progress=False)


def printed(answer: ExplainedAnswer, color: bool = False, width: int = 80) -> str:
    system = "truecolor" if color else None
    console = Console(file=io.StringIO(), force_terminal=color, color_system=system, width=width)
    show_answer(answer, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_sentence_is_followed_by_its_strongest_document(answer):
    lines = printed(answer).splitlines()
    assert all(len(line) <= 80 for line in lines)
    for number, sentence in enumerate(("The author is here.", "It is not bad at all.")):
        place = next(i for i, line in enumerate(lines) if line.strip() == f"{number + 1}. {sentence}")
        best = max(answer.of(sentence=number).by_document()[:2], key=lambda source: abs(source.score))
        assert lines[place + 1].strip().startswith(f"{best.score:+.3g} {best.name}: ".replace("-", "−"))


def test_a_notebook_gets_a_page_to_click_on(answer, monkeypatch, capsys):
    shown: list[str] = []
    monkeypatch.setattr(views_answer, "in_notebook", lambda: True)
    monkeypatch.setattr(views_answer, "show_html", shown.append)
    answer.show()
    assert shown == [answer._repr_html_()]
    HTML(shown[0])  # which warns of a frame on its own
    assert capsys.readouterr().out == ""
    heights = [int(re.findall(r"height:(\d+)px", one._repr_html_())[0]) for one in (answer, long_answer(answer))]
    assert heights[0] < heights[1] == TALLEST


def long_answer(answer: ExplainedAnswer) -> ExplainedAnswer:
    return replace(answer, answer=answer.answer + " and so on" * 500)


def test_shares_add_up_and_are_those_of_the_matrix(answer):
    line = shares_line(answer)
    shares = [int(part.split("%")[0].split()[-1]) for part in line.split(",")]
    assert sum(shares) == pytest.approx(100, abs=len(shares))
    sizes = answer.matrix.sum(0).abs()
    own = float(sizes[answer.prompt_length :].sum() / sizes.sum())
    assert f"the answer itself {own:.0%}" in line


def test_words_have_the_strengths_of_the_explanation_of_the_chosen_tokens(answer):
    rows = answer.sentences()[1]
    blocks = answer_words(answer, rows)
    assert [role for role, _ in blocks] == ["prompt", "answer"]
    alone = answer.of(sentence=1)
    largest = max(abs(word.score) for word in alone.words() if word.counts)
    expected = [word.score / largest for word in alone.words() if word.counts]
    assert [word.strength for word in blocks[0][1] if word.kind == "word"] == pytest.approx(expected, abs=1e-6)
    assert "".join(word.text for word in blocks[1][1] if word.chosen).replace(" ", "") == "Itisnotbadatall."
    breaks = [word for word in blocks[0][1] if word.kind == "break"]
    assert "".join(word.text for word in breaks) == "\n\n"


def test_the_figure_shades_every_word_and_underlines_the_chosen_tokens(answer, tmp_path):
    rows = answer.sentences()[0]
    (axes,) = answer_figure(answer, rows).axes
    words = [word for _, some in answer_words(answer, rows) for word in some]
    assert len(axes.patches) == sum(word.kind == "word" for word in words)
    assert len(axes.lines) == sum(word.chosen for word in words)
    for name in ("answer.svg", "answer.png"):
        answer.save_figure(tmp_path / name, sentence=0)
        assert (tmp_path / name).stat().st_size > 1000


def test_answers_without_characters_and_sentences_without_tokens_are_drawn(answer):
    explainer = explainer_for("gpt2", "text-generation")
    ended = explainer.explain_answer("it is", (explainer.tokenizer.eos_token_id,), "attn_lrp", progress=False)
    assert ended.answer == ""
    spans = list(answer.spans)
    first = answer.prompt_length
    spans[first] = (1, len(ANSWER))  # one token has all characters
    spans[first + 1 :] = [(len(ANSWER), len(ANSWER))] * (len(answer) - 1)
    whole = replace(answer, spans=spans)
    for one, count in ((ended, 1), (whole, len([some for some in whole.sentences() if some]))):
        assert one.by_document().scores.shape[0] == count
        assert one.by_document().scores.sum() == pytest.approx(float(one.matrix.sum()), rel=1e-4)
        assert "Shares" in printed(one)
        assert "</html>" in one.to_html()


def test_latex_has_prompt_and_answer(answer):
    written = answer.to_latex("author")
    assert written.count(r"\underline{") == 1
    assert written.count("{") == written.count("}")
    assert r"\textit{prompt}\quad" in written
    assert "hookleftarrow" in written


@pytest.mark.parametrize("columns", ["0", "1"])
def test_results_are_printed_even_if_the_terminal_has_no_columns(columns, monkeypatch):
    """Some containers and editors set COLUMNS=0, for which rich prints nothing."""
    monkeypatch.setenv("COLUMNS", columns)
    file = io.StringIO()
    SafeConsole(file=file).print("film")
    assert "".join(file.getvalue().split()) == "film"
