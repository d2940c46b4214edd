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

OPEN_FOR_EACH = 2  # sentences of a long prompt that are not folded, for each sentence of the answer


def drawable_answer(answer: ExplainedAnswer) -> dict[str, Any]:
    """Plain data for `drawAnswer` of answer.js. Tokens are numbers: those of the prompt, then those of the answer.

    A block is a message, the prompt or the answer: `pieces` are its text in order, each with its tokens (none for text
    between words) and the number of their word; `head` are added tokens before it. `groups` are the parts of the prompt
    over which scores are summed; tokens in no group belong to the answer.
    """
    sentences = answer.total().sentences()
    answer_sentences = [[answer.prompt_length + i for i in tokens] for tokens in answer.sentences() if tokens]
    layout = blocks(answer)
    open_ = open_tokens(answer, sentences, answer_sentences)
    return {
        "method": answer.method,
        "title": title_of(answer),
        "model": answer.model,
        "signed": answer.signed,
        "start": answer.prompt_length,
        "blocks": [
            *({**block, "folds": folds(block["pieces"], open_)} for block in layout[:-1]),
            {**layout[-1], "folds": []},
        ],
        "sentences": [list(sentence.tokens) for sentence in sentences],
        "answer_sentences": answer_sentences,
        "groups": groups(answer),
        "ids": list(answer.ids),
        "numbers": answer.numbers.tolist(),
        "probabilities": [math.exp(value) for value in answer.log_probabilities.tolist()],
        "alternatives": [[vars(alternative) for alternative in alternatives] for alternatives in answer.alternatives],
        "matrix": packed(answer.matrix),
    }


def packed(matrix: torch.Tensor) -> str:
    """The matrix in single precision, row by row, as base64: a quarter of the size of JSON."""
    return base64.b64encode(matrix.to(torch.float32).numpy().astype("<f4").tobytes()).decode()


def roles_of(answer: ExplainedAnswer) -> tuple[str, ...]:
    return (*answer.prompt.roles, ASSISTANT) if isinstance(answer.prompt, Chat) else ("prompt", "answer")


def groups(answer: ExplainedAnswer) -> list[dict[str, Any]]:
    """The documents of the prompt and the remaining passages, which together have all of its tokens."""
    passages = [passage for passage in answer.total().by_document() if passage.tokens]
    return [
        {
            "name": group_name(passage, answer.documents),
            "is_document": passage.segment is not None,
            "tokens": list(passage.tokens),
            "text": passage.text,
        }
        for passage in passages
    ]


def blocks(answer: ExplainedAnswer) -> list[dict[str, Any]]:
    """The messages with their pieces. Added tokens belong to the message after them."""
    messages: list[dict[str, Any]] = [{"role": role, "head": [], "pieces": []} for role in roles_of(answer)]
    special = answer.special.tolist()
    words = answer.units("words", keep_special=True)
    number_of = {token: number for number, word in enumerate(words) for token in word}
    message = len(messages) - 1
    messages_of_tokens = []  # for each token, from the last to the first
    for token in reversed(range(len(answer.tokens))):
        segment = answer.segments[token]
        message = message if segment is None else segment
        messages_of_tokens.append(message)
    laid_out = [0] * len(messages)  # the number of characters laid out in each message
    for token, index in enumerate(reversed(messages_of_tokens)):
        block, text = messages[index], answer.texts[index]
        start, end = answer.spans[token]
        piece = {"tokens": [token], "word": number_of[token], "special": special[token], "newline": False}
        if answer.segments[token] is None or (special[token] and start == end):
            side = "head" if not block["pieces"] else "pieces"
            block[side].append({**piece, "text": readable(answer.tokens[token])})
            continue
        if start > laid_out[index]:
            block["pieces"].append(text_piece(text[laid_out[index] : start]))
        written = text[max(start, laid_out[index]) : end]
        laid_out[index] = max(laid_out[index], end)
        append_piece(block["pieces"], {**piece, "text": written, "newline": bool(written) and not written.strip()})
    for block, text, position in zip(messages, answer.texts, laid_out, strict=True):
        if text[position:].strip():
            block["pieces"].append(text_piece(text[position:]))
    return messages


