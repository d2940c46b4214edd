"""The standalone report: one file, nothing of a text in it as code, everything the page's drawing needs."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from tests.tokenizers_ import explainer_for
from tokenlight.views import interactive
from tokenlight.views.interactive import drawable, report

HOSTILE = "</script><script>alert(1)</script> <!-- <img src=x onerror=alert(1)> &amp; ' \" \u2028 ok"


@pytest.fixture(scope="module")
def explainer():
    return explainer_for("bert")


class Elements(HTMLParser):
    """Elements with their attributes and what stands in them."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.opened = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside.append("")
        self.opened = True

    def handle_endtag(self, tag):
        self.opened = False

    def handle_data(self, data):
        if self.opened:
            self.inside[-1] += data

    def all(self, tag: str, **attributes: str) -> list[str]:
        """The texts right behind the opening tags of these elements."""
        return [
            inside
            for (name, has), inside in zip(self.found, self.inside, strict=True)
            if name == tag and all(has.get(key) == value for key, value in attributes.items())
        ]


def test_the_data_equals_that_of_the_page(explainer):
    found = [explainer.explain("it is not bad", name) for name in ("attcat", "rollout")]
    (data,) = Elements(report(found)).all("script", type="application/json")
    plain = json.loads(data)
    assert plain["explanations"] == json.loads(json.dumps([drawable(e) for e in found]))
    assert plain["titles"] == {"attcat": "AttCAT", "rollout": "Rollout"}


def test_hostile_text_is_only_data(explainer):
    page = report([explainer.explain(HOSTILE, "attcat")])
    elements = Elements(page)
    (data,) = elements.all("script", type="application/json")
    assert json.loads(data)["explanations"][0]["text"] == HOSTILE
    assert len(elements.all("script")) == 2
    assert not elements.all("img")
    assert "<" not in data
    assert page.count("alert(1)") == page.count("alert(1)\\u003c/script>") + page.count("alert(1)>")


def test_hostile_names_are_escaped(explainer):
    e = explainer.explain("a movie", "attcat")
    object.__setattr__(e, "prediction", "<b>x</b>")
    object.__setattr__(e, "target", "<i>y</i>")
    object.__setattr__(e, "method", "<u>z</u>")
    elements = Elements(report([e], title="<s>t</s>"))
    assert not any(elements.all(tag) for tag in ("i", "u", "s"))
    assert elements.all("title") == ["<s>t</s>"]


def test_the_policy_allows_only_these_elements(explainer):
    page = report([explainer.explain("a movie", "attcat")])
    elements = Elements(page)
    policy = next(has["content"] for tag, has in elements.found if has.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = elements.all("style") if tag == "style" else elements.all("script", type="module")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") or name == "style" for _, has in elements.found for name in has)
    assert not any(name in ("src", "href") for _, has in elements.found for name in has)


def test_the_script_is_that_of_the_page_and_needs_no_other_file(explainer):
    (script,) = Elements(report([explainer.explain("a movie", "attcat")])).all("script", type="module")
    drawing = interactive.static("heatmap.js")
    assert script.startswith(drawing)  # as it is: nothing is rewritten
    assert not re.search(r"^\s*import\b|\bimport\(|\bfrom\s*[\"']", drawing, re.MULTILINE)
    assert "function drawHeatmaps(" in drawing
    assert "function paint(" in drawing


def test_texts_and_targets_have_separate_boxes(explainer):
    found = [explainer.explain(text, name) for name in ("attcat", "rollout") for text in ("a movie", "a book")]
    found.append(explainer.explain("a movie", "attcat", target=0, foil=1))
    elements = Elements(report(found))
    groups = [json.loads(data)["explanations"] for data in elements.all("script", type="application/json")]
    assert [[e["method"] for e in group] for group in groups] == [["attcat", "rollout"]] * 2 + [["attcat"]]
    assert len(elements.all("section")) == 3


def test_files_that_would_end_their_element_are_refused(monkeypatch, tmp_path):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "style.css").write_text("a { content: '</STYLE>' }")
    monkeypatch.setattr(interactive, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"style\.css has a string that would end"):
        interactive.static("style.css")


@pytest.mark.parametrize("wrong", [[], "one"])
def test_a_list_of_explanations_is_expected(explainer, wrong):
    given = explainer.explain("a movie", "attcat") if wrong == "one" else wrong
    with pytest.raises(ValueError, match="a list of explanations"):
        report(given)


def test_pieces_of_sub_words_and_of_shared_characters():
    """Several tokens may share one character (bytes of an emoji): the text is drawn once, every token has a piece."""
    explainer = explainer_for("gpt2", "text-generation")
    e = explainer.explain("The keys \U0001f600 are here", "attcat")
    plain = drawable(e)
    assert "".join(piece["text"] for piece in plain["token_pieces"]) == "The keys \U0001f600 are here"
    assert [piece["tokens"] for piece in plain["token_pieces"] if piece["tokens"]] == [
        [i] for i in range(len(e.tokens))
    ]
