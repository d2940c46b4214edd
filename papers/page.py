"""Write the docs page of each paper from its facts and from the numbers that its scripts have stored.

python -m papers.page            # writes docs/papers/*.md
python -m papers.page attcat     # writes docs/papers/attcat.md
"""

import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from papers.facts import Checkpoint, Item, Paper
from papers.tables import RECORDS, Comparison, format_published

FOLDERS = ("mask_lrp", "attcat", "alti", "arras")
HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "papers"
LONGEST_CELL = 600  # letters: a longer text stands below its table, where narrow screens show it whole
KINDS = {
    "table": "Tables",
    "figure": "Figures",
    "equation": "Equations",
    "algorithm": "Algorithms",
    "protocol": "Protocols",
    "appendix": "Appendices",
}


def find_paper(folder: str) -> Paper:
    return import_module(f"papers.{folder}.facts").PAPER


def write_page(paper: Paper) -> str:
    """The page as Markdown."""
    parts = [
        f"# {paper.short}",
        f"{paper.citation} [Paper]({paper.link})."
        + (f" [The authors' code]({paper.release})." if paper.release else ""),
        "This page lists what the paper contains, what each part is in tokenlight, how to run it, and what differs. "
        "Every script runs with `--small` in a few minutes without a network; without options it takes the paper's "
        "own checkpoints and data from the Hub, and says which data have to be fetched by hand. `--model` and `--data` "
        "take any others. A measured number is a mean "
        f"over examples with its 95 % interval. This page is written by `python -m papers.page` from "
        f"`papers/{paper.folder}/facts.py` and `papers/{paper.folder}/{RECORDS}/`.",
    ]
    for kind, heading in KINDS.items():
        items = [item for item in paper.items if item.kind == kind]
        if items and kind in ("table", "figure"):
            parts.append(f"## {heading}")
            for item in items:
                parts += write_section(paper, item)
        elif items:
            parts += [f"## {heading}", write_list(paper, items)]
            for item in items:
                if item.published is not None or (item.script and stored_comparisons(paper, item.script)):
                    parts += write_numbers(paper, item)
    if paper.checkpoints:
        parts += ["## Checkpoints and data", write_checkpoints(paper)]
    return "\n\n".join(parts) + "\n"


def write_section(paper: Paper, item: Item) -> Iterator[str]:
    """A table or figure: what it shows, how to run it, the published numbers, ours, and the differences."""
    yield f"### {item.title}"
    yield f"{item.content}\n\n**In tokenlight:** {item.here}"
    if item.script:
        command = f"python -m papers.{paper.folder}.{item.script}"
        yield f"```console\n$ {command}\n$ {command} --small\n```"
    if item.differs:
        yield f"**What differs:** {item.differs}"
    yield from published_and_measured(paper, item)


def published_and_measured(paper: Paper, item: Item) -> Iterator[str]:
    if item.published is not None:
        yield "Published:"
        lines = [f"| | {' | '.join(item.published.columns)} |", f"|:--{'|--:' * len(item.published.columns)}|"]
        rows = item.published.rows.items()
        lines += [f"| {name} | {' | '.join(map(format_published, numbers))} |" for name, numbers in rows]
        yield "\n".join(lines)
    if item.script:
        for comparison in stored_comparisons(paper, item.script):
            yield f"Measured: {comparison.heading}"
            yield comparison.to_markdown()
        for picture in sorted(DOCS.glob(f"{paper.folder}-{item.script}*.png")):
            run = picture.stem.removeprefix(f"{paper.folder}-{item.script}-")
            yield f"![{paper.short}, {item.title.lower()}, made by the script: {run}]({picture.name})"
            yield f"*Picture: run `{run}`*"


def write_numbers(paper: Paper, item: Item) -> Iterator[str]:
    """The numbers of an item that stands in a list, unless another item has them: a table, a figure, or a later one."""
    items_of_script = [other for other in paper.items if other.script == item.script]
    if item is items_of_script[-1] and not any(other.kind in ("table", "figure") for other in items_of_script):
        yield f"### {item.title}"
        if item.script:
            command = f"python -m papers.{paper.folder}.{item.script}"
            yield f"```console\n$ {command}\n$ {command} --small\n```"
        yield from published_and_measured(paper, item)


def stored_comparisons(paper: Paper, script: str) -> list[Comparison]:
    files = sorted((HERE / paper.folder / RECORDS).glob(f"{script}-*.json"))
    return [Comparison(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def write_list(paper: Paper, items: list[Item]) -> str:
    lines = ["| | content | in tokenlight | what differs |", "|:--|:--|:--|:--|"]
    for item in items:
        here = item.here + (f"; `python -m papers.{paper.folder}.{item.script}`" if item.script else "")
        differs = "see below" if len(item.differs) > LONGEST_CELL else item.differs or "–"
        lines.append(f"| {item.number} | {item.content} | {here} | {differs} |")
    long = (item for item in items if len(item.differs) > LONGEST_CELL)
    return "\n\n".join(["\n".join(lines), *(f"**{item.title}, what differs:** {item.differs}" for item in long)])


def write_checkpoints(paper: Paper) -> str:
    def row(name: str, checkpoint: Checkpoint) -> str:
        split = checkpoint.split or "–"
        data = f"[`{checkpoint.data}`]({checkpoint.fetch})" if checkpoint.fetch else f"`{checkpoint.data}`"
        return f"| {name} | `{checkpoint.model}` | {data} | {split} | {checkpoint.note or '–'} |"

    lines = ["| `--dataset` | model | data | split | note |", "|:--|:--|:--|:--|:--|"]
    return "\n".join([*lines, *(row(name, checkpoint) for name, checkpoint in paper.checkpoints.items())])


def main(folders: Sequence[str]) -> None:
    DOCS.mkdir(exist_ok=True)
    for folder in folders or FOLDERS:
        (DOCS / f"{folder}.md").write_text(write_page(find_paper(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
