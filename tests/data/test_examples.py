"""Reasons why an example does not suit a tokenizer."""

import pytest

from tests.tokenizers_ import byte_bpe, metaspace_bpe, wordpiece
from tokenlight.data.examples import Example, reason_unsuitable
from tokenlight.text.tokenize import encode


def reason(tokenizer, text, evidence, target=" are", foil=" is"):
    start = text.index(evidence)
    example = Example("1", text, target=target, foil=foil, evidence=((start, start + len(evidence)),))
    (tokenized_text,) = encode(tokenizer, [text], None)
    return reason_unsuitable(example, tokenized_text, tokenizer)


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, metaspace_bpe])
def test_why_an_example_does_not_fit(tokenizer):
    tokenizer = tokenizer()
    assert reason(tokenizer, "The keys to the cabinet", "keys") is None
    assert reason(tokenizer, "The keys", "keys", target=" xylophone") == "a form of the word is not one token"
    assert reason(tokenizer, "The keys", "The keys") == "the evidence is the whole input"
    assert reason(tokenizer, "The keys", "keys", foil=" are") == "both forms are the same token"


def test_an_input_of_one_token_is_no_example():
    assert reason(wordpiece(), "key", "key") == "input of a single token"


def test_evidence_without_a_token():
    assert reason(wordpiece(), "the  key", "  ") == "the evidence has no token"
