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
from tokenlight.results.answer_propagation import Form, hand_on, magnified
from tokenlight.results.explanation import PRESENTATION, Explanation, printable, read_saved
from tokenlight.results.units import DocumentTable
from tokenlight.text.documents import Documents, documents_from_plain, find_documents, plain_documents
from tokenlight.text.segmentation import Span, sentences
from tokenlight.text.tokenize import plain_text, read_text
from tokenlight.text.tokenized_text import Chat, Document, Section, TokenGroups, parts

if TYPE_CHECKING:
    from tokenlight.explain.explainer import Explainer


TokenNumbers = int | slice | Sequence[int]


def pick_sentence(sentences: Sequence[list[int]], number: int) -> list[int]:
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise RefusedType(f"sentence= is the number of a sentence, counted from 0; found {number!r}")
    if not -len(sentences) <= number < len(sentences):
        raise RefusedValue(f"there is no sentence {number}: the answer has {len(sentences)}, counted from 0")
    return sentences[number]


def choose(tokens: TokenNumbers | None, count: int) -> list[int]:
    """In order."""
    if isinstance(tokens, slice):
        return sorted(range(count)[tokens])
    wanted: list[Any] = (
        [tokens] if isinstance(tokens, Integral) else list(tokens) if isinstance(tokens, Iterable) else [tokens]
    )
    if wrong := [i for i in wanted if not isinstance(i, Integral) or isinstance(i, bool)]:
        raise RefusedType(f"tokens= is a number, a slice or a list of numbers, counted from 0; found {wrong[0]!r}")
    if outside := [i for i in wanted if not -count <= i < count]:
        raise RefusedValue(f"the answer has the tokens 0 to {count - 1}; found {outside[0]}")
    return sorted({int(i) % count for i in wanted})


MAGNIFIED = 20  # times what was taken: more than that is said
FORMAT, VERSION = "tokenlight.explained_answer", 1


@dataclass(frozen=True)
class Alternative:
    """A token that the model might have written instead."""

    token: str
    index: int
    probability: float


