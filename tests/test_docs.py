"""Programs in the documentation run, links have targets, and every method, metric and command is documented."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tokenlight as tl
from tokenlight import methods, metrics
from tokenlight.bench.protocol import PROTOCOLS
from tokenlight.cli import app
from tokenlight.methods import METHODS
from tokenlight.metrics import METRICS
from tokenlight.model.block_structure import BLOCK_STRUCTURES
from tokenlight.tasks import TASKS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Made when the site is built, which tests/test_site.py does.
MADE = {"reference/commands.md", "gallery/index.md", *(f"gallery/{name}.md" for name in METHODS)}
FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    kind: str
    text: str
    line: int  # the line of the page that the text begins after


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, kind: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(m["kind"].strip(), m["text"], text[: m.start("text")].count("\n")) for m in FENCE.finditer(text)]
    return [block for block in found if block.kind == kind]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(page: Path) -> list[list[str]]:
    """The words of every line that begins with a prompt."""
    lines = [line for block in blocks(page, "console") for line in block.text.splitlines()]
    return [line[2:].split() for line in lines if line.startswith("$ ")]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings: lower case, no punctuation, hyphens for blanks; and names that are documented."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    names = re.findall(r"^::: (\S+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(names)


@pytest.fixture
def _registries_as_before() -> Iterator[None]:
    """What a page registers is gone afterwards."""
    registries: list[dict[str, Any]] = [METHODS, methods.ALIASES, METRICS, metrics.ALIASES, TASKS, BLOCK_STRUCTURES]
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.fixture(scope="module")
def embedded():
    """Loaded once for all pages."""
    return tl.load()


@pytest.mark.usefixtures("_registries_as_before")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=page_name)
def test_programs_run(page, tmp_path, monkeypatch, embedded):
    monkeypatch.chdir(tmp_path)
    load = tl.load
    monkeypatch.setattr(tl, "load", lambda *path, **more: load(*path, **more) if path or more else embedded)
    names = {"__name__": "page"}
    for block in blocks(page, "python"):
        code = compile("\n" * block.line + block.text, str(page), "exec")  # errors name the line of the page
        exec(code, names)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_programs_that_are_not_run_compile(page):
    for block in blocks(page, "python no-run"):
        compile("\n" * block.line + block.text, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_link_targets_exist(page):
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if file in {ROOT / "docs" / made for made in MADE}:
            continue
        assert file.is_file(), f"{page.name} links to {target}, which is not there"
        assert file.is_relative_to(ROOT), f"{page.name} links to {target}, which is not part of the project"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}, but there is no such heading"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_in_the_table_and_has_a_section(name):
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| .*`{name}`", page, re.MULTILINE)
    assert re.search(rf"^### .*`{name}`", page, re.MULTILINE)


def test_every_option_of_a_method_is_named():
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    for name, entry in METHODS.items():
        for option in entry.options:
            assert re.search(rf"`{option}\b", page), f"docs/methods.md does not name the option {option} of {name}"


def test_the_readme_counts_methods_and_metrics():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(METHODS)} methods" in readme
    assert f"{len(METRICS)} metrics" in readme


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_named(name):
    assert f"`{name}`" in (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def raised_texts() -> list[str]:
    """Every text in the package, with … for what is filled in."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    whole = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    filled = [[filled_in(part) for part in node.values] for node in nodes if isinstance(node, ast.JoinedStr)]
    return [*whole, *map("".join, filled)]


def filled_in(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…"


def listed_errors() -> list[str]:
    """The messages on the page of errors; one that holds backticks is between double ones."""
    page = (ROOT / "docs/errors/index.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.+?`) \| ", page, re.MULTILINE)
    return [cell.strip("`").strip() for cell in cells]


def test_listed_errors_are_those_of_the_package():
    known = raised_texts()
    assert len(listed_errors()) > 50
    for message in listed_errors():
        parts = message.split("…")
        pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
        likely = [text for text in known if max(parts, key=len) in text]
        assert any(map(pattern.fullmatch, likely)), f"docs/errors/index.md has {message!r}, which nothing raises"


def test_every_preset_is_named():
    page = (ROOT / "docs/presets.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in PROTOCOLS)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_exist(page):
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for program, *words in commands(page):
        if program == "tokenlight":
            assert words[0] in known, f"{page.name} calls `tokenlight {words[0]}`, which does not exist"
        if program == "make":
            assert words[0] in targets, f"{page.name} calls `make {words[0]}`, which does not exist"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
