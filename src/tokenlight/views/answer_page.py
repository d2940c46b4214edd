"""An explained answer as one HTML file without anything from outside, and the same in a frame for notebooks."""

import re
from html import escape

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.text.rows import parts
from tokenlight.views.drawable_answer import drawable_answer
from tokenlight.views.interactive import as_script, fingerprint, static

TITLE = "Why did the model write that?"
SCRIPTS = ("heatmap.js", "answer_panel.js", "answer.js")  # each imports from those before it alone
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
DRAW = """
for (const data of document.querySelectorAll("script.answer")) {
  drawAnswer(data.nextElementSibling, JSON.parse(data.textContent));
}
"""
TALLEST = 800  # pixels of a frame, which scrolls where it needs more


def answer_page(answer: ExplainedAnswer, title: str = TITLE) -> str:
    """Choose words of the answer, and the prompt lights up; choose words of the prompt, and the answer does."""
    style, script = static("style.css") + static("answer.css"), joined_scripts() + DRAW
    # Widths and shades are set by the script: the policy of styles is about what the file itself says.
    policy = f"default-src 'none'; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'"
    facts = f"{answer.model}; explained by {answer.method}"
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in answer.notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><main class="report report-answer"><header><h1>{escape(title)}</h1>'
        f'<p class="quiet">{escape(facts)}</p>{notes}</header>'
        f'<script type="application/json" class="answer">{as_script(drawable_answer(answer))}</script>'
        "<div></div></main>\n"
        f'<script type="module">{script}</script></body></html>\n'
    )


def joined_scripts() -> str:
    """One module: what a file imports from another stands before it."""
    return "".join(IMPORT.sub("", static(name)) for name in SCRIPTS)


def answer_frame(answer: ExplainedAnswer) -> str:
    """For notebooks: the page in a frame of its own, whose style and script cannot touch the notebook."""
    texts = [*parts(answer.prompt), answer.answer]
    height = 400 + sum(60 + 30 * (len(text) // 70 + 1) for text in texts)  # a guess: frames do not ask for their size
    return (
        # In a division, since IPython warns of frames on their own.
        f'<div><iframe sandbox="allow-scripts" style="width:100%;height:{min(height, TALLEST)}px;border:0" '
        f'srcdoc="{escape(answer_page(answer))}"></iframe></div>'
    )
