"""The console for all printing: control characters are escaped."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tokenlight.common.escaping import escape_in_document

UNKNOWN_WIDTH = 80  # columns


class SafeConsole(Console):
    """rich's console; colors and cursor movements are rich's own, those in a text are escaped.

    Strings are not markup: a name such as "[/b]" is printed as it is.
    """

    def __init__(self, **settings: Any):
        super().__init__(markup=False, emoji=False, **settings)
        if self.width < 1:  # COLUMNS=0, as some containers and editors set it: rich would print nothing
            self.width = UNKNOWN_WIDTH

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escape_in_document(segment.text), segment.style)