@dataclass(frozen=True, eq=False)
class ExplainedAnswer(TokenGroups):
    """Why a language model wrote an answer. Higher score = more support for the token in question.

    Rows of the matrix are the answer's tokens; columns are all tokens, first those of the prompt, then those of the
    answer. In a token's row, the token itself and everything after it have a score of 0.
    """

    prompt: str | Chat  # what the model read
    answer: str  # what it wrote, or the answer that was given
    tokens: list[str]  # of the prompt, then of the answer
    special: Tensor  # [token] bool: added by the tokenizer or a chat's template
    segments: list[int | None]  # 0: the prompt, or the number of its message; the last: the answer
    spans: list[Span]  # of each token: its characters in the prompt or in the answer
    ids: tuple[int, ...]  # of the answer's tokens
    matrix: Tensor  # [token of the answer, token]
    numbers: Tensor  # [token of the answer] what is explained: its logit, or that minus the mean of all
    log_probabilities: Tensor  # [token of the answer] given everything before it
    alternatives: list[list[Alternative]]  # for each token of the answer, the most likely tokens in its place
    method: str  # its identifier
    options: Mapping[str, Any]  # of the method, and which number was explained
    model: str  # its name or path
    task: str  # as transformers' pipelines call it
    signed: bool = True  # whether scores can be negative
    method_title: str = ""  # what papers call the method; "": no other name than its identifier is known
    method_caution: str = ""  # how readers may misunderstand its negative scores; "": nothing to warn of
    score_word: str = "score"  # what the explained numbers are called, such as "logit"
    documents: tuple[Document, ...] = ()  # the parts of the prompt that were named as such
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # each [token of the answer]
    notes: tuple[str, ...] = ()  # what a reader should know
    versions: Mapping[str, str] = field(default_factory=dict)  # of tokenlight, torch, transformers and Python
    fused: bool | None = None  # whether attention ran as one operation; None: not known
    # For evaluate() of its parts; not compared, not saved, and not taken along by copies and pickles.
    explainer: "Explainer | None" = field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompt, or its messages, and the answer."""
        return (*parts(self.prompt), self.answer)

    def __len__(self) -> int:
        """Tokens of the answer."""
        return len(self.ids)

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.tokens) - len(self.ids)

    @property
    def log_probability(self) -> float:
        """Of the whole answer, given the prompt."""
        return float(self.log_probabilities.sum())

    # Parts of the answer

    def total(self) -> Explanation:
        """Why the whole answer?"""
        return self.of(tokens=slice(None))

    def of(
        self, text: str | None = None, *, tokens: TokenNumbers | None = None, sentence: int | None = None
    ) -> Explanation:
        """Why this part of the answer? Named by its text, its tokens, or the number of a sentence, from 0.

        The result is an explanation of the prompt. What earlier tokens of the answer contributed is its
        `extras["answer_share"]`.
        """
        return self._explanation(self._chosen(text, tokens, sentence))

    def _chosen(self, text: str | None, tokens: TokenNumbers | None, sentence: int | None) -> list[int]:
        """The answer's tokens of a part, counted from 0; the part is named in one of three ways."""
        if sum(choice is not None for choice in (text, tokens, sentence)) != 1:
            raise RefusedValue("name a part of the answer in one way: its text, tokens=... or sentence=...")
        if text is not None:
            chosen = self._tokens_of_phrase(text)
        elif sentence is not None:
            chosen = pick_sentence(self.sentences(), sentence)
        else:
            chosen = choose(tokens, len(self))
        if not chosen:
            raise RefusedValue("no token of the answer is named")
        return chosen

    def _tokens_of_phrase(self, phrase: str) -> list[int]:
        """The answer's tokens that have characters of a phrase, which stands in the answer exactly once."""
        if not isinstance(phrase, str):
            raise RefusedType(f"a part of the answer is named by its text; found {phrase!r}: name tokens with tokens=")
        places = self.find(phrase, segment=self._answer_segment)
        if len(places) != 1:
            raise RefusedValue(
                f"{phrase!r} occurs {len(places)} times in the answer {self.answer!r}: name its tokens instead"
            )
        return [token - self.prompt_length for token in self.tokens_touching(*places[0])]

    def sentences(self) -> list[list[int]]:
        """The answer's tokens, counted from 0, sentence by sentence; an answer without characters is one sentence."""
        return [[token - self.prompt_length for token in sentence.tokens] for sentence in self._answer_sentences()]

    def _answer_sentences(self) -> list[Section]:
        return self.divide(sentences, segments=[self._answer_segment], keep_special=True)

    @property
    def _answer_segment(self) -> int:
        return len(self.texts) - 1

    def _explanation(self, chosen: list[int]) -> Explanation:
        length, rows = self.prompt_length, self.matrix[chosen].sum(0)
        ids = tuple(self.ids[i] for i in chosen)
        first, last = self.spans[length + chosen[0]][0], self.spans[length + chosen[-1]][1]
        together = chosen == list(range(chosen[0], chosen[-1] + 1))
        words = self.answer[first:last] if together else " … ".join(self.tokens[length + i] for i in chosen)
        extras = {name: float(values[chosen].sum()) for name, values in self.extras.items()}
        return Explanation(
            text=self.prompt,
            tokens=self.tokens[:length],
            scores=rows[:length].clone(),
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
            indices=ids if together else (),  # tokens with others between them have no probability of their own
            given=self.ids[: chosen[0]],
            extras={**extras, "answer_share": float(rows[length:].sum())},
            notes=self.notes,
            versions=self.versions,
            fused=self.fused,
            explainer=self.explainer,
        )

    def by_document(self, documents: Documents | None = None) -> DocumentTable:
        """Which passage made the model say this sentence? A score for each sentence of the answer and each source.

        Without `documents`, the sources are those that the answer was explained with, or else the prompt's sentences.
        """
        found = find_documents(self.prompt, documents) if documents is not None else self.documents
        known = replace(self, documents=found or find_documents(self.prompt, "sentences"))
        cut = zip((section.span for section in self._answer_sentences()), self.sentences(), strict=True)
        rows = [(span, known.of(tokens=tokens).by_document()) for span, tokens in cut if tokens]
        return DocumentTable.of(self.answer, [span for span, _ in rows], [row for _, row in rows])

    def through(self, form: Form = "exact", *, hops: int | None = None) -> "ExplainedAnswer":
        """The same answer with the scores of its own tokens passed on to the prompt.

        What a token of the answer received is distributed as in its own row, until everything has reached the prompt.
        "exact" keeps the sum of every row, signs included. "cage" and "flashtrace" are published forms that use only
        positive parts, as shares of 1: CAGE (2025) works token by token; FlashTrace (2026) works on whole sentences and
        goes back to earlier ones `hops` times (default: 1).
        """
        sentences = [(tokens[0], tokens[-1] + 1) for tokens in self.sentences() if tokens]
        found = hand_on(self.matrix, self.prompt_length, form, sentences, hops)
        passed_on = f"what earlier tokens of the answer took was handed on to the prompt ({form})"
        notes = [*self.notes, Note("passed_on", passed_on)]
        if form == "exact" and (times := magnified(self.matrix, found, self.prompt_length)) > MAGNIFIED:
            cancel = (
                f"the scores of a token that was handed on nearly cancel, so that up to {times:.0f} times what it took "
                "went to the prompt, with both signs: the form 'cage' is steadier"
            )
            notes.append(Note("scores_cancel", cancel))
        return replace(self, matrix=found, signed=self.signed and form == "exact", notes=tuple(notes))

    # Looking at it, and keeping it

    def show(self) -> None:
        """Print the answer, and under each sentence what made the model write it; in a notebook, show it as HTML."""
        from tokenlight.views.terminal import show_answer

        show_answer(self)

    def to_html(self) -> str:
        """A standalone HTML page: select a part of the answer, and what made the model write it lights up."""
        from tokenlight.views.answer_page import answer_page

        return answer_page(self)

    def _repr_html_(self) -> str:
        from tokenlight.views.answer_page import answer_frame

        return answer_frame(self)

    def to_latex(
        self, text: str | None = None, *, tokens: TokenNumbers | None = None, sentence: int | None = None
    ) -> str:
        """Prompt and answer with shaded words, for the whole answer or for a part of it, named as in `of`."""
        from tokenlight.views.latex import answer_latex

        return answer_latex(self, self._chosen_or_all(text, tokens, sentence))

    def save_figure(
        self,
        path: str | Path,
        text: str | None = None,
        *,
        tokens: TokenNumbers | None = None,
        sentence: int | None = None,
    ) -> None:
        """The same as PNG, SVG or PDF, depending on the ending of the name."""
        from tokenlight.views.answer_figure import answer_figure
        from tokenlight.views.drawing import save

        save(answer_figure(self, self._chosen_or_all(text, tokens, sentence)), path)

    def _chosen_or_all(self, text: str | None, tokens: TokenNumbers | None, sentence: int | None) -> list[int]:
        named = any(choice is not None for choice in (text, tokens, sentence))
        return self._chosen(text, tokens, sentence) if named else list(range(len(self)))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers."""
        plain = {name: getattr(self, name) for name in saved_fields()}
        plain |= {name: value.tolist() for name, value in plain.items() if isinstance(value, Tensor)}
        plain |= {
            "dtype": str(self.matrix.dtype).removeprefix("torch."),
            "spans": [list(span) for span in self.spans],
            "ids": list(self.ids),
            "prompt": plain_text(self.prompt),
            "documents": plain_documents(self.documents),
            "alternatives": [[vars(one) for one in some] for some in self.alternatives],
            "options": json.loads(json.dumps(dict(self.options))),  # tuples are lists there
            "extras": {name: values.tolist() for name, values in self.extras.items()},
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
        return {"format": FORMAT, "version": VERSION, **plain}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "ExplainedAnswer":
        """The inverse of `to_dict`."""
        later = {"documents": [], "method_title": "", "method_caution": "", "score_word": "score"}  # not in older files
        kept, dtype = read_saved(plain, "answer", FORMAT, VERSION, saved_fields(), later)
        with saved.converting("answer"):
            return cls._from_fields(kept, dtype)

    @classmethod
    def _from_fields(cls, kept: dict[str, Any], dtype: torch.dtype) -> "ExplainedAnswer":
        """What a file held; what is inconsistent in it is an error."""
        check_saved(kept)
        tensors = ("matrix", "numbers", "log_probabilities")
        kept |= {name: saved.read_tensor(name, kept[name], dtype) for name in tensors}
        kept |= {
            "special": torch.tensor(kept["special"], dtype=torch.bool),
            "spans": [tuple(span) for span in kept["spans"]],
            "ids": tuple(kept["ids"]),
            "prompt": read_text(kept["prompt"]),
            "documents": documents_from_plain(kept["documents"]),
            "alternatives": [[Alternative(**one) for one in some] for some in kept["alternatives"]],
            "extras": {name: saved.read_tensor(name, values, dtype) for name, values in kept["extras"].items()},
            "notes": tuple(kept["notes"]),
        }
        return cls(**kept)

    def save(self, path: str | Path) -> None:
        """A file that `tokenlight.ExplainedAnswer.load` reads back: Parquet if its name ends in .parquet, else JSON."""
        plain, file = self.to_dict(), Path(path)
        if file.suffix == answer_parquet.ENDING:
            answer_parquet.write_parquet(plain, file)
        else:
            write_atomically(file, json.dumps(plain, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "ExplainedAnswer":
        """Read what `save` wrote."""
        file = Path(path)
        if file.suffix == answer_parquet.ENDING:
            return cls.from_dict(answer_parquet.read_parquet(file))
        return cls.from_dict(saved.read_json(file, "answer"))

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do not take the model along."""
        return {**self.__dict__, "explainer": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExplainedAnswer) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        begins = printable(self.answer if len(self.answer) <= 60 else self.answer[:57] + "...")
        return f"<ExplainedAnswer {begins!r} by {self.method}: {len(self)} tokens, from {self.prompt_length}>"


