"""Notebooks: whether this runs in one, and how something is shown there. IPython is not imported to find out."""

import sys
from typing import Any

PASSES_BETWEEN = 10  # two pictures of a bar


def in_notebook() -> bool:
    """Whether IPython is loaded and runs a kernel; in a terminal its shell has none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show_html(html: str, replaceable: bool = False) -> Any:
    """Below the cell; what is replaceable is returned, and its `update` takes other HTML."""
    from IPython.display import HTML, display

    return display(HTML(html), display_id=True) if replaceable else display(HTML(html))


class NotebookBar:
    """A progress bar below the cell, which is gone when the work is done."""

    label: str
    total: int | None
    done: float
    passes: int
    place: Any

    def __init__(self, label: str, total: int | None, done: float) -> None:
        self.label, self.total, self.done = label, total, done
        self.passes, self.place = 0, None

    def advance(self, amount: float) -> None:
        self.done += amount
        if self.place is not None:
            self.draw()

    def note_pass(self) -> None:
        self.passes += 1
        if self.place is not None and self.passes % PASSES_BETWEEN == 0:
            self.draw()

    def start(self) -> None:
        self.place = show_html(self.html(), replaceable=True)

    def draw(self) -> None:
        from IPython.display import HTML

        if self.place is not None:
            self.place.update(HTML(self.html()))

    def stop(self) -> None:
        from IPython.display import HTML

        if self.place is not None:
            self.place.update(HTML(""))

    def html(self) -> str:
        passes = f", {self.passes:,} passes" if self.passes else ""
        if self.total is None:
            return f"{self.label}: {self.done:,.0f}{passes}"
        bar = f'<progress value="{self.done:g}" max="{self.total}"></progress>'
        return f"{self.label} {bar} {self.done:,.0f} of {self.total:,}{passes}"
