"""Hooks of MkDocs: pages that are generated while the site is built, and differences between the site and GitHub."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tokenlight.methods import METHODS
from website.commands import commands_page
from website.gallery import gallery_pages, methods_by_kind
from website.heatmaps import explainer, heatmap

HEATMAP = re.compile(r"^<!-- heatmap: (?P<methods>[\w, ]+) \| (?P<text>.+) -->$", re.MULTILINE)
PROGRAM = re.compile(r"^```python no-run$", re.MULTILINE)
FROM_ROOT = {"../README.md#models-and-tasks": "families.md", "../README.md": "index.md"}
LINK = re.compile(r"\[(?P<words>[^\]]+)\]\((?P<target>[^)\s]+)\)")
COPIED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}  # from the project's root
GALLERY = "Methods"  # its title in mkdocs.yml


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The gallery's pages, by kind, between its overview and what follows."""
    for section in config.nav or []:
        if GALLERY in section:
            pages = (
                {kind: [{m.title: f"gallery/{m.name}.md"} for m in members]} for kind, members in methods_by_kind()
            )
            section[GALLERY][1:1] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    docs = Path(config.docs_dir)
    made = {"reference/commands.md": commands_page(), **gallery_pages(docs), **copied_pages(docs)}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def copied_pages(docs: Path) -> dict[str, str]:
    """Pages of the root that are also part of the site: links into docs/ stay, those to other files are plain text."""
    texts = {there: (docs.parent / here).read_text(encoding="utf-8") for here, there in COPIED.items()}
    return {there: LINK.sub(linked, text) for there, text in texts.items()}


def linked(link: re.Match[str]) -> str:
    words, target = link["words"], link["target"]
    if target.startswith("docs/"):
        return f"[{words}]({target.removeprefix('docs/')})"
    return link[0] if target.startswith(("http", "#")) else words


def on_page_markdown(markdown: str, page: Page, **more: Any) -> str:
    for here, there in FROM_ROOT.items():
        markdown = markdown.replace(f"]({here})", f"]({there})")
    markdown = PROGRAM.sub("```python", markdown)
    return HEATMAP.sub(lambda match: drawn(match["text"], match["methods"].split(", ")), markdown)


def drawn(text: str, methods: list[str]) -> str:
    """A comment in a page, `<!-- heatmap: method, method | text -->`, as heatmaps."""
    if unknown := set(methods) - set(METHODS):
        raise ValueError(f"a page has heatmaps of methods that do not exist: {', '.join(sorted(unknown))}")
    return heatmap(list(explainer().explain_all(text, methods, progress=False).values()))
