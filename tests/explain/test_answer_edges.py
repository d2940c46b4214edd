"""Answers at the edges: a right result, or a message that says what to do."""

import copy

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, GenerationConfig, LlamaConfig, LlamaForCausalLM

import tokenlight as tl
from tests.explain.test_answers import apart
from tests.tokenizers_ import explainer_for, model_for, unigram, wordpiece
from tokenlight.common.errors import UnsupportedModelError

PROMPT = "The keys to the cabinet"
QUICK = {"method": "gradient_x_input", "progress": False}


@pytest.fixture(scope="module")
def explainer():
    return explainer_for("gpt2", "text-generation")


def own_pieces(answer):
    """What of the answer's text belongs to each of its tokens."""
    return [answer.answer[slice(*span)] for span in answer.spans[answer.prompt_length :]]


# --- Ends and emptiness ---------------------------------------------------------------------------------------------


def test_the_end_of_text_has_a_row_and_no_characters(explainer):
    tokenizer = explainer.tokenizer
    answer = explainer.explain_answer(PROMPT, (*tokenizer.encode(" are here"), tokenizer.eos_token_id), **QUICK)
    assert answer.answer == " are here"
    assert own_pieces(answer)[-1] == ""
    assert answer.special.tolist()[-3:] == [False, False, True]
    assert answer.notes == ()
    assert answer.of(sentence=0).indices == answer.ids
    end = answer.of(tokens=-1)
    assert end.target == tokenizer.eos_token
    assert end.evaluate(["aopc"])


def test_an_answer_that_is_nothing_but_the_end(explainer, capsys):
    answer = explainer.explain_answer(PROMPT, (explainer.tokenizer.eos_token_id,), **QUICK)
    assert (answer.answer, answer.total().target) == ("", explainer.tokenizer.eos_token)
    assert torch.equal(answer.of(sentence=0).scores, answer.total().scores)
    assert answer.through("flashtrace").total().scores.sum() == pytest.approx(1)
    answer.show()
    assert "1 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "message"),
    [("", "an empty one"), ((), "an empty one"), (5, "found int"), ((10**6,), "outside the vocabulary of")],
)
def test_invalid_answers_are_refused(explainer, answer, message):
    with pytest.raises((ValueError, TypeError), match=message):
        explainer.explain_answer(PROMPT, answer)


# --- Length ---------------------------------------------------------------------------------------------------------


def of_length(explainer, count):
    return explainer.tokenizer.decode(explainer.tokenizer.encode(" the" * 400)[:count])


def test_prompts_that_fill_the_model(explainer):
    limit = explainer.task.max_length
    assert len(explainer.explain_answer(of_length(explainer, limit - 2), " the the", **QUICK)) == 2  # just fits
    full = of_length(explainer, limit - 1)
    message = f"prompt and answer have {limit + 1} tokens, the model reads {limit}: shorten the prompt"
    with pytest.raises(ValueError, match=message):
        explainer.explain_answer(full, " the the")
    with pytest.raises(ValueError, match=message):
        explainer.explain(full, target=" the the")
    for count, tokens in ((limit, limit + 1), (limit + 50, limit + 51)):
        with pytest.raises(ValueError, match=f"have {tokens} tokens"):
            explainer.generate(of_length(explainer, count))


def test_a_model_writes_no_more_than_it_can_read(explainer):
    limit = explainer.task.max_length
    for settings in ({"max_new_tokens": 10}, {"max_length": limit + 10}):
        written = explainer.generate(of_length(explainer, limit - 3), **settings)
        assert len(written.ids) == len(written.explain(**QUICK)) == 3
    assert len(explainer.generate(PROMPT).ids) == 60


def test_a_prompt_of_one_token_and_a_long_one_together(explainer):
    prompts, answers = [of_length(explainer, 1), of_length(explainer, 70)], [" key is here and the book", " key"]
    together = explainer.explain_answer(prompts, answers, "attn_lrp", progress=False)
    for prompt, answer, found in zip(prompts, answers, together, strict=True):
        alone = explainer.explain_answer(prompt, answer, "attn_lrp", progress=False)
        scale = float(alone.matrix.abs().max())
        assert apart(found.matrix, alone.matrix) < 1e-4 * scale
    assert together[0].prompt_length == 1
    assert not together[0].matrix[0, 1:].any()


