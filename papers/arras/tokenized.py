"""Agreement sentences in the tokens of a model, as appendix B of Arras et al. describes them."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import tokenlight as tl
from tokenlight.bench.cases import mark
from tokenlight.data.examples import BadRow, Example, fill_mask, reason_unsuitable
from tokenlight.data.read import read_examples
from tokenlight.tasks.vocabulary import token_index
from tokenlight.text.tokenize import encode
from tokenlight.text.tokenized_text import Gap


@dataclass(frozen=True)
class TokenizedSentence:
    """What a model reads, where the subject is in it, and the two forms of the verb."""

    id: str
    attractors: int
    tokens: list[str]
    input_ids: list[int]
    subject: list[int]  # places of its tokens
    verb: int  # id of the right form
    other: int  # id of the other one


def tokenize(tokenizer: Any, source: tl.DataSource, gap: Gap) -> tuple[list[TokenizedSentence], Counter[str]]:
    """The sentences that suit a tokenizer, with a mask (gap="inside") or up to the verb; and why others do not suit."""
    sentences: list[TokenizedSentence] = []
    left_out: Counter[str] = Counter()
    for example in read_examples(source, gap):
        tokenized = example if isinstance(example, BadRow) else tokenize_one(tokenizer, example, gap)
        if isinstance(tokenized, TokenizedSentence):
            sentences.append(tokenized)
        else:
            left_out[tokenized.reason] += 1
    if not sentences:
        raise ValueError(f"no sentence suits the tokenizer: {dict(left_out)}")
    return sentences, left_out


def tokenize_one(tokenizer: Any, example: Example, gap: Gap) -> TokenizedSentence | BadRow:
    if gap == "inside":
        example = fill_mask(example, tokenizer.mask_token)
    (tokenized_text,) = encode(tokenizer, [example.text], None)
    if reason := reason_unsuitable(example, tokenized_text, tokenizer):
        return BadRow(example.where, reason)
    marks = mark(tokenized_text, [(0, span) for span in example.evidence])
    if marks is None:
        return BadRow(example.where, "the subject has no tokens")
    verb, other = (token_index(form, tokenizer, len(tokenizer)) for form in (example.target, example.foil))
    subject_positions = marks.nonzero()[:, 0].tolist()
    return TokenizedSentence(
        example.id,
        int(example.group or 0),
        tokenized_text.tokens,
        tokenized_text.input_ids,
        subject_positions,
        verb,
        other,
    )
