"""LaTeX that says exactly what the text says: every character escaped, words in boxes, boxes that can wrap."""

import re

import pytest
import torch

from tests.tokenizers_ import explainer_for
from tokenlight.views.latex import SPECIAL, escape, heatmaps, preamble, shaded
from tokenlight.views.layout import pieces

LETTERS = re.compile(r"\\tokenlightletters\{[0-9A-F ]+\}\{([^}]*)\}")
BOX = re.compile(r"\\tokenlightword\{tokenlight(support|against)!(\d+)\}\{(black|white)\}\{")


@pytest.fixture(scope="module")
def explainer():
    return explainer_for("bert")


def read_back(latex: str) -> str:
    """What LaTeX would print of an escaped text."""
    written = {command: character for character, command in SPECIAL.items()}
    commands = sorted(written, key=len, reverse=True)
    latex = LETTERS.sub(r"\1", latex)
    pattern = re.compile("|".join(map(re.escape, [*commands, "\\par\\noindent\n"])))
    return pattern.sub(lambda match: written.get(match[0], "\n"), latex)


@pytest.mark.parametrize(
    "text",
    [
        r"50% of $5 & #1_x {y} ^z ~ \textbf{no} \\ \input{/etc/passwd}",
        "-- --- '' `` ?` !` <<a>> |b| \"c\" ,,d",
        "[option] *star*",
        "naïve – “quotes” … 東京 שלום \U0001f600",
        "\\",
        "%",
        "{}",
        "plain words",
    ],
)
def test_every_character_is_escaped(text):
    assert read_back(escape(text)) == text


@pytest.mark.parametrize("text", [r"50% \x {", "a_b^c~d", "$1 & #2", "}} {{ \\end{document}"])
def test_text_contains_no_latex_commands(text):
    """After removing our own markup, no character is left that TeX gives a meaning."""
    left = escape(text)
    for command in sorted(SPECIAL.values(), key=len, reverse=True):
        left = left.replace(command, "")
    assert not set(left) & set("\\{}$&#%_^~")


def test_blanks_and_line_breaks():
    assert escape("a \t b") == "a b"
    assert escape("a\nb\r\n\n c") == "a\\par\\noindent\nb\\par\\noindent\nc"
    assert escape("bell \x07 null \x00 end") == "bell   null   end"


def test_words_are_boxes_with_their_strength(explainer):
    e = explainer.explain("it is unbelievable, not bad", "attn_lrp")
    latex = heatmaps([e])
    strengths = [p.strength for p in pieces(e) if p.word and not p.word.special and abs(p.strength) >= 0.01]
    found = BOX.findall(latex)
    assert [(side == "support", int(percent)) for side, percent, _ in found] == [
        (strength > 0, round(100 * abs(strength))) for strength in strengths
    ]
    assert ("100") in [percent for _, percent, _ in found]
    assert r"{\tokenlightspecial{{[}CLS{]}}" not in latex
    assert r"\tokenlightspecial{{[}CLS{]}}" in latex


def test_strong_boxes_have_letters_that_can_be_read(explainer):
    e = explainer.explain("it is not bad", "attn_lrp")
    inks = {int(percent): letters for _, percent, letters in BOX.findall(heatmaps([e]))}
    assert inks[100] == "white"
    assert inks[min(inks)] == "black"


def test_boxes_wrap_where_the_text_has_blanks_and_only_there(explainer):
    latex = heatmaps([explainer.explain("good , bad,ok", "attn_lrp")])
    (line,) = re.findall(r"\\tokenlightspecial\{\{\[\}CLS.*?SEP", latex, re.DOTALL)
    words = re.sub(r"\\tokenlightword\{[^}]*\}\{[^}]*\}", "", line)
    assert re.search(r"\{good\}\s\{,\{\}\}\s\{bad\}\{,\{\}\}\{ok\}", words), words


def test_braces_are_balanced_and_the_preamble_is_there(explainer):
    texts = ["50% {of} \\it \n\n all", "a } b", "\\"]
    latex = heatmaps([explainer.explain(text, name) for text in texts for name in ("attcat", "rollout")])
    bare = re.sub(r"\\[{}\\]", "", re.sub(r"^%.*$", "", latex, flags=re.MULTILINE))
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert r"%   \usepackage{xcolor}" in latex
    assert r"\providecolor{tokenlightsupport}{RGB}{33,102,172}" in latex
    assert latex.count("the model says") == 3
    assert latex.count(r"\texttt{attcat}") == 3


def test_comments_contain_no_text(explainer):
    latex = heatmaps([explainer.explain("100% secret", "attcat")])
    assert not any("secret" in line for line in latex.splitlines() if re.search(r"(?<!\\)%", line))


def test_notes_are_kept_and_signs_shown(explainer):
    e = explainer.explain("good movie " * 300, "attcat")
    latex = heatmaps([e])
    assert "too long" in latex
    zero = explainer.explain("a good movie", "attcat")
    object.__setattr__(zero, "scores", torch.zeros_like(zero.scores))
    assert not BOX.search(heatmaps([zero]))


@pytest.mark.parametrize("wrong", [[], "one"])
def test_a_list_of_explanations_is_expected(explainer, wrong):
    given = explainer.explain("a movie", "attcat") if wrong == "one" else wrong
    with pytest.raises(ValueError, match="a list of explanations"):
        heatmaps(given)


def test_a_line_break_at_the_start_of_a_word_is_outside_its_box():
    explainer = explainer_for("gpt2", "text-classification")
    written = heatmaps([explainer.explain("The keys\n\nto the\ncabinet", "attn_lrp")])
    boxes = re.findall(r"\\tokenlightword\{[^}]*\}\{[^}]*\}\{([^}]*)\}", written)
    assert boxes
    assert not any("\\par" in box or "\n" in box for box in boxes)
    assert "\\par\\noindent\n" in written


def test_letters_beyond_latin_have_their_numbers_for_programs_without_them():
    assert escape("né 東京!") == r"né \tokenlightletters{6771 4EAC}{東京}!{}"
    assert escape("a → b") == r"a $\rightarrow$ b"
    assert r"\providecommand{\tokenlightletters}[2]" in preamble()


def test_a_long_word_may_break_and_keeps_its_shade():
    boxes = shaded("w" * 30, 0.5)
    assert re.findall(r"\{(w+)\}", boxes) == ["w" * 12, "w" * 12, "w" * 6]
    assert boxes.count(r"\allowbreak{}") == 2
    assert {percent for _, percent, _ in BOX.findall(boxes)} == {"50"}
    assert shaded("short", 0) == "short"


def test_a_special_token_at_the_end_never_begins_a_line(explainer):
    latex = heatmaps([explainer.explain("it is not bad", "attn_lrp")])
    assert r"~\tokenlightspecial{{[}SEP{]}}" in latex
    assert r"~\tokenlightspecial{{[}CLS{]}}" not in latex


def test_a_note_is_printed_once_and_a_sign_is_explained(explainer):
    found = [explainer.explain("it is a good movie", name) for name in ("attcat", "cat", "attcat")]
    latex = heatmaps(found)
    assert latex.count("AttCAT: the sign is that of gradient") == 1
