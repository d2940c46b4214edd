"""Draw the README's picture: what `make demo` prints, as SVG.

python recipes/readme_picture.py docs/demo.svg
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

import tokenlight as tl
from tokenlight.foundation.first_look import DEMO_METHODS, SENTENCES
from tokenlight.views.terminal import legend

# White paper, black ink: the picture stands on a light page and on a dark one.
GREYS = [
    (60, 60, 60),
    (170, 0, 0),
    (0, 120, 0),
    (150, 100, 0),
    (0, 70, 160),
    (120, 0, 120),
    (0, 110, 130),
    (90, 90, 90),
]
THEME = TerminalTheme((255, 255, 255), (20, 20, 20), GREYS, GREYS)

console = Console(record=True, force_terminal=True, color_system="truecolor", width=116, file=io.StringIO())
explained = tl.load().explain_all(SENTENCES, DEMO_METHODS)
for group in zip(*explained.values(), strict=True):
    tl.show(list(group), console)
    console.print()
console.print(legend(console))
picture = console.export_svg(title="make demo", theme=THEME)
picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # no fonts from elsewhere
Path(sys.argv[1]).write_text(picture, encoding="utf-8")
