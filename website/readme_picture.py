"""Draw the README's picture: what its first program prints, as SVG.

python website/readme_picture.py docs/first.svg
"""

import io
import re
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

import tokenlight as tl
from tokenlight.views.terminal import show

README = Path(__file__).parent.parent / "README.md"
# White paper, black ink: the picture stands on a light page and on a dark one.
GRAYS = [
    (60, 60, 60),
    (170, 0, 0),
    (0, 120, 0),
    (150, 100, 0),
    (0, 70, 160),
    (120, 0, 120),
    (0, 110, 130),
    (90, 90, 90),
]
THEME = TerminalTheme((255, 255, 255), (20, 20, 20), GRAYS, GRAYS)

console = Console(record=True, force_terminal=True, color_system="truecolor", width=98, file=io.StringIO())
program = README.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
tl.show = partial(show, console=console)  # the program's own call draws the picture
exec(program)
picture = console.export_svg(title="Which tokens made it say that?", theme=THEME)
picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # no fonts from elsewhere
Path(sys.argv[1]).write_text(picture, encoding="utf-8")
