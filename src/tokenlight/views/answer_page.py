"""An explained answer as one standalone HTML file or a notebook frame."""

import base64
import math
import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

import torch

from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.results.units import Passage
from tokenlight.text.segmentation import readable
from tokenlight.text.tokenize import ASSISTANT
from tokenlight.text.tokenized_text import Chat
from tokenlight.views.document_table import group_name
from tokenlight.views.interactive import as_script, fingerprint, static
from tokenlight.views.layout import LONG, OPEN_SENTENCES, SHORT, title_of

OPEN_FOR_EACH = 2  # sentences of a long prompt that stay open for each sentence of the answer


def drawable_answer(answer: ExplainedAnswer) -> dict[str, Any]:
    """Plain data for `drawAnswer` of answer.js. Tokens are numbers: those of the prompt, then those of the answer.

    A block is a message, the prompt or the answer: `pieces` are its text in order, each with the tokens that it shows
    (none: what stands between words) and the number of their word; `head` are added tokens before it. `groups` are the
    parts of the prompt that scores are added up over; what is in none of them is the answer.
    """
    sentences = answer.total().sentences()
    own = [[answer.prompt_length + i for i in tokens] for tokens in answer.sentences() if tokens]
    laid = blocks(answer)
    stay = open_tokens(answer, sentences, own)
    return {
        "method": answer.method,
        "title": title_of(answer),
        "model": answer.model,
        "signed": answer.signed,
        "start": answer.prompt_length,
        "blocks": [
            *({**block, "folds": folds(block["pieces"], stay)} for block in laid[:-1]),
            {**laid[-1], "folds": []},
        ],
        "sentences": [list(one.tokens) for one in sentences],
        "answer_sentences": own,
        "groups": groups(answer),
        "ids": list(answer.ids),
        "numbers": answer.numbers.tolist(),
        "probabilities": [math.exp(value) for value in answer.log_probabilities.tolist()],
        "alternatives": [[vars(one) for one in some] for some in answer.alternatives],
        "matrix": packed(answer.matrix),
    }


def packed(matrix: torch.Tensor) -> str:
    """Single precision in base64, row by row: a quarter of what JSON would take."""
    return base64.b64encode(matrix.to(torch.float32).numpy().astype("<f4").tobytes()).decode()


def roles_of(answer: ExplainedAnswer) -> tuple[str, ...]:
    return (*answer.prompt.roles, ASSISTANT) if isinstance(answer.prompt, Chat) else ("prompt", "answer")


def groups(answer: ExplainedAnswer) -> list[dict[str, Any]]:
    """Sources of the prompt and everything else in it; together all of its tokens."""
    found = [one for one in answer.total().by_document() if one.tokens]
    return [
        {
            "name": group_name(one, answer.documents),
            "source": one.segment is not None,
            "tokens": list(one.tokens),
            "text": one.text,
        }
        for one in found
    ]


def blocks(answer: ExplainedAnswer) -> list[dict[str, Any]]:
    """Added tokens go with what stands behind them."""
    found: list[dict[str, Any]] = [{"role": role, "head": [], "pieces": []} for role in roles_of(answer)]
    special = answer.special.tolist()
    words = answer.units("words", keep_special=True)
    number_of = {token: number for number, word in enumerate(words) for token in word}
    measured_target = len(found) - 1
    homes = []  # of each token, from the last to the first
    for token in reversed(range(len(answer.tokens))):
        segment = answer.segments[token]
        measured_target = measured_target if segment is None else segment
        homes.append(measured_target)
    places = [0] * len(found)  # characters that are laid out
    for token, home in enumerate(reversed(homes)):
        block, text = found[home], answer.texts[home]
        start, end = answer.spans[token]
        piece = {"tokens": [token], "word": number_of[token], "special": special[token], "newline": False}
        if answer.segments[token] is None or (special[token] and start == end):
            side = "head" if not block["pieces"] else "pieces"
            block[side].append({**piece, "text": readable(answer.tokens[token])})
            continue
        if start > places[home]:
            block["pieces"].append(between(text[places[home] : start]))
        written = text[max(start, places[home]) : end]
        places[home] = max(places[home], end)
        add(block["pieces"], {**piece, "text": written, "newline": bool(written) and not written.strip()})
    for block, text, place in zip(found, answer.texts, places, strict=True):
        if text[place:].strip():
            block["pieces"].append(between(text[place:]))
    return found


def between(text: str) -> dict[str, Any]:
    return {"text": text, "tokens": [], "word": None, "special": False, "newline": False}


def add(pieces: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Tokens that share a character with others of their word, such as bytes of an emoji, are one piece."""
    last = pieces[-1] if pieces else None
    if last is not None and last["word"] == piece["word"] and not (last["text"] and piece["text"]):
        last["text"] += piece["text"]
        last["tokens"] += piece["tokens"]
    else:
        pieces.append(piece)


def open_tokens(answer: ExplainedAnswer, sentences: Sequence[Passage], own: Sequence[Sequence[int]]) -> set[int] | None:
    """Of a long prompt, the tokens that are not folded: those of sentences that matter. None: it is short."""
    start = answer.prompt_length
    if start - int(answer.special[:start].sum()) <= LONG or len(sentences) < 2:
        return None
    columns = torch.zeros(start, len(sentences), dtype=answer.matrix.dtype)
    for number, sentence in enumerate(sentences):
        columns[list(sentence.tokens), number] = 1
    scores = answer.matrix[:, :start] @ columns  # [token of the answer, sentence of the prompt]
    each = torch.stack([scores[[token - start for token in tokens]].sum(0) for tokens in own])
    strongest = each.abs().topk(min(OPEN_FOR_EACH, len(sentences))).indices.flatten().tolist()
    overall = scores.sum(0).abs().topk(min(OPEN_SENTENCES, len(sentences))).indices.tolist()
    stay = {0, len(sentences) - 1, *overall, *strongest}
    return {token for number in stay for token in sentences[number].tokens}


def folds(pieces: Sequence[dict[str, Any]], stay: set[int] | None) -> list[tuple[int, int, str]]:
    """Stretches of pieces that are closed at first: the first, the one behind the last, and what is written there."""
    if stay is None:
        return []
    found, states, now = [], [], True
    for piece in pieces:
        if piece["tokens"]:
            now = piece["special"] or not stay.isdisjoint(piece["tokens"])
        states.append(now)
    for is_open, group in groupby(range(len(pieces)), key=states.__getitem__):
        some = list(group)
        count = len({pieces[i]["word"] for i in some if pieces[i]["tokens"]})
        if not is_open and count >= SHORT:
            found.append((some[0], some[-1] + 1, f"… {count:,} words …"))
    return found


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
    # A guess, since frames do not ask for their size.
    height = 400 + sum(60 + 30 * (len(text) // 70 + 1) for text in answer.texts)
    return (
        # In a division, since IPython warns of frames on their own.
        f'<div><iframe sandbox="allow-scripts" style="width:100%;height:{min(height, TALLEST)}px;border:0" '
        f'srcdoc="{escape(answer_page(answer))}"></iframe></div>'
    )
