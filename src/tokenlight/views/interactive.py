"""Explanations as the page draws them, and the standalone report that draws them offline."""

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

ENDINGS = ("</script", "</style", "<!--")  # what would end an element, or begin a comment in it
DRAW = """
for (const data of document.querySelectorAll("script.explanations")) {
  const { explanations, titles } = JSON.parse(data.textContent);
  drawHeatmaps(data.nextElementSibling, explanations, { titles });
}
drawLegend(document.getElementById("legend"));
"""


def drawable(explanation: Explanation) -> dict[str, Any]:
    """`to_dict()` with what a drawing needs: words, ranks, the original text in pieces, and what is folded of them."""
    words, tokens = explanation.words(), token_words(explanation)
    owner = {token: index for index, word in enumerate(words) for token in word.tokens}
    ranks = word_ranks(words)
    laid = {"pieces": list(pieces(explanation, words)), "token_pieces": list(pieces(explanation, tokens))}
    return {
        **explanation.to_dict(),
        "notes": list(notes_of(explanation)),
        "words": [{**word_facts(word), "rank": rank} for word, rank in zip(words, ranks, strict=True)],
        "token_ranks": word_ranks(tokens),
        **{name: [piece_facts(piece, owner) for piece in some] for name, some in laid.items()},
        "strongest": [{"text": passage.text, "score": passage.score} for passage in strongest(explanation)],
        "folds": [{"label": label, **places} for label, places in folds(explanation, laid)],
    }


def folds(
    explanation: Explanation, laid: Mapping[str, Sequence[Piece]]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Each fold's label, and which pieces it holds, by words and by sub-words: the first and the one after the last."""
    starts = {name: list(accumulate((len(piece.text) for piece in some), initial=0)) for name, some in laid.items()}
    place = 0  # characters of what is drawn, which is the same text in either way
    for part in folded(explanation):
        inside = part.pieces if isinstance(part, Fold) else (part,)
        end = place + sum(len(piece.text) for piece in inside)
        if isinstance(part, Fold):
            yield (
                part.label,
                {name: (bisect_left(some, place), bisect_left(some, end)) for name, some in starts.items()},
            )
        place = end


def token_words(explanation: Explanation) -> list[Word]:
    """Every token as if it were a word."""
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
    """1 for the highest score; special tokens have none. Of equals the first in the text comes first."""
    order = sorted((i for i, word in enumerate(words) if word.counts), key=lambda i: -words[i].score)
    places = {i: place for place, i in enumerate(order, 1)}
    return [places.get(i) for i in range(len(words))]


def piece_facts(piece: Piece, owner: dict[int, int]) -> dict[str, Any]:
    if piece.word is None:
        return {"text": piece.text, "word": None, "tokens": []}
    return {"text": piece.text, "word": owner[piece.word.tokens[0]], "tokens": list(piece.word.tokens)}


def report(explanations: Sequence[Explanation], title: str = "Which tokens made the model say that?") -> str:
    """One file: hover a word for its score and rank in every method. Explanations of the same text stand together."""
    if isinstance(explanations, Explanation) or not len(explanations):
        raise RefusedValue("expected a list of explanations, with one or more in it")
    groups = by_text(explanations)
    shared = shared_notes(groups)
    style, script = static("style.css"), static("heatmap.js") + DRAW
    policy = f"default-src 'none'; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'"
    sections = "\n".join(section(group, shared) for group in groups)
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in shared)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><main class="report"><h1>{escape(title)}</h1><div id="legend"></div>{said}\n{sections}\n'
        f'<p class="quiet">{escape(origin(explanations))}</p></main>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


def section(group: Sequence[Explanation], said: Sequence[str]) -> str:
    """A box with the heatmaps of one text; the script draws into the element that follows its data.

    Notes that were `said` already are left out.
    """
    first = group[0]
    titles = {e.method: title_of(e) for e in group}
    drawables = [drawable(e) for e in group]
    for one in drawables:
        one["notes"] = [note for note in one["notes"] if note not in said]
    data = as_script({"explanations": drawables, "titles": titles})
    return (
        f'<section class="card"><p class="says">the model says <b>{escape(headline(first))}</b>; '
        f"explained: <b>{escape(explained(first))}</b></p>"
        f'<script type="application/json" class="explanations">{data}</script><div class="heatmaps"></div></section>'
    )


def as_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin a comment there."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def static(name: str) -> str:
    """A file that goes into a report as it is."""
    text = (files("tokenlight.views") / "static" / name).read_text(encoding="utf-8")
    if any(ending in text.lower() for ending in ENDINGS):
        raise RefusedValue(f"{name} holds what would end the element it is put into: it cannot be part of a report")
    return text


def fingerprint(text: str) -> str:
    """What a Content-Security-Policy knows an inline element by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