# --- Tokens and characters ------------------------------------------------------------------------------------------


def test_a_target_that_the_tokenizer_would_merge_with_the_text(explainer):
    message = "the explained tokens follow the text as given"
    for target in ("ys", "ys to"):
        found = explainer.explain("The ke", target=target, **QUICK)
        assert [note for note in found.notes if note.startswith(message)]
        assert found.target == target
    assert f"{message} ('y', 's', ' to'): tokenized as one text, both would have other tokens" in found.notes
    assert any(note.startswith(message) for note in explainer.explain_answer("The ke", "ys", **QUICK).notes)
    assert not explainer.explain(PROMPT, target=" are", **QUICK).notes


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
def test_ordinary_answers_are_cut_as_given(family):
    explainer = explainer_for(family, "text-generation")
    assert not explainer.explain_answer(PROMPT, " are on the table", **QUICK).notes


def test_half_a_character(explainer):
    ids = tuple(explainer.tokenizer.encode(" 😀"))
    answer = explainer.explain_answer(PROMPT, ids[:3], **QUICK)
    assert answer.answer == " \ufffd"
    assert own_pieces(answer) == ["", "\ufffd", "\ufffd"]


def test_a_token_after_an_incomplete_character_does_not_include_it(explainer):
    tokenizer = explainer.tokenizer
    for broken in tokenizer.encode("é")[:1], [tokenizer.convert_tokens_to_ids("ÿ")] * 2, tokenizer.encode("\ufffd"):
        ids = (*tokenizer.encode("the"), *broken, *tokenizer.encode(" key"))
        answer = explainer.explain_answer(PROMPT, ids, **QUICK)
        assert own_pieces(answer) == ["t", "he", *["\ufffd"] * len(broken), "key"]
        assert answer.of("key").indices == tuple(tokenizer.encode(" key"))
        if answer.answer.count("\ufffd") == 1:
            assert answer.of("\ufffd").indices == tuple(broken)


def test_text_from_right_to_left(explainer):
    answer = explainer.explain_answer("שלום", " עולם טוב.", **QUICK)
    assert own_pieces(answer)[1::2][:4] == own_pieces(answer)[2::2][:4] == list("עולם")  # two bytes a letter
    world = answer.of("עולם")
    assert (world.target, len(world.indices)) == ("עולם", 8)
    assert answer.total().words()[0].text == "שלום"


def test_a_tokenizer_that_lowers_and_splits_shows_what_the_model_reads():
    explainer = explainer_for("mistral", "text-generation")
    if explainer.tokenizer.tokenize("ARE") != explainer.tokenizer.tokenize("are"):
        pytest.skip("the tokenizer that this version of transformers makes of the same vocabulary does not lower")
    answer = explainer.explain_answer(PROMPT, "Are ON the table. It isn't naive!", **QUICK)
    assert answer.answer.startswith("are on the table")
    assert "".join(own_pieces(answer)) == answer.answer.replace(" ", "")
    assert answer.of("table").target == "table"


# --- Precision and wrappers -----------------------------------------------------------------------------------------


def test_half_precision():
    whole = explainer_for("gpt2", "text-generation")
    half = tl.Explainer(copy.deepcopy(whole.inner).bfloat16(), whole.tokenizer)  # the same weights, rounded
    assert half.inner.dtype == torch.bfloat16
    one, other = (
        explainer.explain_answer(PROMPT, " are here", "attn_lrp", progress=False) for explainer in (whole, half)
    )
    assert other.matrix.dtype == torch.float32
    step = torch.finfo(torch.bfloat16).eps
    assert apart(one.log_probabilities, other.log_probabilities) < 16 * step * float(one.log_probabilities.abs().max())
    assert apart(one.matrix, other.matrix) < 32 * step * float(one.matrix.abs().max())


def test_wrapped_models_write_and_are_explained(explainer):
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    settings = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    adapted = peft.get_peft_model(model_for("gpt2", "text-generation", use_cache=True), settings)  # begins as the model
    expected = explainer.generate(PROMPT, max_new_tokens=3, do_sample=False)
    matrix = expected.explain(**QUICK).matrix
    for model in (adapted, torch.compile(explainer.model, backend="eager"), torch.nn.DataParallel(explainer.model)):
        wrapped = tl.Explainer(model, explainer.tokenizer)  # type: ignore[arg-type]
        written = wrapped.generate(PROMPT, max_new_tokens=3, do_sample=False)
        assert written.ids == expected.ids
        assert apart(written.explain(**QUICK).matrix, matrix) < 1e-5 * float(matrix.abs().max())


