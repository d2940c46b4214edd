"""The result for a text: a score for every token, and what is needed to interpret it; lists and dicts of results."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.common.files import write_atomically
from tokenlight.results import saved
from tokenlight.results.units import Passage, Word, passages_of, remainder
from tokenlight.text.documents import documents_from_plain, find_documents, plain_documents
from tokenlight.text.segmentation import Span, paragraphs, sentences
from tokenlight.text.tokenize import plain_text, read_text
from tokenlight.text.tokenized_text import Chat, Document, Text, TokenGroups, Units, parts

if TYPE_CHECKING:
    import pandas

    from tokenlight.explain.explainer import Explainer
    from tokenlight.metrics.evaluate import Measure
    from tokenlight.metrics.perturbation import Perturbation
    from tokenlight.tasks.targets import TargetSpec


FORMAT, VERSION = "tokenlight.explanation", 1
PRESENTATION = ("method_title", "method_caution", "score_word")  # fields that only views read
MAP_AXES: dict[str, tuple[str, ...]] = {
    "layers": ("layer", "token"),
    "heads": ("layer", "head"),
    "neurons": ("token", "dim"),
    "mlp": ("layer",),
    "contributions": ("layer", "query", "key"),
    "mixing": ("layer", "query", "key"),
    "standard_error": ("token",),
}


@dataclass(frozen=True, eq=False)
class Explanation(TokenGroups):
    """Which tokens made the model say that. Higher score = more support for the target."""

    text: Text  # what was explained: a text, a pair, or a chat
    tokens: list[str]  # as the tokenizer writes them, special tokens included
    scores: Tensor  # [token] how much each supports the target
    special: Tensor  # [token] bool: added by the tokenizer or a chat's template
    segments: list[int | None]  # of each token: the text of a pair, or the message of a chat; None: added
    spans: list[Span]  # of each token: its characters there
    score: float  # the explained number: a logit, or a difference of two
    target: str  # what the scores are for, in words
    foil: str | None  # what the target is compared with
    prediction: str  # what the model says
    probability: float | None  # of the prediction; None where the model gives none
    method: str  # its identifier
    options: Mapping[str, Any]  # of the method
    task: str  # as transformers' pipelines call it
    model: str  # its name or path
    signed: bool = True  # whether scores can be negative
    method_title: str = ""  # what papers call the method; "": no other name than its identifier is known
    method_caution: str = ""  # how readers may misunderstand its negative scores; "": nothing to warn of
    score_word: str = "score"  # what the explained number is called, such as "logit"
    position: int | None = None  # the token that was explained, where there is one
    indices: tuple[int, ...] = ()  # the target as the model counts: a label, a token id, or an answer's first and last
    foil_indices: tuple[int, ...] = ()  # the same of the foil
    documents: tuple[Document, ...] = ()  # the parts of the text that were named as such
    given: tuple[int, ...] = ()  # token ids between the text and the target, where that is a later part of an answer
    extras: Mapping[str, float] = field(default_factory=dict)  # numbers about the scores, such as a residual
    maps: Mapping[str, Tensor] = field(default_factory=dict)  # what was asked for with detail=; axes in MAP_AXES
    notes: tuple[str, ...] = ()  # what a reader should know: truncation, a target that had no effect
    versions: Mapping[str, str] = field(default_factory=dict)  # of tokenlight, torch, transformers and Python
    fused: bool | None = None  # whether attention ran as one operation, without its weights; None: not known
    # For evaluate(); no part of the result: not compared, not saved, and not taken along by copies and pickles.
    explainer: "Explainer | None" = field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, the two of a pair, or a chat's messages."""
        return parts(self.text)

    def words(self) -> list[Word]:
        """Tokens merged into words of the original text, special tokens included."""
        scores, errors = self.scores.tolist(), self.maps.get("standard_error")
        words = []
        for group in self.units("words", keep_special=True):
            error = None if errors is None else float(errors[list(group)].square().sum().sqrt())
            score, special = sum(scores[i] for i in group), bool(self.special[group[0]])
            segment, span = self.segments[group[0]], self.span_of(group)
            words.append(Word(self.text_of(group), score, tuple(group), special, segment, span, error))
        return words

    def sentences(self) -> list[Passage]:
        """Tokens merged into sentences of the original text, without special tokens."""
        return self._passages(sentences)

    def paragraphs(self) -> list[Passage]:
        """Tokens merged into paragraphs, which blank lines separate, without special tokens."""
        return self._passages(paragraphs)

    def strongest(self, k: int = 5) -> list[Passage]:
        """The k sentences with the largest scores for or against the target."""
        return sorted(self.sentences(), key=lambda sentence: -abs(sentence.score))[:k]

    def _passages(self, cut: Callable[[str], list[Span]]) -> list[Passage]:
        texts, scores = self.texts, self.scores.tolist()
        return [
            Passage(
                texts[segment][slice(*span)].strip(),
                sum(scores[token] for token in tokens),
                tuple(tokens),
                segment,
                span,
            )
            for segment, span, tokens in self.divide(cut)
            if tokens
        ]

    def turns(self) -> list[Passage]:
        """The messages of a chat; for other inputs, the texts they consist of."""
        return passages_of(self, find_documents(self.text, "turns"))

    def by_document(self) -> list[Passage]:
        """The sources, followed by everything else that has a score, so that nothing is left out."""
        return [*passages_of(self, self.documents), *remainder(self)]

    def top(self, k: int = 5) -> list[Word]:
        """The k words with the highest scores, without special tokens and line breaks."""
        return sorted((word for word in self.words() if word.counts), key=lambda word: -word.score)[:k]

    def show(self) -> None:
        """Print the text with its scores, in color where the terminal has it; in a notebook, show it as HTML."""
        from tokenlight.views.terminal import show

        show(self)

    def to_html(self) -> str:
        """A standalone HTML page."""
        from tokenlight.views.html import page

        return page([[self]])

    def _repr_html_(self) -> str:
        from tokenlight.views.html import fragment

        return fragment([self])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers."""
        plain = {name: getattr(self, name) for name in saved_fields()}
        plain |= {
            "scores": self.scores.tolist(),
            "dtype": str(self.scores.dtype).removeprefix("torch."),
            "special": self.special.tolist(),
            "spans": [list(span) for span in self.spans],
            "indices": list(self.indices),
            "foil_indices": list(self.foil_indices),
            "given": list(self.given),
            "text": plain_text(self.text),
            "documents": plain_documents(self.documents),
            "options": json.loads(json.dumps(dict(self.options))),  # tuples are lists there
            "extras": dict(self.extras),
            "maps": {name: values.tolist() for name, values in self.maps.items()},
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
        return {"format": FORMAT, "version": VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Explanation":
        """The inverse of `to_dict`."""
        later = {  # older files have none
            "given": [],
            "documents": [],
            "method_title": "",
            "method_caution": "",
            "score_word": "score",
        }
        fields, dtype = read_saved(plain, "explanation", FORMAT, VERSION, saved_fields(), later)
        with saved.converting("explanation"):
            return cls._from_fields(fields, dtype)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], dtype: torch.dtype) -> "Explanation":
        """What a file held; what is inconsistent in it is an error."""
        check_saved(fields)
        fields |= {
            "scores": saved.read_tensor("scores", fields["scores"], dtype),
            "special": torch.tensor(fields["special"], dtype=torch.bool),
            "spans": [tuple(span) for span in fields["spans"]],
            "indices": tuple(fields["indices"]),
            "foil_indices": tuple(fields["foil_indices"]),
            "given": tuple(fields["given"]),
            "text": read_text(fields["text"]),
            "documents": documents_from_plain(fields["documents"]),
            "maps": {name: saved.read_tensor(name, values, dtype) for name, values in fields["maps"].items()},
            "notes": tuple(fields["notes"]),
        }
        for name, values in fields["maps"].items():
            check_map(name, values, len(fields["tokens"]))
        return cls(**fields)

    def save(self, path: str | Path) -> None:
        """A small JSON file that `tokenlight.Explanation.load` reads back."""
        write_atomically(path, json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Explanation":
        """Read what `save` wrote."""
        return cls.from_dict(saved.read_json(Path(path), "explanation"))

    def evaluate(
        self,
        metrics: "Sequence[str | Measure] | None" = None,
        *,
        explainer: "Explainer | None" = None,
        perturbation: "Perturbation | None" = None,
        units: Units | None = None,
        marks: Tensor | None = None,
        others: "Explanation | Tensor | None" = None,
        target: "TargetSpec" = None,
        foil: "TargetSpec" = None,
    ) -> dict[str, float]:
        """How faithful this result is: {metric: value}. See `tokenlight.evaluate`, which does the same for lists.

        A result that was loaded from a file does not know its model: give the `explainer`.
        """
        from tokenlight.metrics.evaluate import DEFAULT_METRICS, evaluate

        explainer = explainer or self.explainer
        if explainer is None:
            raise RefusedValue("this result does not know its model: call evaluate(explainer=tokenlight.load(...))")
        (found,) = evaluate(
            explainer,
            [self],
            metrics or DEFAULT_METRICS,
            perturbation=perturbation,
            units=units,
            marks=None if marks is None else [marks],
            others=None if others is None else [others],
            target=target,
            foil=foil,
        )
        return found

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a row for each token."""
        with from_extra("pandas", "to_pandas"):
            import pandas
        starts, ends = zip(*self.spans, strict=True)
        columns = {"token": self.tokens, "score": self.scores.tolist(), "special": self.special.tolist()}
        return pandas.DataFrame({**columns, "segment": self.segments, "start": starts, "end": ends})

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do not take the model along."""
        return {**self.__dict__, "explainer": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        top = ", ".join(f"{printable(word.text)} {word.score:+.3g}" for word in self.top(3))
        return f"<Explanation of {self.target!r} by {self.method}: {top}>"


def saved_fields() -> list[str]:
    return [one.name for one in fields(Explanation) if one.name != "explainer"]


def read_saved(
    plain: Mapping[str, Any],
    kind: str,
    format: str,
    version: int,
    names: Sequence[str],
    later: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], torch.dtype]:
    """The fields of a saved result and its precision, if it is one; `later` stands in for what older files lack."""
    found = plain.get("format") if isinstance(plain, Mapping) else type(plain).__name__
    if found != format:
        raise RefusedValue(f"this is not a saved {kind}: expected format {format!r}, found {found!r}")
    saved.check_version(plain.get("version"), version)
    fields = {**(later or {}), **plain}
    if wrong := {"format", "version", "dtype", *names} ^ set(fields):
        raise RefusedValue(saved.damaged(kind, f"missing or unknown {', '.join(sorted(map(str, wrong)))}"))
    if fields["dtype"] not in saved.DTYPES:
        raise RefusedValue(saved.damaged(kind, f"dtype: expected one of {', '.join(saved.DTYPES)}"))
    return {name: fields[name] for name in names}, getattr(torch, fields["dtype"])


def check_saved(fields: Mapping[str, Any]) -> None:
    """Types, lengths and numbers of what a file held."""
    text = read_text(fields["text"])
    is_text = isinstance(text, Chat | str) or (len(text) == 2 and all(isinstance(one, str) for one in text))
    saved.expect(is_text, "text", "a text, two texts or messages", fields["text"])
    saved.check_texts(fields, ("target", "prediction", "method", "task", "model", *PRESENTATION))
    saved.check_mappings(fields, ("options", "extras", "maps", "versions"))
    count = saved.check_tokens(fields, parts(text))
    saved.check_list(fields, "scores", count, saved.is_finite, "a finite number")
    saved.expect(saved.is_finite(fields["score"]), "score", "a finite number", fields["score"])
    saved.expect(isinstance(fields["signed"], bool), "signed", "true or false", fields["signed"])
    saved.check_optional(fields, ("foil",), lambda one: isinstance(one, str), "a text")
    saved.check_optional(fields, ("probability",), saved.is_probability, "a number from 0 to 1")
    saved.check_optional(fields, ("position",), saved.is_whole, "a whole number")
    saved.check_optional(fields, ("fused",), lambda one: isinstance(one, bool), "true or false")
    for name in ("indices", "foil_indices", "given"):
        saved.check_list(fields, name, len(fields[name]), saved.is_whole, "a whole number")
    saved.check_list(fields, "notes", len(fields["notes"]), lambda one: isinstance(one, str), "a text")


def check_map(name: str, values: Tensor, length: int) -> None:
    saved.expect(name in MAP_AXES, "maps", f"some of {', '.join(MAP_AXES)}", name)
    axes, found = MAP_AXES[name], tuple(values.shape)
    wanted = [size for size, axis in zip(found, axes, strict=False) if axis in ("token", "query", "key")]
    fits = len(found) == len(axes) and all(size == length for size in wanted)
    saved.expect(fits, name, f"axes {', '.join(axes)} for {length} tokens", found)
    saved.expect(bool(values.isfinite().all()), name, "finite numbers", "others")


def printable(text: str) -> str:
    """Control characters and line breaks would break a line of the terminal, or worse, the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def trim_map(name: str, values: Tensor, length: int) -> Tensor:
    """A map without padding, in the precision scores are kept in."""
    for axis, word in enumerate(MAP_AXES[name]):
        if word in ("token", "query", "key"):
            values = values.narrow(axis, 0, length)
    return keep_precision(values)


def keep_precision(values: Tensor) -> Tensor:
    """On the CPU; double stays double, everything else is float32."""
    return values.cpu().to(torch.float64 if values.dtype == torch.float64 else torch.float32, copy=True)


Found = TypeVar("Found", Explanation, list[Explanation])


class ExplanationList(list[Explanation]):
    """Of several texts."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)


class ExplanationDict(dict[str, Found]):
    """By method; of one text, or of several."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)
