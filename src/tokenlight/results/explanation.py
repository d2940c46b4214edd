"""The result for a text: a score for every token, and the fields that interpret it; lists and dicts of results."""

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
PRESENTATION = ("method_title", "method_caution", "score_word")  # fields that are only read by views
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
    """Scores of how much each token of a text supports the target. Higher score = more support."""

    text: Text  # the explained input: a text, a pair, or a chat
    tokens: list[str]  # as the tokenizer writes them, special tokens included
    scores: Tensor  # [token]: how important each token is for the target; if `signed`, negative scores speak against it
    special: Tensor  # [token] bool: added by the tokenizer or a chat's template
    segments: list[
        int | None
    ]  # the text of a pair or the message of a chat for each token; None: added by the tokenizer
    spans: list[Span]  # the characters of each token in its segment
    score: float  # the explained number: a logit, or a difference of two
    target: str  # name of the explained output
    foil: str | None  # name of the output that the target is compared with
    prediction: str  # the model's prediction
    probability: float | None  # of the prediction; None if the model computes none
    method: str  # its identifier
    options: Mapping[str, Any]  # of the method
    task: str  # its name in transformers' pipelines
    model: str  # its name or path
    signed: bool = True  # whether scores can be negative
    method_title: str = ""  # what papers call the method; "": no other name than its identifier is known
    method_caution: str = ""  # how readers may misunderstand its negative scores; "": nothing to warn of
    score_word: str = "score"  # what the explained number is called, such as "logit"
    position: int | None = None  # the token whose output is explained, in models with an output for every token
    indices: tuple[int, ...] = ()  # the target in indices: a label, token ids, or the first and last token of a span
    foil_indices: tuple[int, ...] = ()  # the foil in indices
    documents: tuple[Document, ...] = ()  # named parts of the text
    given: tuple[int, ...] = ()  # token ids between the text and a target that is a later part of an answer
    extras: Mapping[str, float] = field(default_factory=dict)  # further numbers, such as a residual
    maps: Mapping[str, Tensor] = field(default_factory=dict)  # further tensors, selected by detail=; axes in MAP_AXES
    notes: tuple[str, ...] = ()  # facts that are needed to interpret the scores, such as truncation
    versions: Mapping[str, str] = field(default_factory=dict)  # of tokenlight, torch, transformers and Python
    fused: bool | None = None  # whether attention ran as one operation, without its weights; None: not known
    # For evaluate(); not compared, not saved, not pickled and not copied.
    explainer: "Explainer | None" = field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, the two texts of a pair, or the messages of a chat."""
        return parts(self.text)

    def words(self) -> list[Word]:
        """Words of the original text with the sums of their tokens' scores, special tokens included."""
        scores, errors = self.scores.tolist(), self.maps.get("standard_error")
        words = []
        for group in self.units("words", keep_special=True):
            error = None if errors is None else float(errors[list(group)].square().sum().sqrt())
            score, special = sum(scores[i] for i in group), bool(self.special[group[0]])
            segment, span = self.segments[group[0]], self.span_of(group)
            words.append(Word(self.text_of(group), score, tuple(group), special, segment, span, error))
        return words

    def sentences(self) -> list[Passage]:
        """Sentences of the original text with the sums of their tokens' scores, without special tokens."""
        return self._passages(sentences)

    def paragraphs(self) -> list[Passage]:
        """Paragraphs (separated by blank lines) with the sums of their tokens' scores, without special tokens."""
        return self._passages(paragraphs)

    def strongest(self, k: int = 5) -> list[Passage]:
        """The k sentences with the largest absolute scores."""
        return sorted(self.sentences(), key=lambda sentence: -abs(sentence.score))[:k]

    def _passages(self, split: Callable[[str], list[Span]]) -> list[Passage]:
        """The parts into which `split` divides the texts, with the sums of their tokens' scores."""
        texts, scores = self.texts, self.scores.tolist()
        return [
            Passage(
                texts[segment][slice(*span)].strip(),
                sum(scores[token] for token in tokens),
                tuple(tokens),
                segment,
                span,
            )
            for segment, span, tokens in self.divide(split)
            if tokens
        ]

    def turns(self) -> list[Passage]:
        """The messages of a chat, or the texts of other inputs, with the sums of their tokens' scores."""
        return passages_of(self, find_documents(self.text, "turns"))

    def by_document(self) -> list[Passage]:
        """The documents, then groups of all other tokens and the answer's share; their scores add up to the total."""
        return [*passages_of(self, self.documents), *remainder(self)]

    def top(self, k: int = 5) -> list[Word]:
        """The k words with the highest scores, without special tokens and line breaks."""
        return sorted((word for word in self.words() if word.counts), key=lambda word: -word.score)[:k]

    def show(self) -> None:
        """Print the text with its scores, in color if the terminal has colors; in a notebook, show it as HTML."""
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
        """The explanation as plain dicts, lists, strings and numbers."""
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
            "options": json.loads(json.dumps(dict(self.options))),  # tuples become lists
            "extras": dict(self.extras),
            "maps": {name: values.tolist() for name, values in self.maps.items()},
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
        return {"format": FORMAT, "version": VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Explanation":
        """The inverse of `to_dict`."""
        defaults = {  # older files have none
            "given": [],
            "documents": [],
            "method_title": "",
            "method_caution": "",
            "score_word": "score",
        }
        fields, dtype = read_saved(plain, "explanation", FORMAT, VERSION, saved_fields(), defaults)
        with saved.converting("explanation"):
            return cls._from_fields(fields, dtype)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], dtype: torch.dtype) -> "Explanation":
        """The explanation from the saved values of its fields; inconsistent values are refused."""
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
        """Save as a JSON file for `tokenlight.Explanation.load`."""
        write_atomically(path, json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Explanation":
        """Read a file that `save` has written."""
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
        """The values of metrics for this result: {metric: value}. `tokenlight.evaluate` does the same for lists.

        A result that was loaded from a file has no model: give the `explainer`.
        """
        from tokenlight.metrics.evaluate import DEFAULT_METRICS, evaluate

        explainer = explainer or self.explainer
        if explainer is None:
            raise RefusedValue("this result does not know its model: call evaluate(explainer=tokenlight.load(...))")
        (values,) = evaluate(
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
        return values

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a row for each token."""
        with from_extra("pandas", "to_pandas"):
            import pandas
        starts, ends = zip(*self.spans, strict=True)
        columns = {"token": self.tokens, "score": self.scores.tolist(), "special": self.special.tolist()}
        return pandas.DataFrame({**columns, "segment": self.segments, "start": starts, "end": ends})

    def __getstate__(self) -> dict[str, Any]:
        """The state of copies and pickles, without the model."""
        return {**self.__dict__, "explainer": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        top = ", ".join(f"{printable(word.text)} {word.score:+.3g}" for word in self.top(3))
        return f"<Explanation of {self.target!r} by {self.method}: {top}>"


def saved_fields() -> list[str]:
    """The names of the fields that are saved."""
    return [field.name for field in fields(Explanation) if field.name != "explainer"]


def read_saved(
    plain: Mapping[str, Any],
    kind: str,
    format: str,
    version: int,
    names: Sequence[str],
    defaults: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], torch.dtype]:
    """The values of fields of a saved result, and its precision; `defaults` are for fields that older files lack."""
    found_format = plain.get("format") if isinstance(plain, Mapping) else type(plain).__name__
    if found_format != format:
        raise RefusedValue(f"this is not a saved {kind}: expected format {format!r}, found {found_format!r}")
    saved.check_version(plain.get("version"), version)
    fields = {**(defaults or {}), **plain}
    if differing := {"format", "version", "dtype", *names} ^ set(fields):
        raise RefusedValue(saved.damaged(kind, f"missing or unknown {', '.join(sorted(map(str, differing)))}"))
    if fields["dtype"] not in saved.DTYPES:
        raise RefusedValue(saved.damaged(kind, f"dtype: expected one of {', '.join(saved.DTYPES)}"))
    return {name: fields[name] for name in names}, getattr(torch, fields["dtype"])


def check_saved(fields: Mapping[str, Any]) -> None:
    """Refuse saved values of a wrong type or length, and numbers that are not finite."""
    text = read_text(fields["text"])
    is_text = isinstance(text, Chat | str) or (len(text) == 2 and all(isinstance(part, str) for part in text))
    saved.expect(is_text, "text", "a text, two texts or messages", fields["text"])
    saved.check_texts(fields, ("target", "prediction", "method", "task", "model", *PRESENTATION))
    saved.check_mappings(fields, ("options", "extras", "maps", "versions"))
    count = saved.check_tokens(fields, parts(text))
    saved.check_list(fields, "scores", count, saved.is_finite, "a finite number")
    saved.expect(saved.is_finite(fields["score"]), "score", "a finite number", fields["score"])
    saved.expect(isinstance(fields["signed"], bool), "signed", "true or false", fields["signed"])
    saved.check_optional(fields, ("foil",), lambda value: isinstance(value, str), "a text")
    saved.check_optional(fields, ("probability",), saved.is_probability, "a number from 0 to 1")
    saved.check_optional(fields, ("position",), saved.is_whole, "a whole number")
    saved.check_optional(fields, ("fused",), lambda value: isinstance(value, bool), "true or false")
    for name in ("indices", "foil_indices", "given"):
        saved.check_list(fields, name, len(fields[name]), saved.is_whole, "a whole number")
    saved.check_list(fields, "notes", len(fields["notes"]), lambda note: isinstance(note, str), "a text")


def check_map(name: str, values: Tensor, length: int) -> None:
    """Refuse a map of another name, with other axes or with numbers that are not finite."""
    saved.expect(name in MAP_AXES, "maps", f"some of {', '.join(MAP_AXES)}", name)
    axes, shape = MAP_AXES[name], tuple(values.shape)
    token_axes = [size for size, axis in zip(shape, axes, strict=False) if axis in ("token", "query", "key")]
    fits = len(shape) == len(axes) and all(size == length for size in token_axes)
    saved.expect(fits, name, f"axes {', '.join(axes)} for {length} tokens", shape)
    saved.expect(bool(values.isfinite().all()), name, "finite numbers", "others")


def printable(text: str) -> str:
    """The text with blanks in place of control characters and line breaks, for one line of a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def trim_map(name: str, values: Tensor, length: int) -> Tensor:
    """A map without padding, on the CPU, in the precision of saved scores."""
    for axis, axis_name in enumerate(MAP_AXES[name]):
        if axis_name in ("token", "query", "key"):
            values = values.narrow(axis, 0, length)
    return keep_precision(values)


def keep_precision(values: Tensor) -> Tensor:
    """A copy on the CPU: float64 stays float64, other types become float32."""
    return values.cpu().to(torch.float64 if values.dtype == torch.float64 else torch.float32, copy=True)


ResultT = TypeVar("ResultT", Explanation, list[Explanation])


class ExplanationList(list[Explanation]):
    """Explanations of several texts."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)


class ExplanationDict(dict[str, ResultT]):
    """Explanations by method, of one text or of several."""

    def _repr_html_(self) -> str:
        from tokenlight.views.html import overview

        return overview(self)
