"""ALTI's agreement task: the verb of a sentence is masked, and a model with two outputs says singular or plural.

Sentences come from the LGD file of Goldberg (2019), which was made from the data of Linzen et al. (2016): number of
attractors, sentence, masked sentence, verb, other form of the verb; tab-separated.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tokenlight as tl
from tokenlight.data.examples import MASK_MARK
from tokenlight.data.subject_verb import AgreementCase, lgd_rows
from tokenlight.tasks.labels import Labeled
from tokenlight.tasks.positions import Positioned
from tokenlight.text.tokenized_text import TokenizedText

NUMBERS = ("singular", "plural")
SINGULAR_FORMS = ("is", "has", "was", "does")
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
WRITTEN_SHARES = (0.6, 0.2, 0.2)  # section 4.1
RELEASED_SHARES = (0.7, 0.15, 0.15)


@dataclass(frozen=True)
class MaskedNumber(Positioned, Labeled):
    """Is the verb behind [MASK] singular or plural? A model with a label per token, read at [MASK]."""

    name = "masked-number"
    heads = ("ForTokenClassification",)
    auto_class = "AutoModelForTokenClassification"
    gap = "inside"

    def split_target(self, tokenized_text: TokenizedText, target: Any) -> tuple[int, Any]:
        if isinstance(target, tuple):
            return super().split_target(tokenized_text, target)
        masks = [i for i, token in enumerate(tokenized_text.input_ids) if token == self.tokenizer.mask_token_id]
        if len(masks) != 1:
            raise ValueError(f"expected one {self.tokenizer.mask_token} in the text, found {len(masks)}")
        return masks[0], target

    def default_position(self, tokenized_text: TokenizedText) -> int | None:
        return self.split_target(tokenized_text, None)[0]


def number_of(verb: str, other: str) -> str:
    """A singular form is the one with an s at its end (the paper's footnote 5)."""
    singular = verb in SINGULAR_FORMS or (other not in SINGULAR_FORMS and len(verb) > len(other))
    return NUMBERS[0] if singular else NUMBERS[1]


def to_example(case: AgreementCase) -> tl.Example:
    start, end = case.verb
    text = f"{case.text[:start]}{MASK_MARK}{case.text[end:]}"
    return tl.Example(case.id, text, label=number_of(case.text[start:end], case.other), group=str(case.attractors))


def read_part(path: Path, part: Part, released: bool = False, tokenizer: Any = None) -> list[tl.Example]:
    """The examples of one part of the file.

    The release leaves out is, are, and verbs that are no entry of the tokenizer's vocabulary as they are written. It
    looks RoBERTa's up without the blank that begins its words. Its parts have equal shares of singular verbs, and keep
    the order of the file.
    """
    cases = [case for case in lgd_rows(path) if isinstance(case, AgreementCase)]
    if released:
        known = tokenizer.get_vocab()
        cases = [case for case in cases if verb_of(case) not in ("is", "are") and verb_of(case) in known]
    chosen = split_by_number(cases, RELEASED_SHARES)[part] if released else split(cases, WRITTEN_SHARES)[part]
    return [to_example(case) for case in chosen]


def verb_of(case: AgreementCase) -> str:
    return case.text[slice(*case.verb)]


def split_by_number(cases: Sequence[AgreementCase], shares: tuple[float, ...]) -> dict[Part, list[AgreementCase]]:
    """Singular and plural verbs each into parts of these shares, which keep the order of the cases."""
    groups = [[case for case in cases if number_of(verb_of(case), case.other) == number] for number in NUMBERS]
    parts = [split(group, shares) for group in groups]
    chosen: dict[Part, set[str]] = {part: {case.id for own in parts for case in own[part]} for part in PARTS}
    return {part: [case for case in cases if case.id in ids] for part, ids in chosen.items()}


def split(cases: Sequence[AgreementCase], shares: tuple[float, ...], seed: int = 0) -> dict[Part, list[AgreementCase]]:
    """In random order, into parts of these shares."""
    mixed = random.Random(seed).sample(cases, len(cases))
    first, second = (round(sum(shares[:i]) * len(mixed)) for i in (1, 2))
    return {"train": mixed[:first], "validation": mixed[first:second], "test": mixed[second:]}
