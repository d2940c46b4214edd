"""Terminal and HTML: nothing of a text can break out, and the strongest word is the strongest in color."""

import dataclasses
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from IPython.core.formatters import HTMLFormatter
from rich.console import Console

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.results.explanation import ExplanationDict, ExplanationList
from tokenlight.views import html, terminal
from tokenlight.views.drawing import AGAINST, DARK, PAPER, SUPPORT, css, ink, shade
from tokenlight.views.interactive import report
from tokenlight.views.layout import explained, group_notes, headline, notes_of, pieces

TEXT = "it is a good movie"
SCORES = [0.0, 0.5, -1.0, 0.02, 2.0, -0.6, 0.3]  # [CLS] it is a good movie [SEP]
NASTY = "a \x1b[31mred\x1b[0m\x07 line\nand\ttab \x9b \u202e back"


def explanation(text: Any = TEXT, scores: list[float] | None = None, **changes: Any) -> tl.Explanation:
    e = explainer_for("bert").explain(text, "attcat", target="positive")
    scores = SCORES if scores is None and text == TEXT else scores
    if scores is not None:
        e = dataclasses.replace(e, scores=torch.tensor(scores))
    return dataclasses.replace(e, **changes)


def printed(explanations: list[tl.Explanation], color: bool, width: int = 200) -> str:
    system = "truecolor" if color else None
    console = Console(file=io.StringIO(), force_terminal=color, color_system=system, width=width, record=True)
    terminal.show(explanations, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def without_color_codes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# --- Layout ---------------------------------------------------------------------------------------------------------


def test_pieces_are_the_text_with_special_tokens_around_it():
    assert "".join(piece.text for piece in pieces(explanation())) == f" [CLS] {TEXT} [SEP] "


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta", "gpt2", "llama"])
@pytest.mark.parametrize("text", ["It isn't naïve – 東京 😀 ok", "  two  blanks  ", "a\nb", "x" * 30, "हिन्दी 👍🏽"])
def test_every_visible_character_is_shown_once_in_order(family, text):
    e = explainer_for(family).explain(text, "attcat")
    shown = "".join(piece.text for piece in pieces(e) if piece.word is None or not piece.word.special)
    assert "".join(shown.replace("↵", "").split()) == "".join(text.split())


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_line_break_is_a_word_that_does_not_scale_the_others(family):
    e = explainer_for(family).explain("the key\nis here\n", "attcat")
    breaks = [i for i, word in enumerate(e.words()) if word.newline]
    assert [e.words()[i].text for i in breaks] == ["\n", "\n"]
    strong = [e.words()[i].tokens[0] for i in breaks]
    e = replace(e, scores=torch.tensor([9.0 if i in strong else 1.0 for i in range(len(e.tokens))]))
    assert all(word.text.strip() for word in e.top(9))
    assert max(piece.strength for piece in pieces(e) if piece.word and piece.word.counts) == 1
    assert "".join(piece.text for piece in pieces(e) if not piece.word or not piece.word.special).endswith("↵\n")


def test_both_texts_of_a_pair_are_shown():
    e = explainer_for("bert").explain(("who ?", "the author"), "attcat")
    assert "".join(piece.text for piece in pieces(e)) == " [CLS] who ? [SEP] the author [SEP] "


def test_truncated_text_is_shown_without_a_score():
    e = explainer_for("bert").explain("key " * 400 + "tail", "attcat")
    *_, rest, _ = pieces(e)
    assert rest.word is None
    assert rest.text.rstrip().endswith("tail")


def test_strength_is_relative_to_the_strongest_ordinary_word():
    e = explanation(scores=[50.0, 0.5, -1.0, 0.02, 2.0, -0.6, 70.0])
    strengths = {piece.text: piece.strength for piece in pieces(e) if piece.word and not piece.word.special}
    assert strengths == pytest.approx({"it": 0.25, "is": -0.5, "a": 0.01, "good": 1.0, "movie": -0.3})


def test_all_zero_scores_have_no_strength():
    assert {piece.strength for piece in pieces(explanation(scores=[0.0] * 7))} == {0.0}


def test_headline_and_what_was_explained():
    e = explanation(prediction="positive", probability=0.99812, score=3.214)
    assert headline(e) == "positive (p = 0.998)"
    assert headline(dataclasses.replace(e, probability=None)) == "positive"
    assert explained(e) == "positive, logit 3.21"
    assert explained(dataclasses.replace(e, foil="negative")) == "positive minus negative, difference 3.21"
    assert explained(dataclasses.replace(e, score_word="logits")) == "positive, logits 3.21"


# --- Colors --------------------------------------------------------------------------------------------------------


def test_shade_goes_from_paper_to_the_full_colors():
    assert shade(0) == PAPER
    assert (shade(1), shade(-1)) == (SUPPORT, AGAINST)
    assert (shade(7), shade(-7)) == (SUPPORT, AGAINST)
    blues = [sum(shade(k / 10)) for k in range(11)]
    assert blues == sorted(blues, reverse=True)


@pytest.mark.parametrize("strength", [k / 10 for k in range(-10, 11)])
def test_ink_can_be_read_on_its_background(strength):
    def luminance(color: tuple[int, int, int]) -> float:
        parts = [c / 255 for c in color]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    background = shade(strength)
    light, dark = sorted((luminance(background), luminance(ink(background))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG AA


# --- Terminal -------------------------------------------------------------------------------------------------------


def test_without_color_the_strong_words_carry_numbers():
    out = printed([explanation()], color=False)
    assert "it[+0.25] is[-0.50] a good[+1.00] movie[-0.30]" in out
    assert "\x1b" not in out
    assert "attcat" in out
    assert "positive, logit" in out


def test_with_color_the_strongest_word_has_the_strongest_shade():
    out = printed([explanation()], color=True)
    red, green, blue = SUPPORT
    assert f"48;2;{red};{green};{blue}mgood" in out
    backgrounds = {word: color for color, word in re.findall(r"48;2;(\d+;\d+;\d+)m(\w+)", out)}
    darkness = {word: 765 - sum(map(int, color.split(";"))) for word, color in backgrounds.items()}
    assert max(darkness, key=lambda word: darkness[word]) == "good"
    assert set(darkness) == {"it", "is", "good", "movie"}  # 'a' is too weak for a color
    assert TEXT in without_color_codes(out)


@pytest.mark.parametrize("color", [False, True])
def test_control_characters_do_not_reach_the_terminal(color):
    e = explanation(NASTY, prediction=NASTY, target=NASTY, foil=NASTY, notes=(f"note {NASTY}",))
    e = dataclasses.replace(e, method_caution="")
    out = without_color_codes(printed([e], color))
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "red" in out
    assert len(out.splitlines()) == (4 if color else 3)  # header, one method, one note; a terminal's legend


def test_markup_of_rich_in_a_text_is_not_interpreted():
    for color in (False, True):
        e = explanation("[red]not[/red] [bold", prediction="[blink]x", notes=("see [link=x]here[/link]",))
        e = dataclasses.replace(e, scores=torch.zeros_like(e.scores))  # no numbers between the brackets
        out = without_color_codes(printed([e], color))
        for raw in ("[red]not[/red] [bold", "[blink]x", "[link=x]here[/link]"):
            assert raw in out


def test_several_methods_share_a_header():
    e = explanation()
    out = printed([e, dataclasses.replace(e, method="a_longer_name")], color=False)
    assert out.count("the model says") == 1
    lines = [line for line in out.splitlines() if TEXT.split()[0] in line and "[CLS]" in line]
    assert len(lines) == 2
    assert lines[0].index("[CLS]") == lines[1].index("[CLS]")


@pytest.mark.parametrize("color", [False, True])
def test_a_note_is_printed_once(color):
    e = explanation(notes=("the text was too long",))
    assert without_color_codes(printed([e, e], color)).count("note: the text was too long") == 1


@pytest.mark.parametrize("color", [False, True])
def test_a_note_of_several_texts_is_printed_once_below_them(color):
    one, two = explanation(notes=("long",)), explanation("the key", notes=("long", "rare"))
    lines = without_color_codes(printed([one, two], color)).splitlines()
    places = {line: place for place, line in enumerate(lines) if line.startswith("note: ")}
    assert sum(line == "note: long" for line in lines) == 1
    assert places["note: rare"] < places["note: long"]
    last = max(place for place, line in enumerate(lines) if "[CLS]" in line)
    assert last < places["note: rare"]
    assert "" in lines[:last]  # between the texts


def test_a_terminal_without_color_by_choice_has_numbers():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=True, width=200)
    terminal.show([explanation()], console)
    assert isinstance(console.file, io.StringIO)
    assert "good[+1.00]" in without_color_codes(console.file.getvalue())


@pytest.mark.parametrize("no_color", [False, True])
@pytest.mark.parametrize("width", range(26, 50))
def test_lines_are_wrapped_between_words_and_no_special_token_stands_alone(width, no_color):
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=no_color, width=width)
    terminal.print_explanations([explanation()], console)
    assert isinstance(console.file, io.StringIO)
    lines = without_color_codes(console.file.getvalue()).splitlines()
    first = next(i for i, line in enumerate(lines) if "[CLS]" in line)
    last = next(i for i, line in enumerate(lines) if "[SEP]" in line)
    assert lines[last].strip() != "[SEP]"
    assert lines[first].index("[CLS]") == len("attcat  ")
    assert all(line.startswith(" " * len("attcat  ") + line.strip()[0]) for line in lines[first + 1 : last + 1])
    words = " ".join(line.removeprefix("attcat").strip() for line in lines[first : last + 1])
    shown = "it[+0.25] is[-0.50] a good[+1.00] movie[-0.30]" if no_color else TEXT
    assert words == f"[CLS] {shown} [SEP]"


def test_a_caution_names_its_methods_once():
    e = explanation()
    cat = dataclasses.replace(e, method="cat", method_title="CAT")
    other = dataclasses.replace(e, method="attn_lrp", method_caution="")
    assert notes_of(other) == ()
    (note,) = group_notes([e, cat, other, cat])
    assert note.startswith("AttCAT, CAT: the sign is that of gradient")
    assert notes_of(cat) == (note.removeprefix("AttCAT, "),)


def test_the_legend_describes_the_output():
    plain = Console(file=io.StringIO(), color_system=None)
    shaded = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    assert "[-] speaks against it" in terminal.legend(plain).plain
    assert "full shade = strongest word" in terminal.legend(shaded).plain


def test_results_of_explain_all_are_grouped_by_text():
    one, two = explanation(), explanation("the key")
    assert terminal.by_text({"attcat": [one, two], "cat": [one, two]}) == [[one, one], [two, two]]
    assert terminal.by_text({"attcat": one}) == [[one]]
    with pytest.raises(TypeError, match="expected explanations, found int"):
        terminal.show([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="nothing to show"):
        terminal.show([])


def test_a_notebook_gets_html(monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(terminal, "in_notebook", lambda: True)
    monkeypatch.setattr(terminal, "show_html", shown.append)
    tl.show({"attcat": explanation()})
    assert len(shown) == 1
    assert ">good</span>" in shown[0]


def test_lists_and_dicts_of_results_are_heatmaps_in_a_notebook():
    formatter = HTMLFormatter()
    one, texts = explanation(), [explanation(f"{word} movie") for word in ("good", "bad")]
    by_method = ExplanationDict(attcat=one, cat=dataclasses.replace(one, method="cat"))
    shown = formatter(by_method)
    assert shown is not None
    assert shown.count("the model says") == 1
    assert shown.count('class="method"') == 2
    assert formatter(ExplanationDict(attcat=texts)) == formatter(ExplanationList(texts))
    assert str(formatter(ExplanationList(texts))).count("the model says") == 2
    many = ExplanationList(explanation(f"movie {number}") for number in range(html.SHOWN + 2))
    assert str(formatter(many)).count("the model says") == html.SHOWN
    assert str(formatter(many)).endswith("<p>… and 2 texts more</p>")


def test_explainers_return_lists_and_dicts_with_html():
    explainer = tl.load()
    texts = ["a fine film", "dull"]
    assert isinstance(explainer.explain(texts), ExplanationList)
    assert isinstance(explainer.explain_all(texts[0], ["rollout"]), ExplanationDict)
    both = explainer.explain_all(texts, ["rollout"])
    assert isinstance(both, ExplanationDict)
    assert isinstance(both["rollout"], ExplanationList)
    assert isinstance(tl.from_scores(explainer, ["dull"], [[0.0] * 3]), ExplanationList)


def test_a_page_names_model_and_versions():
    e = explanation()
    assert f"Model: {e.model}. Made with tokenlight {tl.__version__}, torch {torch.__version__}, " in html.page(
        [[e, e], [e]]
    )
    assert f"Model: {e.model}. Made with tokenlight {tl.__version__}, torch {torch.__version__}, " in report([e, e])


def test_show_prints_to_standard_output(capsys):
    explanation().show()
    assert "good" in capsys.readouterr().out


# --- HTML -----------------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Tags in order with their attributes, and the text inside <body>."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


EVIL = "<script>alert(1)</script> \" onmouseover='x' & </td></table><img src=x>"


def test_markup_in_a_text_is_escaped_everywhere():
    e = explanation(EVIL, prediction=EVIL, target=EVIL, foil=EVIL, method=EVIL, notes=(EVIL,))
    for page in (e.to_html(), e._repr_html_(), html.page([[e]], title=EVIL)):
        reader = Reader(page)
        assert not {"script", "img"} & {tag for tag, _ in reader.tags}
        assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
        assert not reader.open
        assert reader.text.count("<script>alert(1)</script>") >= 5


def test_a_word_that_is_a_tag_is_escaped():
    text = "<script>alert(1)</script>"
    e = dataclasses.replace(explanation("ok"), text=text, spans=[(0, 0), (0, len(text)), (0, 0)])
    reader = Reader(e.to_html())
    assert "script" not in {tag for tag, _ in reader.tags}
    assert text in reader.text


@pytest.mark.parametrize("text", [TEXT, EVIL, "שלום", "a\nb", "<", "&amp;"])
def test_html_shows_the_original_text(text):
    assert text in Reader(explanation(text).to_html()).text


def test_the_strongest_word_has_the_strongest_shade_in_html():
    reader = Reader(explanation().to_html())
    words = [attributes for tag, attributes in reader.tags if attributes.get("class") == "word shaded"]
    assert len(words) == 5
    assert [word["title"] for word in words] == ["+0.5", "-1", "+0.02", "+2", "-0.6"]
    assert f"background:{css(SUPPORT)}" in str(words[3]["style"])
    assert sum(f"background:{css(SUPPORT)}" in str(word["style"]) for word in words) == 1
    assert f"background:{css(shade(-0.5))}" in str(words[1]["style"])


def test_special_tokens_are_gray_in_html():
    reader = Reader(explanation().to_html())
    assert [attributes.get("class") for _, attributes in reader.tags].count("special added") == 2


def test_a_page_needs_no_other_file():
    page = explanation().to_html()
    assert page.startswith("<!doctype html>")
    assert not re.search(r"(src|href)\s*=", page)
    assert "http" not in page
    assert '<meta charset="utf-8">' in page


def test_a_page_holds_groups_of_methods():
    e = explanation()
    page = html.page([[e, dataclasses.replace(e, method="cat")], [explanation("the key")]])
    assert page.count("<section>") == 2
    assert page.count('class="method"') == 3


def test_notes_are_shown_in_html():
    assert "note: cut &lt;here&gt;" in explanation(notes=("cut <here>",)).to_html()


def test_a_note_of_several_texts_is_shown_once_in_html():
    groups = [[explanation(notes=("the same", "one"))], [explanation("the key", notes=("the same", "other"))]]
    page = html.page(groups)
    assert [page.count(f"note: {note}") for note in ("the same", "one", "other")] == [1, 1, 1]
    assert page.index("the same") < page.index("<section>") < page.index("note: one")


def test_scores_can_be_read_as_numbers():
    e = explanation()
    page = html.page([[e, dataclasses.replace(e, method="other", scores=1 - e.scores)]])
    for word in e.words():
        here, there = (
            f"<td>{score:+.3g}</td>".replace("-", "−") for score in (word.score, len(word.tokens) - word.score)
        )
        assert f'<th scope="row" dir="auto">{word.text}</th>{here}{there}' in page


def test_a_page_has_dark_colors_and_prints_light_ones():
    e = explanation()
    page = html.page([[e]])
    dark = next(piece for piece in pieces(e) if piece.strength == 1)
    assert f"--dark:{css(shade(dark.strength, DARK))}" in page
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page


def test_a_sign_that_is_easily_misread_is_explained():
    e = explanation(method="attcat")
    assert "AttCAT: the sign is that of gradient × state" in html.page([[e]])
    for pale in (e.scores.abs(), e.scores.clamp(min=-0.4)):  # the strongest word has 2
        assert "the sign is" not in html.page([[dataclasses.replace(e, scores=pale)]])
    assert "the sign is" not in html.page([[dataclasses.replace(e, method_caution="")]])