def text_piece(text: str) -> dict[str, Any]:
    return {"text": text, "tokens": [], "word": None, "special": False, "newline": False}


def append_piece(pieces: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Append a piece; tokens that share a character within a word, such as bytes of an emoji, are joined to one."""
    last = pieces[-1] if pieces else None
    if last is not None and last["word"] == piece["word"] and not (last["text"] and piece["text"]):
        last["text"] += piece["text"]
        last["tokens"] += piece["tokens"]
    else:
        pieces.append(piece)


def open_tokens(
    answer: ExplainedAnswer, sentences: Sequence[Passage], answer_sentences: Sequence[Sequence[int]]
) -> set[int] | None:
    """The tokens of a long prompt that are not folded: those of the strongest sentences; None for a short prompt."""
    start = answer.prompt_length
    if start - int(answer.special[:start].sum()) <= LONG or len(sentences) < 2:
        return None
    columns = torch.zeros(start, len(sentences), dtype=answer.matrix.dtype)
    for number, sentence in enumerate(sentences):
        columns[list(sentence.tokens), number] = 1
    scores = answer.matrix[:, :start] @ columns  # [token of the answer, sentence of the prompt]
    sentence_scores = torch.stack([scores[[token - start for token in tokens]].sum(0) for tokens in answer_sentences])
    strongest = sentence_scores.abs().topk(min(OPEN_FOR_EACH, len(sentences))).indices.flatten().tolist()
    overall = scores.sum(0).abs().topk(min(OPEN_SENTENCES, len(sentences))).indices.tolist()
    open_sentences = {0, len(sentences) - 1, *overall, *strongest}
    return {token for number in open_sentences for token in sentences[number].tokens}


def folds(pieces: Sequence[dict[str, Any]], open_: set[int] | None) -> list[tuple[int, int, str]]:
    """Ranges of pieces that are folded initially: first index, index after the last, and label."""
    if open_ is None:
        return []
    folds_, states, is_piece_open = [], [], True
    for piece in pieces:
        if piece["tokens"]:
            is_piece_open = piece["special"] or not open_.isdisjoint(piece["tokens"])
        states.append(is_piece_open)
    for is_open, group in groupby(range(len(pieces)), key=states.__getitem__):
        indices = list(group)
        count = len({pieces[i]["word"] for i in indices if pieces[i]["tokens"]})
        if not is_open and count >= SHORT:
            folds_.append((indices[0], indices[-1] + 1, f"… {count:,} words …"))
    return folds_


TITLE = "Why did the model write that?"
SCRIPTS = ("heatmap.js", "answer_panel.js", "answer.js")  # each imports only from those before it
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
DRAW = """
for (const data of document.querySelectorAll("script.answer")) {
  drawAnswer(data.nextElementSibling, JSON.parse(data.textContent));
}
"""
TALLEST = 800  # pixels of a frame, which scrolls where it needs more


def answer_page(answer: ExplainedAnswer, title: str = TITLE) -> str:
    """A page on which words of the answer can be selected to shade the prompt, and the other way around."""
    style, script = static("style.css") + static("answer.css"), joined_scripts() + DRAW
    # The style policy covers only styles in the file, not those that the script sets.
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
    """For notebooks: the page in a sandboxed frame, whose style and script cannot affect the notebook."""
    # An estimate, since frames do not adapt to their content.
    height = 400 + sum(60 + 30 * (len(text) // 70 + 1) for text in answer.texts)
    return (
        # In a <div>, since IPython warns about plain frames.
        f'<div><iframe sandbox="allow-scripts" style="width:100%;height:{min(height, TALLEST)}px;border:0" '
        f'srcdoc="{escape(answer_page(answer))}"></iframe></div>'
    )