# --- Settings of generate -------------------------------------------------------------------------------------------


def test_settings_of_generate(explainer):
    beams = explainer.generate(PROMPT, max_new_tokens=4, num_beams=3, return_dict_in_generate=True, output_scores=True)
    assert len(beams.ids) == 4
    greedy = explainer.generate(PROMPT, max_new_tokens=12, do_sample=False)
    stop = greedy.text.rstrip("\ufffd")[-1:] or greedy.text[-1:]
    stopped = explainer.generate(PROMPT, max_new_tokens=12, do_sample=False, stop_strings=[stop])
    assert len(stopped.ids) <= len(greedy.ids)
    assert stop in stopped.text
    with pytest.raises(ValueError, match="one answer at a time: num_return_sequences= asks for 2"):
        explainer.generate(PROMPT, max_new_tokens=2, num_beams=2, num_return_sequences=2)
    with pytest.raises(ValueError, match="one prompt at a time: found a list of 2"):
        explainer.generate([PROMPT, PROMPT])


def test_a_model_that_cannot_write(explainer, monkeypatch):
    monkeypatch.setattr(type(explainer.inner), "generate", None)
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel cannot write: .* use explain_answer"):
        explainer.generate(PROMPT)


# --- What is read and written ---------------------------------------------------------------------------------------


def test_a_model_that_reads_in_both_directions_has_no_rows_of_answers():
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    both_ways = tl.Explainer(BertLMHeadModel(config).eval(), tokenizer)
    with pytest.raises(UnsupportedModelError, match="in both directions"):
        both_ways.explain_answer("the book", "it is", **QUICK)
    with pytest.raises(UnsupportedModelError, match="in both directions"):
        both_ways.explain("the book", target="it is", **QUICK)
    assert both_ways.explain("the book", target="it", **QUICK).scores.abs().max() > 0
    config = copy.deepcopy(config)
    config.is_decoder = True
    causal = tl.Explainer(BertLMHeadModel(config).eval(), tokenizer)
    assert causal.explain_answer("the book", "it is", **QUICK).matrix.shape[0] == 2


@pytest.mark.parametrize(
    ("make", "answer", "part", "expected"),
    [
        (wordpiece, "it is n't bad. i'm here", "' m", ["'", "m"]),
        (unigram, "it is bad . they are here !", ".", ["."]),
    ],
)
def test_tokens_keep_their_own_spans_where_decoding_removes_blanks(make, answer, part, expected):
    tokenizer = copy.deepcopy(make())
    tokenizer.clean_up_tokenization_spaces = True
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    explained = tl.Explainer(LlamaForCausalLM(config).eval(), tokenizer).explain_answer("the book", answer, **QUICK)
    assert tokenizer.convert_ids_to_tokens(list(explained.of(part).indices)) == expected


def test_an_unknown_word_of_an_answer_is_an_ordinary_token():
    tokenizer = wordpiece()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    explainer = tl.Explainer(LlamaForCausalLM(config).eval(), tokenizer)
    explained = explainer.explain_answer("the book", "it is 😀 bad", **QUICK)
    assert explained.answer == "it is [UNK] bad"
    assert own_pieces(explained) == ["it", "is", "[UNK]", "bad"]
    assert not explained.special[explained.prompt_length :].any()


def test_answers_carry_the_warnings_about_their_scores(explainer):
    settings = {"steps": 1, "progress": False}
    explained = explainer.explain_answer(PROMPT, " are here", "integrated_gradients", **settings)
    assert any("take more steps (token" in note for note in explained.notes)
    single = explainer.explain_answer(PROMPT, (explained.ids[0],), "integrated_gradients", **settings)
    assert any(note.endswith("take more steps") for note in single.notes)


def test_generation_stops_at_the_length_that_the_model_reads(explainer):
    limit = explainer.task.max_length
    written = explainer.generate(PROMPT, generation_config=GenerationConfig(max_new_tokens=10 * limit, do_sample=False))
    assert len(explainer.encode([PROMPT])[0]) + len(written.ids) <= limit
