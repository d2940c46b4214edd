"""Data of explanations for the page, and the standalone report that draws them offline."""

import base64
import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate
from typing import Any

from tokenlight.common.errors import RefusedValue
from tokenlight.results.explanation import Explanation, Word
from tokenlight.text.tokenized_text import parts
from tokenlight.views.layout import (
    Fold,
    Piece,
    by_text,
    explained,
    folded,
    headline,
    notes_of,
    origin,
    pieces,
    shared_notes,
    strongest,
    title_of,
)

ENDINGS = ("</script", "</style", "<!--")  # strings that would end an element, or begin a comment in it
DRAW = """
for (const data of document.querySelectorAll("script.explanations")) {
  const { explanations, titles } = JSON.parse(data.textContent);
  drawHeatmaps(data.nextElementSibling, explanations, { titles });
}
drawLegend(document.getElementById("legend"));
"""


def drawable(explanation: Explanation) -> dict[str, Any]:
    """`to_dict()` with words, ranks, the original text in pieces, and folds, as needed for drawing."""
    words, tokens = explanation.words(), token_words(explanation)
    word_of_token = {token: index for index, word in enumerate(words) for token in word.tokens}
    ranks = word_ranks(words)
    layouts = {"pieces": list(pieces(explanation, words)), "token_pieces": list(pieces(explanation, tokens))}
    return {
        **explanation.to_dict(),
        "notes": list(notes_of(explanation)),
        "words": [{**word_facts(word), "rank": rank} for word, rank in zip(words, ranks, strict=True)],
        "token_ranks": word_ranks(tokens),
        **{name: [piece_facts(piece, word_of_token) for piece in layout] for name, layout in layouts.items()},
        "strongest": [{"text": passage.text, "score": passage.score} for passage in strongest(explanation)],
        "folds": [{"label": label, **ranges} for label, ranges in folds(explanation, layouts)],
    }


def folds(
    explanation: Explanation, layouts: Mapping[str, Sequence[Piece]]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Each fold's label, and its range of pieces, by words and by tokens: first index and index after the last."""
    starts = {
        name: list(accumulate((len(piece.text) for piece in items), initial=0)) for name, items in layouts.items()
    }
    position = 0  # in characters of the drawn text, which is the same for words and tokens
    for entry in folded(explanation):
        inner_pieces = entry.pieces if isinstance(entry, Fold) else (entry,)
        end = position + sum(len(piece.text) for piece in inner_pieces)
        if isinstance(entry, Fold):
            yield (
                entry.label,
                {name: (bisect_left(items, position), bisect_left(items, end)) for name, items in starts.items()},
            )
        position = end


def token_words(explanation: Explanation) -> list[Word]:
    """Every token as a word."""
    columns = zip(
        explanation.tokens,
        explanation.scores.tolist(),
        explanation.special.tolist(),
        explanation.segments,
        explanation.spans,
        strict=True,
    )
    texts = parts(explanation.text)
    return [
        Word(
            texts[segment or 0][slice(*span)] if is_break(texts, segment, span) else token,
            score,
            (i,),
            special,
            segment,
            span,
        )
        for i, (token, score, special, segment, span) in enumerate(columns)
    ]


def is_break(texts: Sequence[str], segment: int | None, span: tuple[int, int]) -> bool:
    return segment is not None and texts[segment][slice(*span)].isspace()


def word_facts(word: Word) -> dict[str, Any]:
    return {**vars(word), "tokens": list(word.tokens), "span": list(word.span)}


def word_ranks(words: Sequence[Word]) -> list[int | None]:
    """Ranks, 1 for the highest score; None for special tokens. Equal scores are ranked in the order of the text."""
    order = sorted((i for i, word in enumerate(words) if word.counts), key=lambda i: -words[i].score)
    ranks = {i: rank for rank, i in enumerate(order, 1)}
    return [ranks.get(i) for i in range(len(words))]


def piece_facts(piece: Piece, word_of_token: dict[int, int]) -> dict[str, Any]:
    if piece.word is None:
        return {"text": piece.text, "word": None, "tokens": []}
    return {"text": piece.text, "word": word_of_token[piece.word.tokens[0]], "tokens": list(piece.word.tokens)}


def report(explanations: Sequence[Explanation], title: str = "Which tokens made the model say that?") -> str:
    """One HTML file; hovering a word shows its score and rank in every method. Texts are grouped."""
    if isinstance(explanations, Explanation) or not len(explanations):
        raise RefusedValue("expected a list of explanations, with one or more in it")
    groups = by_text(explanations)
    shared = shared_notes(groups)
    style, script = static("style.css"), static("heatmap.js") + DRAW
    policy = f"default-src 'none'; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'"
    sections = "\n".join(section(group, shared) for group in groups)
    remarks = "".join(f'<p class="note">{escape(note)}</p>' for note in shared)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><main class="report"><h1>{escape(title)}</h1><div id="legend"></div>{remarks}\n{sections}\n'
        f'<p class="quiet">{escape(origin(explanations))}</p></main>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


def section(group: Sequence[Explanation], shown_notes: Sequence[str]) -> str:
    """A box with the heatmaps of one text; the script draws into the element that follows its data.

    `shown_notes` are left out.
    """
    first = group[0]
    titles = {e.method: title_of(e) for e in group}
    drawables = [drawable(e) for e in group]
    for data_of_method in drawables:
        data_of_method["notes"] = [note for note in data_of_method["notes"] if note not in shown_notes]
    data = as_script({"explanations": drawables, "titles": titles})
    return (
        f'<section class="card"><p class="says">the model says <b>{escape(headline(first))}</b>; '
        f"explained: <b>{escape(explained(first))}</b></p>"
        f'<script type="application/json" class="explanations">{data}</script><div class="heatmaps"></div></section>'
    )


def as_script(value: Any) -> str:
    """JSON that cannot end its script element, nor begin a comment in it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def static(name: str) -> str:
    """The text of a static file for a report."""
    text = (files("tokenlight.views") / "static" / name).read_text(encoding="utf-8")
    if any(ending in text.lower() for ending in ENDINGS):
        raise RefusedValue(
            f"{name} has a string that would end its HTML element ({', '.join(ENDINGS)}): it cannot be part of a report"
        )
    return text


def fingerprint(text: str) -> str:
    """The hash of an inline element for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