def saved_fields() -> list[str]:
    return [one.name for one in fields(ExplainedAnswer) if one.name != "explainer"]


def check_saved(kept: Mapping[str, Any]) -> None:
    """Types, lengths and numbers of what a file held."""
    prompt = read_text(kept["prompt"])
    saved.expect(isinstance(prompt, str | Chat), "prompt", "a text or messages", kept["prompt"])
    saved.check_texts(kept, ("answer", "method", "model", "task", *PRESENTATION))
    saved.check_mappings(kept, ("options", "extras", "versions"))
    count = saved.check_tokens(kept, (*parts(prompt), kept["answer"]))
    length = len(kept["ids"])
    saved.expect(0 < length < count, "ids", f"1 to {count - 1} tokens of the answer", length)
    saved.check_list(kept, "ids", length, saved.is_whole, "a whole number")
    for name in ("numbers", "log_probabilities"):
        saved.check_list(kept, name, length, saved.is_finite, "a finite number")
    saved.check_list(kept, "matrix", length, lambda row: isinstance(row, list), "a list for each token of the answer")
    for number, row in enumerate(kept["matrix"]):
        saved.check_list(
            {f"matrix, row {number}": row}, f"matrix, row {number}", count, saved.is_finite, "a finite number"
        )
    saved.check_list(kept, "alternatives", length, lambda some: isinstance(some, list), "a list of tokens")
    for name, values in kept["extras"].items():
        saved.check_list({name: values}, name, length, lambda one: isinstance(one, int | float), "a number")
    saved.expect(isinstance(kept["signed"], bool), "signed", "true or false", kept["signed"])
    saved.check_optional(kept, ("fused",), lambda one: isinstance(one, bool), "true or false")
    saved.check_list(kept, "notes", len(kept["notes"]), lambda one: isinstance(one, str), "a text")
