"""Between what people write (labels, words, answers) and the indices that a target is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from tokenlight.batch import Row
from tokenlight.targets import Choice, Span, Wanted, best_span, is_whole
from tokenlight.words import number_words

TargetLike = None | int | str | tuple[Any, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class Names:
    """The vocabulary of one model and task."""

    task: str
    model: PreTrainedModel
    tokenizer: Any

    def want(self, row: Row, target: TargetLike, foil: TargetLike) -> Wanted:
        """Indices for what the caller asked about this text. Callables are not for here."""
        if self.task == "question-answering":
            return self._want_span(row, target, foil)
        position = None
        if self.task in ("token-classification", "fill-mask"):
            position, target = self._want_position(row, target)
        index = None if target is None else self.index(target)
        other = None if foil is None else self.index(foil)
        if index is not None and index == other:
            raise ValueError(f"target and foil are both {target!r}: there is nothing to compare")
        return Wanted(index=index, foil=other, position=position)

    def want_any(self, row: Row) -> Wanted:
        """For the caller's own function of the output: only where an answer or a masked word would stand."""
        if self.task == "question-answering":
            return self._want_span(row, None, None)
        masks = [i for i, token in enumerate(row.input_ids) if token == self.tokenizer.mask_token_id]
        return Wanted(position=masks[0] if self.task == "fill-mask" and len(masks) == 1 else None)

    def index(self, name: object) -> int:
        """The index of a label or of a token."""
        if self.task in ("text-classification", "token-classification"):
            return label_index(name, self.labels)
        return token_index(name, self.tokenizer, self.model.config.get_text_config().vocab_size)

    def name(self, index: int) -> str:
        """The label or the token behind an index."""
        if self.task in ("text-classification", "token-classification"):
            return self.labels[index]
        return self.tokenizer.decode([index])

    @property
    def labels(self) -> dict[int, str]:
        return {int(i): name for i, name in (self.model.config.id2label or {}).items()}

    def describe(self, row: Row, choices: tuple[Choice, ...], i: int) -> tuple[str, str | None]:
        """Target and foil of the i-th text in words."""
        first, last = choices[0], choices[-1]
        if first.function is not None:
            return getattr(first.function, "__name__", "custom"), None
        if self.task == "question-answering":
            spans = [[None if t is None else int(t[i]) for t in (c.index, c.foil)] for c in (first, last)]
            target, foil = zip(*spans, strict=True)
            return answer_text(row, target), None if None in foil else answer_text(row, foil)
        target, foil = (None if t is None else self.name(int(t[i])) for t in (first.index, first.foil))
        return str(target), foil

    def prediction(self, row: Row, output: Any, wanted: Wanted, i: int) -> tuple[str, float | None]:
        """What the model says about the i-th text, and how probable it finds it."""
        if self.task == "question-answering":
            start, end = output["start_logits"][i, : len(row)].float(), output["end_logits"][i, : len(row)].float()
            first, last = best_span(start, end, wanted.context or (0, len(row) - 1))
            return answer_text(row, (first, last)), float(start.softmax(0)[first] * end.softmax(0)[last])
        logits = output["logits"][i].float()
        if self.task in ("token-classification", "fill-mask") and wanted.position is None:
            return "something for every token", None
        if logits.ndim == 2:  # [token, index]
            logits = logits[len(row) - 1 if wanted.position is None else wanted.position]
        best = int(logits.argmax())
        if self.task == "text-classification" and len(logits) == 1:  # regression: the number is the answer
            return f"{float(logits[0]):.4g}", None
        several = self.model.config.problem_type == "multi_label_classification"
        chances = torch.sigmoid(logits) if several else logits.softmax(0)
        return self.name(best), float(chances[best])

    def _want_position(self, row: Row, target: TargetLike) -> tuple[int, TargetLike]:
        """Token classification names its token; a masked LM only if there are several masks."""
        if self.task == "fill-mask" and not isinstance(target, tuple):
            masks = [i for i, token in enumerate(row.input_ids) if token == self.tokenizer.mask_token_id]
            if len(masks) != 1:
                found = f"{len(masks)} of them, at {masks}: name one with target=(position, token)" if masks else "none"
                raise ValueError(f"expected one {self.tokenizer.mask_token} in the text, found {found}")
            return masks[0], target
        if not isinstance(target, tuple) or len(target) != 2:
            raise ValueError(
                f"this {self.task} model answers for every token: target=(position, label), where position is a token "
                f"index or a word of the text and label may be None for the predicted one; found {target!r}"
            )
        position, label = target
        return (token_of_word(row, position) if isinstance(position, str) else check_position(row, position)), label

    def _want_span(self, row: Row, target: TargetLike, foil: TargetLike) -> Wanted:
        if not isinstance(row.text, tuple):
            raise ValueError("question answering explains a pair: explain((question, context))")
        inside = [i for i, segment in enumerate(row.segments) if segment == 1]
        if not inside:
            raise ValueError("nothing of the context fits behind the question: shorten the question")
        span = None if target is None else answer_span(row, target)
        other = None if foil is None else answer_span(row, foil)
        if span is not None and span == other:
            raise ValueError(f"target and foil are both {target!r}: there is nothing to compare")
        return Wanted(span=span, foil_span=other, context=(inside[0], inside[-1]))


