"""Which examples a tokenizer can take: both forms are one token, and the evidence is not everything (Arras et al.)."""

from typing import Any

from tokenlight.data.examples import Example
from tokenlight.tasks.vocabulary import token_index
from tokenlight.text.rows import TokenizedText


def misfit(example: Example, tokenized_text: TokenizedText, tokenizer: Any) -> str | None:
    """Why a tokenizer cannot take an example."""
    try:
        forms = {token_index(form, tokenizer, len(tokenizer)) for form in (example.target, example.foil)}
    except ValueError:
        return "a form of the word is not one token"
    if len(forms) < 2:
        return "both forms are the same token"
    ordinary = [span for span, special in zip(tokenized_text.spans, tokenized_text.special, strict=True) if not special]
    evidence = [s for s in ordinary if any(s[0] < end and start < s[1] for start, end in example.evidence)]
    if example.evidence and not evidence:
        return "the evidence has no token"
    if len(ordinary) < 2:
        return "input of a single token"
    return None if len(evidence) < len(ordinary) else "the evidence is the whole input"
