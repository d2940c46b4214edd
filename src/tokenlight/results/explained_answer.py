"""The result for an answer: for each of its tokens, a score for every earlier token."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokenlight.common.errors import RefusedType, RefusedValue
from tokenlight.common.files import write_atomically
from tokenlight.common.notes import Note
from tokenlight.results import answer_parquet, saved
from tokenlight.results.answer_propagation import Form, largest_amplification, propagate
from tokenlight.results.explanation import PRESENTATION, Explanation, printable, read_saved
from tokenlight.results.units import DocumentTable
from tokenlight.text.documents import Documents, documents_from_plain, find_documents, plain_documents
from tokenlight.text.segmentation import Span, sentences
from tokenlight.text.tokenize import plain_text, read_text
from tokenlight.text.tokenized_text import Chat, Document, Section, TokenGroups, parts

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


TokenNumbers = int | slice | Sequence[int]


def select_sentence(sentences: Sequence[list[int]], number: int) -> list[int]:
    """The tokens of a sentence, by its number from 0, or from -1 backwards; other numbers are refused."""
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise RefusedType(f"sentence= is the number of a sentence, counted from 0; found {number!r}")
    if not -len(sentences) <= number < len(sentences):
        raise RefusedValue(f"there is no sentence {number}: the answer has {len(sentences)}, counted from 0")
    return sentences[number]


def select_tokens(tokens: TokenNumbers | None, count: int) -> list[int]:
    """The numbers of the named tokens in ascending order; numbers that the answer does not have are refused."""
    if isinstance(tokens, slice):
        return sorted(range(count)[tokens])
    numbers: list[Any] = (
        [tokens] if isinstance(tokens, Integral) else list(tokens) if isinstance(tokens, Iterable) else [tokens]
    )
    if wrong := [i for i in numbers if not isinstance(i, Integral) or isinstance(i, bool)]:
        raise RefusedType(f"tokens= is a number, a slice or a list of numbers, counted from 0; found {wrong[0]!r}")
    if outside := [i for i in numbers if not -count <= i < count]:
        raise RefusedValue(f"the answer has the tokens 0 to {count - 1}; found {outside[0]}")
    return sorted({int(i) % count for i in numbers})


AMPLIFICATION_NOTED = 20  # a larger amplification of scores by propagation is a note
FORMAT, VERSION = "tokenlight.explained_answer", 1


@dataclass(frozen=True)
class Alternative:
    """A token that the model could have generated in place of a token of the answer."""

    token: str
    index: int
    probability: float


@dataclass(frozen=True, eq=False)
class ExplainedAnswer(TokenGroups):
    """Why a language model generated an answer. Higher score = more support for the token of the row.

    Rows of the matrix are the answer's tokens; columns are all tokens, first those of the prompt, then those of the
    answer. In a token's row, the token itself and all later tokens have a score of 0.
    """

    prompt: str | Chat  # the input of the model
    answer: str  # what it generated, or the answer that was given
    tokens: list[str]  # of the prompt, then of the answer
    special: Tensor  # [token] bool: added by the tokenizer or a chat's template
    segments: list[int | None]  # 0: the prompt, or the number of its message; the last: the answer
    spans: list[Span]  # the characters of each token in the prompt or in the answer
    ids: tuple[int, ...]  # of the answer's tokens
    matrix: Tensor  # [token of the answer, token]
    numbers: Tensor  # [token of the answer] the explained number: its logit, or its logit minus the mean logit
    log_probabilities: Tensor  # [token of the answer] given all tokens before it
    alternatives: list[list[Alternative]]  # for each token of the answer, the most likely tokens in its place
    method: str  # its identifier
    options: Mapping[str, Any]  # of the method, and the explained quantity
    model: str  # its name or path
    task: str  # its name in transformers' pipelines
    signed: bool = True  # whether scores can be negative
    method_title: str = ""  # what papers call the method; "": no other name than its identifier is known
    method_caution: str = ""  # how readers may misunderstand its negative scores; "": nothing to warn of
    score_word: str = "score"  # what the explained numbers are called, such as "logit"
    documents: tuple[Document, ...] = ()  # named parts of the prompt
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # each [token of the answer]
    notes: tuple[str, ...] = ()  # facts that are needed to interpret the scores
    versions: Mapping[str, str] = field(default_factory=dict)  # of tokenlight, torch, transformers and Python
    fused: bool | None = None  # whether attention ran as one operation; None: not known
    # For evaluate() of its parts; not compared, not saved, not pickled and not copied.
    explainer: "Explainer | None" = field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompt, or its messages, and the answer."""
        return (*parts(self.prompt), self.answer)

    def __len__(self) -> int:
        """The number of tokens of the answer."""
        return len(self.ids)

    @property
    def prompt_length(self) -> int:
        """The number of tokens of the prompt."""
        return len(self.tokens) - len(self.ids)

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole answer, given the prompt."""
        return float(self.log_probabilities.sum())

    # Parts of the answer

    def total(self) -> Explanation:
        """The explanation of the whole answer, as a result for the prompt."""
        return self.of(tokens=slice(None))

    def of(
        self, text: str | None = None, *, tokens: TokenNumbers | None = None, sentence: int | None = None
    ) -> Explanation:
        """The explanation of a part of the answer: named by its text, its tokens, or the number of a sentence, from 0.

        The result has a score for each token of the prompt. The scores of the answer's own tokens are added up in
        `extras["answer_share"]`.
        """
        return self._explanation(self._selected(text, tokens, sentence))

    def _selected(self, text: str | None, tokens: TokenNumbers | None, sentence: int | None) -> list[int]:
        """The numbers of the answer's tokens in a part, from 0; exactly one argument has to name the part."""
        if sum(argument is not None for argument in (text, tokens, sentence)) != 1:
            raise RefusedValue("name a part of the answer in one way: its text, tokens=... or sentence=...")
        if text is not None:
            selected = self._tokens_of_phrase(text)
        elif sentence is not None:
            selected = select_sentence(self.sentences(), sentence)
        else:
            selected = select_tokens(tokens, len(self))
        if not selected:
            raise RefusedValue("no token of the answer is named")
        return selected

    def _tokens_of_phrase(self, phrase: str) -> list[int]:
        """The answer's tokens that have characters of a phrase, which has to occur in the answer exactly once."""
        if not isinstance(phrase, str):
            raise RefusedType(f"a part of the answer is named by its text; found {phrase!r}: name tokens with tokens=")
        occurrences = self.find(phrase, segment=self._answer_segment)
        if len(occurrences) != 1:
            raise RefusedValue(
                f"{phrase!r} occurs {len(occurrences)} times in the answer {self.answer!r}: name its tokens instead"
            )
        return [token - self.prompt_length for token in self.tokens_touching(*occurrences[0])]

    def sentences(self) -> list[list[int]]:
        """The numbers of the answer's tokens, from 0, by sentence; an answer without characters is one sentence."""
        return [[token - self.prompt_length for token in sentence.tokens] for sentence in self._answer_sentences()]

    def _answer_sentences(self) -> list[Section]:
        return self.divide(sentences, segments=[self._answer_segment], keep_special=True)

    @property
    def _answer_segment(self) -> int:
        return len(self.texts) - 1

    def _explanation(self, chosen: list[int]) -> Explanation:
        """The explanation of the tokens `chosen` of the answer, added up."""
        length, scores = self.prompt_length, self.matrix[chosen].sum(0)
        ids = tuple(self.ids[i] for i in chosen)
        first, last = self.spans[length + chosen[0]][0], self.spans[length + chosen[-1]][1]
        contiguous = chosen == list(range(chosen[0], chosen[-1] + 1))
        words = self.answer[first:last] if contiguous else " … ".join(self.tokens[length + i] for i in chosen)
        extras = {name: float(values[chosen].sum()) for name, values in self.extras.items()}
        return Explanation(
            text=self.prompt,
            tokens=self.tokens[:length],
            scores=scores[:length].clone(),
            special=self.special[:length],
            segments=self.segments[:length],
            spans=self.spans[:length],
            score=float(self.numbers[chosen].sum()),
            target=words or self.tokens[length + chosen[0]],
            foil=None,
            prediction=self.alternatives[chosen[0]][0].token,
            probability=self.alternatives[chosen[0]][0].probability,
            method=self.method,
            options=self.options,
            task=self.task,
            model=self.model,
            signed=self.signed,
            method_title=self.method_title,
            method_caution=self.method_caution,
            score_word=self.score_word,
            documents=self.documents,
            indices=ids if contiguous else (),  # tokens with others between them have no joint probability
            given=self.ids[: chosen[0]],
            extras={**extras, "answer_share": float(scores[length:].sum())},
            notes=self.notes,
            versions=self.versions,
            fused=self.fused,
            explainer=self.explainer,
        )

    def by_document(self, documents: Documents | None = None) -> DocumentTable:
        """A score for each sentence of the answer and each document of the prompt.

        Without `documents`, these are the documents that the answer was explained with, or else the prompt's sentences.
        """
        own = find_documents(self.prompt, documents) if documents is not None else self.documents
        answer = replace(self, documents=own or find_documents(self.prompt, "sentences"))
        parts = zip((section.span for section in self._answer_sentences()), self.sentences(), strict=True)
        rows = [(span, answer.of(tokens=tokens).by_document()) for span, tokens in parts if tokens]
        return DocumentTable.of(self.answer, [span for span, _ in rows], [passages for _, passages in rows])

    def through(self, form: Form = "exact", *, hops: int | None = None) -> "ExplainedAnswer":
        """The same answer with the scores of its own tokens propagated to the prompt.

        A score of an answer token is distributed like the token's own row, until only tokens of the prompt have scores.
        "exact" keeps the sum of every row, signs included. "cage" and "flashtrace" are published forms that use only
        positive parts, as shares of 1: CAGE (2025) works token by token; FlashTrace (2026) works on whole sentences and
        propagates to earlier ones `hops` times (default: 1).
        """
        sentences = [(tokens[0], tokens[-1] + 1) for tokens in self.sentences() if tokens]
        matrix = propagate(self.matrix, self.prompt_length, form, sentences, hops)
        passed_on = f"scores of earlier tokens of the answer were passed on to the prompt ({form})"
        notes = [*self.notes, Note("passed_on", passed_on)]
        if (
            form == "exact"
            and (times := largest_amplification(self.matrix, matrix, self.prompt_length)) > AMPLIFICATION_NOTED
        ):
            cancel = (
                f"the scores of a token that were passed on nearly cancel: up to {times:.0f} times their sum went to "
                "the prompt, with both signs; the form 'cage' is more stable"
            )
            notes.append(Note("scores_cancel", cancel))
        return replace(self, matrix=matrix, signed=self.signed and form == "exact", notes=tuple(notes))

    # Views and files

    def show(self) -> None:
        """Print the answer with the strongest documents and words of each sentence; in a notebook, show it as HTML."""
        from tokenlight.views.terminal import show_answer

        show_answer(self)

    def to_html(self) -> str:
        """A standalone HTML page: selecting a part of the answer shades the tokens that it depends on."""
        from tokenlight.views.answer_page import answer_page

        return answer_page(self)

    def _repr_html_(self) -> str:
        from tokenlight.views.answer_page import answer_frame

        return answer_frame(self)

    def to_latex(
        self, text: str | None = None, *, tokens: TokenNumbers | None = None, sentence: int | None = None
    ) -> str:
        """Prompt and answer with shaded words as LaTeX, for the whole answer or a part of it, named as in `of`."""
        from tokenlight.views.latex import answer_latex

        return answer_latex(self, self._selected_or_all(text, tokens, sentence))

    def save_figure(
        self,
        path: str | Path,
        text: str | None = None,
        *,
        tokens: TokenNumbers | None = None,
        sentence: int | None = None,
    ) -> None:
        """Save prompt and answer with shaded words as PNG, SVG or PDF, depending on the ending of the name."""
        from tokenlight.views.answer_figure import answer_figure
        from tokenlight.views.drawing import save

        save(answer_figure(self, self._selected_or_all(text, tokens, sentence)), path)

    def _selected_or_all(self, text: str | None, tokens: TokenNumbers | None, sentence: int | None) -> list[int]:
        is_part = any(argument is not None for argument in (text, tokens, sentence))
        return self._selected(text, tokens, sentence) if is_part else list(range(len(self)))

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain dicts, lists, strings and numbers."""
        plain = {name: getattr(self, name) for name in saved_fields()}
        plain |= {name: value.tolist() for name, value in plain.items() if isinstance(value, Tensor)}
        plain |= {
            "dtype": str(self.matrix.dtype).removeprefix("torch."),
            "spans": [list(span) for span in self.spans],
            "ids": list(self.ids),
            "prompt": plain_text(self.prompt),
            "documents": plain_documents(self.documents),
            "alternatives": [[vars(token) for token in tokens] for tokens in self.alternatives],
            "options": json.loads(json.dumps(dict(self.options))),  # tuples become lists
            "extras": {name: values.tolist() for name, values in self.extras.items()},
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
        return {"format": FORMAT, "version": VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "ExplainedAnswer":
        """The inverse of `to_dict`."""
        later = {"documents": [], "method_title": "", "method_caution": "", "score_word": "score"}  # not in older files
        fields, dtype = read_saved(plain, "answer", FORMAT, VERSION, saved_fields(), later)
        with saved.converting("answer"):
            return cls._from_fields(fields, dtype)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], dtype: torch.dtype) -> "ExplainedAnswer":
        """The answer from the saved values of its fields; inconsistent values are refused."""
        check_saved(fields)
        tensors = ("matrix", "numbers", "log_probabilities")
        fields |= {name: saved.read_tensor(name, fields[name], dtype) for name in tensors}
        fields |= {
            "special": torch.tensor(fields["special"], dtype=torch.bool),
            "spans": [tuple(span) for span in fields["spans"]],
            "ids": tuple(fields["ids"]),
            "prompt": read_text(fields["prompt"]),
            "documents": documents_from_plain(fields["documents"]),
            "alternatives": [[Alternative(**token) for token in tokens] for tokens in fields["alternatives"]],
            "extras": {name: saved.read_tensor(name, values, dtype) for name, values in fields["extras"].items()},
            "notes": tuple(fields["notes"]),
        }
        return cls(**fields)

    def save(self, path: str | Path) -> None:
        """Save to a file for `tokenlight.ExplainedAnswer.load`: Parquet if its name ends in .parquet, else JSON."""
        plain, file = self.to_dict(), Path(path)
        if file.suffix == answer_parquet.ENDING:
            answer_parquet.write_parquet(plain, file)
        else:
            write_atomically(file, json.dumps(plain, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "ExplainedAnswer":
        """Read a file that `save` has written."""
        file = Path(path)
        if file.suffix == answer_parquet.ENDING:
            return cls.from_dict(answer_parquet.read_parquet(file))
        return cls.from_dict(saved.read_json(file, "answer"))

    def __getstate__(self) -> dict[str, Any]:
        """The state of copies and pickles, without the model."""
        return {**self.__dict__, "explainer": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExplainedAnswer) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        beginning = printable(self.answer if len(self.answer) <= 60 else self.answer[:57] + "...")
        return f"<ExplainedAnswer {beginning!r} by {self.method}: {len(self)} tokens, from {self.prompt_length}>"


def saved_fields() -> list[str]:
    """The names of the fields that are saved."""
    return [field.name for field in fields(ExplainedAnswer) if field.name != "explainer"]


def check_saved(fields: Mapping[str, Any]) -> None:
    """Refuse saved values of a wrong type or length, and numbers that are not finite."""
    prompt = read_text(fields["prompt"])
    saved.expect(isinstance(prompt, str | Chat), "prompt", "a text or messages", fields["prompt"])
    saved.check_texts(fields, ("answer", "method", "model", "task", *PRESENTATION))
    saved.check_mappings(fields, ("options", "extras", "versions"))
    count = saved.check_tokens(fields, (*parts(prompt), fields["answer"]))
    length = len(fields["ids"])
    saved.expect(0 < length < count, "ids", f"1 to {count - 1} tokens of the answer", length)
    saved.check_list(fields, "ids", length, saved.is_whole, "a whole number")
    for name in ("numbers", "log_probabilities"):
        saved.check_list(fields, name, length, saved.is_finite, "a finite number")
    saved.check_list(fields, "matrix", length, lambda row: isinstance(row, list), "a list for each token of the answer")
    for number, row in enumerate(fields["matrix"]):
        saved.check_list(
            {f"matrix, row {number}": row}, f"matrix, row {number}", count, saved.is_finite, "a finite number"
        )
    saved.check_list(fields, "alternatives", length, lambda tokens: isinstance(tokens, list), "a list of tokens")
    for name, values in fields["extras"].items():
        saved.check_list({name: values}, name, length, lambda value: isinstance(value, int | float), "a number")
    saved.expect(isinstance(fields["signed"], bool), "signed", "true or false", fields["signed"])
    saved.check_optional(fields, ("fused",), lambda value: isinstance(value, bool), "true or false")
    saved.check_list(fields, "notes", len(fields["notes"]), lambda note: isinstance(note, str), "a text")
