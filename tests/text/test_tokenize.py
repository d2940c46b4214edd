"""Chats: the tokenizer's template around messages, whose characters keep their places."""

from copy import deepcopy

import pytest
import torch

import tokenlight as tl
from tests.tokenizers_ import explainer_for
from tokenlight.text.tokenize import fit, read_chat, texts_of, tokenize_chat
from tokenlight.text.tokenized_text import Chat, parts

PLAIN = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>\n{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
STRIPS = PLAIN.replace("m['content']", "m['content'] | trim")
CHAT = [{"role": "user", "content": "user: the keys\n\nare here"}, {"role": "assistant", "content": "a good movie"}]


@pytest.fixture(scope="module")
def explainer():
    found = explainer_for("llama", "text-generation", dtype=torch.float64)
    tokenizer = deepcopy(found.tokenizer)
    tokenizer.chat_template = PLAIN
    return tl.Explainer(found.model, tokenizer)


def written(row):
    """What the spans say, message by message."""
    found = [""] * len(parts(row.text))
    for segment, (start, end) in zip(row.segments, row.spans, strict=True):
        if segment is not None:
            found[segment] += parts(row.text)[segment][start:end]
    return found


def test_every_token_is_of_a_message_or_of_the_template(explainer):
    tokenizer = explainer.tokenizer
    tokenized_text = tokenize_chat(tokenizer, read_chat([*CHAT, {"role": "user", "content": "who?"}]), replies=True)
    whole = tokenizer.apply_chat_template([*CHAT, {"role": "user", "content": "who?"}], tokenize=False)
    assert tokenized_text.input_ids == tokenizer(whole + "<assistant>\n", add_special_tokens=False)["input_ids"]
    contents = ["user: the keys\n\nare here", "a good movie", "who?"]
    assert written(tokenized_text) == [text.replace(" ", "") for text in contents]
    assert [segment is None for segment in tokenized_text.segments] == tokenized_text.special


@pytest.mark.parametrize("content", ["  the keys\n", "user"])  # stripped by the template; the same word as its role
def test_spans_point_into_the_message_as_it_was_given(explainer, content):
    tokenizer = deepcopy(explainer.tokenizer)
    tokenizer.chat_template = STRIPS
    tokenized_text = tokenize_chat(tokenizer, Chat(("user",), (content,)), replies=True)
    starts = [
        start for segment, (start, _) in zip(tokenized_text.segments, tokenized_text.spans, strict=True) if segment == 0
    ]
    assert content[starts[0] :].startswith(content.strip()[0])
    assert written(tokenized_text) == ["".join(content.split())]


def test_a_word_belongs_to_its_message_even_if_the_blank_before_it_does_not(explainer):
    tokenizer = deepcopy(explainer.tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenized_text = tokenize_chat(tokenizer, Chat(("user", "user"), ("the keys ", "are here")), replies=False)
    assert "▁are" in tokenized_text.tokens
    assert written(tokenized_text) == ["thekeys", "arehere"]


def test_a_last_message_of_the_assistant_is_continued(explainer):
    tokenized_text = tokenize_chat(explainer.tokenizer, read_chat(CHAT), replies=True)
    assert explainer.tokenizer.decode(tokenized_text.input_ids).endswith("a good movie")
    assert explainer.tokenizer.decode(
        tokenize_chat(explainer.tokenizer, read_chat(CHAT), replies=False).input_ids
    ).endswith("a good movie\n")


def test_a_chat_is_explained_like_the_rendered_text(explainer):
    whole = explainer.tokenizer.apply_chat_template(CHAT[:1], tokenize=False, add_generation_prompt=True)
    one, other = explainer.explain(CHAT[:1]), explainer.explain(whole.removeprefix("<s>"))
    assert one.tokens == other.tokens
    torch.testing.assert_close(one.scores, other.scores)
    assert tl.Explanation.from_dict(one.to_dict()) == one
    assert one.evaluate().keys() == other.evaluate().keys()
    (turn,) = one.turns()
    assert turn.name == "user 1"
    assert turn.score == pytest.approx(float(one.scores[~one.special].sum()))


def test_an_answer_to_a_chat(explainer):
    long = [*CHAT, {"role": "user", "content": "who wrote the book ?"}]
    answers = explainer.explain_answer([CHAT[:1], long], ["a young author", "the book. the key"], progress=False)
    assert [answer.segments[-1] for answer in answers] == [1, 3]
    for prompt, answer in zip([CHAT[:1], long], answers, strict=True):
        alone = explainer.explain_answer(prompt, answer.ids, progress=False)
        torch.testing.assert_close(alone.matrix, answer.matrix)
        assert tl.ExplainedAnswer.from_dict(answer.to_dict()) == answer
        assert answer.of(sentence=0).text == answer.prompt
    assert explainer.generate(CHAT[:1], max_new_tokens=2).explain(progress=False).prompt == Chat(
        ("user",), (CHAT[0]["content"],)
    )


def test_a_chat_that_is_too_long_loses_its_oldest_words(explainer):
    tokenized_text = tokenize_chat(explainer.tokenizer, read_chat(CHAT), replies=True)
    cut = fit(tokenized_text, len(tokenized_text) - 3, "start")
    assert cut.truncated == 3
    assert [i for i, s in zip(cut.input_ids, cut.segments, strict=True) if s is None] == [
        i for i, s in zip(tokenized_text.input_ids, tokenized_text.segments, strict=True) if s is None
    ]
    assert cut.segments.count(1) == tokenized_text.segments.count(1)
    with pytest.raises(ValueError, match="template needs all"):
        fit(tokenized_text, 5, "start")


def test_invalid_chats_are_refused(explainer):
    with pytest.raises(ValueError, match=r"message 1: expected .*role"):
        explainer.explain([CHAT[0], {"role": "user"}])
    with pytest.raises(ValueError, match="no chat template"):
        explainer_for("llama", "text-generation").explain(CHAT)
    tokenizer = deepcopy(explainer.tokenizer)
    tokenizer.chat_template = "{{ raise_exception('no system role here') }}"
    with pytest.raises(ValueError, match="no system role here"):
        tokenize_chat(tokenizer, read_chat(CHAT), replies=False)
    tokenizer.chat_template = "{{ messages[-1]['content'] | upper }}"
    with pytest.raises(ValueError, match="does not write every message once"):
        tokenize_chat(tokenizer, read_chat(CHAT), replies=False)
    with pytest.raises(ValueError, match="changes message 0"):
        tokenize_chat(tokenizer, read_chat(CHAT[:1]), replies=False)
    with pytest.raises(TypeError, match="found int"):
        texts_of(3)