def label_index(label: object, labels: dict[int, str]) -> int:
    """An index, or a label by name (upper and lower case are the same if that is unambiguous)."""
    if is_whole(label) and label in labels:
        return int(label)
    exact = [i for i, name in labels.items() if name == label]
    loose = exact or [i for i, name in labels.items() if isinstance(label, str) and name.lower() == label.lower()]
    if not loose and isinstance(label, str) and label.isdecimal():  # the command line has no numbers
        loose = [i for i in labels if i == int(label)]
    if len(loose) != 1:
        raise ValueError(f"the model has no label {label!r}; it has {describe_labels(labels)}")
    return loose[0]


def describe_labels(labels: dict[int, str]) -> str:
    return ", ".join(f"{i} ({name!r})" for i, name in list(labels.items())[:20])


def token_index(token: object, tokenizer: Any, vocabulary: int) -> int:
    """A token id, a text that is exactly one token (' are'), or a vocabulary entry ('Ġare', '##ing')."""
    if is_whole(token):
        if not 0 <= token < vocabulary:
            raise ValueError(f"token id {token} is outside the vocabulary of {vocabulary} tokens")
        return int(token)
    if not isinstance(token, str):
        raise TypeError(f"expected a token as text or id, found {type(token).__name__}: {token!r}")
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) == 1 and (ids[0] != tokenizer.unk_token_id or token == tokenizer.unk_token):
        return ids[0]
    # SentencePiece writes the blank itself, so ' are' is the text 'are' there.
    bare = tokenizer.encode(token.lstrip(" "), add_special_tokens=False)
    if len(bare) == 1 and tokenizer.convert_ids_to_tokens(bare)[0] == token.replace(" ", "▁"):
        return bare[0]
    entry = tokenizer.convert_tokens_to_ids(token)
    if isinstance(entry, int) and entry != tokenizer.unk_token_id:
        return entry
    pieces = tokenizer.convert_ids_to_tokens(ids)
    hint = "" if token.startswith(" ") else f", or {' ' + token!r} with a leading blank"
    raise ValueError(f"{token!r} is not one token but {len(pieces)}: {pieces}. Name a single token{hint}")


def check_position(row: Row, position: object) -> int:
    if not is_whole(position) or not 0 <= position < len(row):
        raise ValueError(f"position {position!r} is not a token of this text, which has tokens 0 to {len(row) - 1}")
    return int(position)


def token_of_word(row: Row, word: str) -> int:
    """The first token of a word that stands in the text exactly once."""
    parts = row.text if isinstance(row.text, tuple) else (row.text,)
    places = [(s, k) for s, part in enumerate(parts) for k in range(len(part)) if part.startswith(word, k) and word]
    numbers = [[-1, *number_words(part), -1] for part in parts]
    whole = [
        (s, k)
        for s, k in places
        if numbers[s][k] != numbers[s][k + 1] and numbers[s][k + len(word)] != numbers[s][k + len(word) + 1]
    ]
    places = whole or places  # 'is' is not the end of 'this', if it also stands alone
    if len(places) != 1:
        raise ValueError(f"{word!r} stands {len(places)} times in the text: give the index of its token instead")
    segment, start = places[0]
    for i, (s, (first, last)) in enumerate(zip(row.segments, row.spans, strict=True)):
        if s == segment and first <= start < last:
            return i
    raise ValueError(f"{word!r} is not among the tokens that fit into the model")


def answer_span(row: Row, answer: object) -> Span:
    """First and last token of an answer given as text of the context or as a pair of token indices."""
    if isinstance(answer, tuple) and len(answer) == 2:
        first, last = (check_position(row, position) for position in answer)
        if first > last:
            raise ValueError(f"an answer goes from its first to its last token; found {answer}")
        return first, last
    if not isinstance(answer, str):
        raise TypeError(f"expected an answer as text or as (first token, last token), found {answer!r}")
    context = row.text[1]
    start = context.find(answer) if answer else -1
    if start < 0:
        raise ValueError(f"the answer {answer!r} is not in the context, letter by letter")
    end = start + len(answer)
    inside = [
        i
        for i, (segment, (first, last)) in enumerate(zip(row.segments, row.spans, strict=True))
        if segment == 1 and first < end and last > start
    ]
    if not inside:
        raise ValueError(f"the answer {answer!r} is in a part of the context that did not fit into the model")
    return inside[0], inside[-1]


def answer_text(row: Row, span: Span) -> str:
    """The characters of the original text from the first to the last token of an answer."""
    first, last = span
    if row.segments[first] is None or row.segments[first] != row.segments[last]:
        return " ".join(row.tokens[first : last + 1])
    text = row.text if isinstance(row.text, str) else row.text[row.segments[first] or 0]
    return text[row.spans[first][0] : row.spans[last][1]]
