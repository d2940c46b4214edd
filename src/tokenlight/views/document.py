"""HTML documents without a script: one look in light and dark rooms, on phones and on paper."""

from html import escape

from tokenlight.views.palette import DARK, Color, css, ink

LIGHT_COLORS = (
    "--paper: #fff; --page: #f6f8fa; --ink: #1b1f24; --quiet: #57606a; --faint: #67707a; --line: #d0d7de; "
    "--grid: #eaeef2; --note: #7d5200; --accent: #1f5f9f"
)
DARK_COLORS = (
    f"--paper: {css(DARK.paper)}; --page: #0d1117; --ink: #e6edf3; --quiet: #9da7b3; --faint: #8b949e; "
    "--line: #30363d; --grid: #262c34; --note: #e0b04c; --accent: #6cb0f0"
)
# A shade is written on its element: that of light rooms as it is, so that it shows in notebooks and e-mails, too, and
# that of dark rooms as a variable. On paper it is always light.
STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT_COLORS} }}
body {{
  margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere
}}
h1 {{ font: 600 22px/1.3 system-ui, sans-serif; margin: 0 0 .3rem }}
section {{
  background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem; margin: 0 0 1rem
}}
.shaded {{ print-color-adjust: exact; -webkit-print-color-adjust: exact }}
:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 2px }}
.scroll {{
  overflow-x: auto;
  background:
    linear-gradient(to right, var(--paper) 40%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--line), transparent) left / 1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll
}}
@media (max-width: 40rem) {{
  body {{ padding: 1.2rem .7rem 2rem }}
  section {{ padding: .7rem .8rem }}
}}
"""
DARK_SHADES = "background: var(--dark) !important; color: var(--dark-ink) !important"
# Behind all other styles, since it changes what they say.
SURROUNDINGS = f"""
@media screen and (prefers-color-scheme: dark) {{
  :root, .tokenlight, .tokenlight-sources {{ {DARK_COLORS} }}
  .shaded {{ {DARK_SHADES} }}
}}
@media print {{
  :root {{ color-scheme: light }}
  body {{ max-width: none; padding: 0; background: none }}
  section {{ border: 0; padding: 0; break-inside: avoid-page }}
  .scroll {{ overflow: visible; background: none }}
  .on-screen {{ display: none }}
}}
"""

# A notebook has a theme of its own, whatever the system's is: JupyterLab, VS Code and Colab say so, each in its way.
DARK_NOTEBOOK = ':is([data-jp-theme-light="false"], .vscode-dark, [theme="dark"])'
# JupyterLab lays out all tables in its own way, zebra stripes included, unless told twice.
IN_NOTEBOOK = f"""
.tokenlight .heat.heat {{ font-size: inherit; line-height: inherit }}
.tokenlight .heat.heat :is(tr, th, td) {{ background: none; text-align: start; vertical-align: baseline }}
.tokenlight .heat.heat :is(tr, td) {{ line-height: inherit }}
{DARK_NOTEBOOK} :is(.tokenlight, .tokenlight-sources) {{ {DARK_COLORS} }}
{DARK_NOTEBOOK} .shaded {{ {DARK_SHADES} }}
"""


def document(title: str, body: str, *styles: str) -> str:
    """A page that needs nothing from outside; later styles add to the common one, or change it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{''.join(styles)}{SURROUNDINGS}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>\n"
    )


def shaded(light: Color, dark: Color, letters: str | None = None) -> str:
    """The style of a shaded element, whose class is `shaded`; letters are black or white if no color is given."""
    own = f"background:{css(light)};color:{letters or css(ink(light))}"
    return f"{own};--dark:{css(dark)};--dark-ink:{letters or css(ink(dark))}"
