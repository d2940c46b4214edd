"""The documentation site: it is built as `make docs` builds it, once, and then looked at."""

import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import tokenlight as tl
from tokenlight.methods import METHODS
from website import gallery
from website.comments import comments_of
from website.gallery import program, sections
from website.heatmaps import explainer

ROOT = Path(__file__).parent.parent
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
OUTSIDE = re.compile(r"^(https?:)?//")
FETCHED_BY_CSS = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)'\"]+")

# In place of the gallery's longer sentences: half of the build would go into explaining those by the costly methods.
SHORT = [
    "A charming and often affecting little journey.",
    "The film is neither funny nor moving.",
    "Not a single scene of it works.",
]

pytestmark = pytest.mark.xdist_group("site")  # built once


class Loaded(HTMLParser):
    """What a browser fetches for a page, without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address:
            self.addresses.append(address)


def loaded_by(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return parser.addresses


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Strict: a link that leads nowhere, or a page that the navigation does not name, is an error here."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MkDocs and its plugins
        patch.chdir(ROOT)  # mkdocs.yml names folders from here
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setattr(gallery, "SENTENCES", SHORT)
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_pages_load_nothing_from_other_hosts(site):
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > len(METHODS)
    found = {f"{path}: {one}" for path, html in pages.items() for one in loaded_by(html) if OUTSIDE.match(one)}
    assert not found
    assert not [path for path, html in pages.items() if 'class="mermaid"' in html]  # its script would be fetched
    assert not [path for path in site.rglob("*.css") if FETCHED_BY_CSS.search(path.read_text(encoding="utf-8"))]


def test_addresses_that_a_page_loads_are_found():
    page = '<a href="https://a.org">x</a><script src="https://b.org/x.js"></script><link href="//c.org/x.css">'
    assert loaded_by(page) == ["https://b.org/x.js", "//c.org/x.css"]
    assert all(map(OUTSIDE.match, loaded_by(page)))
    assert FETCHED_BY_CSS.search("@import 'https://fonts.org/x'")
    assert FETCHED_BY_CSS.search("src: url(//fonts.org/x.woff)")


@pytest.mark.parametrize("name", tl.__all__)
def test_every_public_name_is_in_the_reference_once(site, name):
    pages = [path.read_text(encoding="utf-8") for path in (site / "reference").rglob("*.html")]
    assert sum(f'id="tokenlight.{name}"' in page for page in pages) == 1


def test_fields_are_described_in_the_reference(site):
    """Their comments are, which the package has in place of docstrings."""
    page = (site / "reference" / "results" / "index.html").read_text(encoding="utf-8")
    assert "how important each token is for the target" in page  # Explanation.scores
    assert "<p>-</p>" not in page  # a field without a comment


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_heatmaps_of_three_texts(site, name):
    page = (site / "gallery" / name / "index.html").read_text(encoding="utf-8")
    method = METHODS[name]
    if method.fits(explainer().inner):
        assert page.count('<div class="heat">') == 3
        assert page.count('class="heat-word') > 20
    else:
        assert "needs a language model" in page or "needs a model whose activations are ReLUs" in page
    assert all(f"<code>{option}</code>" in page for option in method.options)


def test_programs_of_the_gallery_run(monkeypatch):
    monkeypatch.setattr(tl, "load", explainer)
    for method in METHODS.values():
        code = compile(program(method), f"gallery/{method.name}.md", "exec")
        if method.fits(explainer().inner):
            exec(code, {})


def test_the_search_index_has_pages_of_every_kind(site):
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in found["docs"]}
    assert {"", "tour/", "how-to/audit/", "gallery/attn_lrp/", "reference/explaining/", "errors/", "results/"} <= places


def test_heatmap_comments_become_heatmaps(site):
    asked = (ROOT / "docs" / "tour" / "index.md").read_text(encoding="utf-8").count("<!-- heatmap:")
    page = (site / "tour" / "index.html").read_text(encoding="utf-8")
    assert page.count('<div class="heat">') == asked > 0
    assert "<!-- heatmap:" not in page


def test_a_heading_may_name_two_methods():
    page = "## School\n\n### `a` (A) and `b` (B)\n\nSee [x](#x), [y](y.md).\n\n### `c`\n\nC.\n\n## Next\n\nNo method.\n"
    first = "See [x](../methods.md#x), [y](../y.md)."
    assert sections(page) == {"a": first, "b": first, "c": "C."}


def test_comments_are_listed_by_line(tmp_path):
    file = tmp_path / "fields.py"
    file.write_text('# above\nx = "# no comment"\ny = 1  # behind\n', encoding="utf-8")
    assert comments_of(file) == {1: ("above", True), 3: ("behind", False)}
