"""The user's object: texts of every kind in, explanations out; batching, sharing of passes, errors that help."""

import copy
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from transformers import BertConfig, PythonBackend

import tokenlight as tl
from tests import models
from tests.rounding import assert_near, tolerance
from tests.tokenizers_ import (
    TOKENIZERS,
    byte_bpe,
    explainer_for,
    metaspace_bpe,
    model_for,
    tokenizer_for,
    wordpiece,
)
from tokenlight.methods import METHODS
from tokenlight.model import instrumented as instrumented_models
from tokenlight.text.tokenize import encode

FAMILIES = ["bert", "roberta", "xlm_roberta", "gpt2", "llama"]
TEXTS = [
    "it is a good movie and they are not bad at all",
    "ok",
    "unbelievable films are rarely believable",
    "the key is here",
    "who wrote the book ? the book was written by a young author",
]
PLAIN = [
    *("raw_attention", "rollout", "attention_gradient", "attention_x_gradient", "grad_sam", "attention_cam"),
    *("attention_grad_cam", "generic_attention", "cat", "attcat", "gradient_l1", "gradient_l2", "gradient_x_input"),
]


def assert_equal(one: tl.Explanation, two: tl.Explanation) -> None:
    for name in ("text", "tokens", "segments", "spans", "target", "foil", "prediction", "method", "position", "notes"):
        assert getattr(one, name) == getattr(two, name)
    assert torch.equal(one.special, two.special)
    assert one.score == pytest.approx(two.score, abs=tolerance(torch.float32, max(1.0, abs(two.score))))
    assert_near(one.scores, two.scores)


# --- Lists and batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_list_keeps_its_order_and_equals_one_at_a_time(family, batch_size):
    explainer = explainer_for(family)
    together = explainer.explain(TEXTS, batch_size=batch_size)
    assert [e.text for e in together] == TEXTS
    for text, e in zip(TEXTS, together, strict=True):
        assert_equal(e, explainer.explain(text))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_batches_of_a_decoder_classifier_whose_tokenizer_pads_otherwise(family):
    tokenizer = copy.deepcopy(tokenizer_for(family))
    model = model_for(family, pad_token_id=7)
    assert tokenizer.pad_token_id != 7
    explainer = tl.Explainer(model, tokenizer)
    for text, e in zip(TEXTS, explainer.explain(TEXTS), strict=True):
        assert_equal(e, explainer.explain(text))


def test_a_tokenizer_without_a_padding_token():
    tokenizer = copy.deepcopy(byte_bpe())
    tokenizer.pad_token = None
    assert tokenizer.pad_token_id is None
    for task in ("text-classification", "text-generation"):
        explainer = tl.Explainer(model_for("gpt2", task), tokenizer)
        for text, e in zip(TEXTS, explainer.explain(TEXTS), strict=True):
            assert_equal(e, explainer.explain(text))


@pytest.mark.parametrize("method", ["attcat", "erasure", "integrated_gradients"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_decoder_classifier_without_a_padding_id(family, method):
    with_id, without = explainer_for(family), explainer_for(family, pad_token_id=None)
    assert without.model.config.pad_token_id is None
    options: dict[str, Any] = {"steps": 4, "baseline": "zero"} if method == "integrated_gradients" else {}
    for text, e in zip(TEXTS[:3], without.explain(TEXTS[:3], method, target=1, **options), strict=True):
        assert_equal(e, with_id.explain(text, method, target=1, **options))


def test_a_decoder_classifier_without_a_padding_id_refuses_padded_token_ids():
    ids, mask = torch.randint(5, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    model = model_for("gpt2", pad_token_id=None)
    even = tl.attribute(model, ids, method="attcat", target=1)
    assert_near(even[1:], tl.attribute(model, ids[1:], method="attcat", target=1))
    mask[1, 4:] = 0
    with pytest.raises(ValueError, match="no padding id"):
        tl.attribute(model, ids, mask, method="attcat", target=1)


def test_other_sequences_are_lists_too():
    explainer = explainer_for("bert")
    expected = explainer.explain(TEXTS)
    generator: Any = (text for text in TEXTS)
    assert explainer.explain(generator) == expected


@pytest.mark.parametrize("size", [0, -3, 1.5, "a", True])
def test_a_batch_size_that_cannot_be(size):
    with pytest.raises(ValueError, match=f"batch_size is a positive whole number, found {size!r}"):
        explainer_for("bert").explain(TEXTS, batch_size=size)


# --- Pairs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_alone_and_in_lists(family):
    explainer = explainer_for(family)
    pairs = [("who wrote it ?", "the author"), ("ok", "it is not bad at all")]
    for pair, e in zip(pairs, explainer.explain(pairs), strict=True):
        assert_equal(e, explainer.explain(pair))
        assert e.text == pair
        assert {0, 1} <= set(e.segments)
        for segment, (start, end), special in zip(e.segments, e.spans, e.special.tolist(), strict=True):
            assert special or pair[segment or 0][start:end].strip() == pair[segment or 0][start:end]


def test_the_parts_of_a_pair_have_their_own_token_types():
    explainer = explainer_for("bert")
    pair = ("who wrote it ?", "the author")
    with torch.no_grad():
        logits = explainer.model(**explainer.tokenizer(*pair, return_tensors="pt")).logits[0]
    assert explainer.explain(pair, target=1).score == pytest.approx(float(logits[1]), abs=1e-5)


def test_texts_and_pairs_together():
    explainer = explainer_for("bert")
    mixed: list[Any] = ["the key", ("who ?", "the author of the book"), "ok"]
    for text, e in zip(mixed, explainer.explain(mixed), strict=True):
        assert_equal(e, explainer.explain(text))


# --- Texts that are hard --------------------------------------------------------------------------------------------

HARD = {
    "emoji": "good 😀 👍🏽 👨‍👩‍👧 movie",
    "right to left": "שלום עולם مرحبا بالعالم",
    "zero width": "zero\u200bwidth \ufeff and \u200djoiner",
    "CJK": "東京は日本の首都です。",
    "control": "bell\x07 and escape\x1b[31m and null\x00 ok",
    "combining": "cafe\u0301 nai\u0308ve",
    "blanks": "  many   blanks\t\tand\n\nlines  ",
    "no-break": "no\u00a0break\u3000space",
    "markup": "<b>bold</b> [red]not[/red] & \"quoted\" 'single'",
    "special": "a [MASK] and </s> and <|endoftext|> inside",
    "long word": "a" * 400,
    "surrogates of mathematics": "𝕳𝖊𝖑𝖑𝖔 𝔀𝓸𝓻𝓵𝓭",
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("family", FAMILIES)
def test_hard_texts_are_explained(family, name):
    text = HARD[name]
    e = explainer_for(family).explain(text)
    assert e.text == text
    assert len(e.tokens) == len(e.scores) == len(e.special) == len(e.spans) == len(e.segments)
    assert e.scores.isfinite().all()
    assert all(0 <= start <= end <= len(text) for start, end in e.spans)
    assert sum(word.score for word in e.words()) == pytest.approx(float(e.scores.sum()), abs=1e-4)
    e.to_html()
    repr(e)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_of_ten_thousand_characters_is_truncated_with_a_note(family):
    text = ("the key is here and " * 500)[:10_000]
    e = explainer_for(family).explain(text)
    whole = len(explainer_for(family).tokenizer(text, verbose=False)["input_ids"])
    limit = 299 if family in ("roberta", "xlm_roberta") else 300
    if family == "xlm_roberta":
        limit = 298  # its padding id is 1, so positions start at 2
    assert len(e.tokens) == limit
    assert any(f"its last {whole - limit} tokens were cut off" in note for note in e.notes)
    assert e.text == text


def test_a_text_that_just_fits_is_not_cut():
    explainer = explainer_for("bert")
    fits = explainer.explain("key " * 298)
    assert (len(fits.tokens), fits.notes) == (300, ())
    assert any("last 1 tokens" in note for note in explainer.explain("key " * 299).notes)


def test_the_context_of_a_question_is_cut_and_not_the_question():
    e = explainer_for("bert", "question-answering").explain(("who wrote the book ?", "the author " * 300))
    assert e.segments.count(0) == 5
    assert len(e.tokens) == 300
    assert e.tokens[-1] == "[SEP]"


@pytest.mark.parametrize("text", ["", "   ", "\n\t", ("", "a"), ("a", " "), "\u3000"])
def test_an_empty_text_is_an_error(text):
    with pytest.raises(ValueError, match="expected a text, found an empty one"):
        explainer_for("bert").explain(text)


def test_a_text_without_tokens_is_an_error():
    with pytest.raises(ValueError, match="has no tokens of its own"):
        explainer_for("bert").explain("\u200b\x07")


def test_half_a_character_is_an_error():
    with pytest.raises(ValueError, match="text 1: the text has half a character"):
        explainer_for("bert").explain(["ok", "half \ud83d"])


def test_an_empty_list_is_an_error():
    with pytest.raises(ValueError, match="found an empty list"):
        explainer_for("bert").explain([])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (5, "found int"),
        (None, "found NoneType"),
        ([5], "found int: 5"),
        (["ok", None], "found NoneType: None"),
        (b"ok", "found bytes"),
        ({"ok", "the key"}, "found set"),  # in no order
        ([["who ?", "me"]], r"found list: \['who \?', 'me'\]"),
        (("a", "b", "c"), "found tuple"),
        (("a", 3), "found tuple"),
        ([("a",)], "found tuple"),
        ({"text": "ok"}, "found dict"),
    ],
)
def test_something_else_than_text_is_an_error(text, found):
    with pytest.raises(TypeError, match=f"expected a text.*{found}"):
        explainer_for("bert").explain(text)


def test_one_bad_text_in_a_list_is_named():
    with pytest.raises(ValueError, match="text 1"):
        explainer_for("bert").explain(["ok", "  ", "good"])


# --- Tokenizers -----------------------------------------------------------------------------------------------------


class Slow(PythonBackend):
    """Splits at blanks, in Python, without offsets."""

    def __init__(self, **settings: Any) -> None:
        self.entries = {"[UNK]": 0, "ok": 1}
        super().__init__(unk_token="[UNK]", **settings)

    @property
    def vocab_size(self) -> int:
        return len(self.entries)

    def get_vocab(self) -> dict[str, int]:
        return self.entries

    def _tokenize(self, text: str, **settings: Any) -> list[str]:
        return text.split()

    def _convert_token_to_id(self, token: str) -> int:
        return self.entries.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return list(self.entries)[index]


def test_a_tokenizer_without_offsets_is_refused_with_a_way_out():
    explainer = tl.Explainer(model_for("bert"), Slow())
    with pytest.raises(ValueError, match=r"Slow gives no character offsets.*fast version.*tokenlight\.attribute"):
        explainer.explain("ok")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_spans_point_at_the_tokens_in_the_original_text(name):
    tokenizer = TOKENIZERS[name]()
    text = "The  keys\tare naïve ."
    (tokenized_text,) = encode(tokenizer, [text], None)
    covered = {i for start, end in tokenized_text.spans for i in range(start, end)}
    assert covered == {i for i, character in enumerate(text) if not character.isspace()}
    for token, (start, end), special in zip(
        tokenized_text.tokens, tokenized_text.spans, tokenized_text.special, strict=True
    ):
        plain = token.strip("Ġ▁#").lower()
        if not special and plain.isascii() and plain.isalpha():
            assert text[start:end].lower().replace("ï", "i") == plain


@pytest.mark.parametrize("name", TOKENIZERS)
def test_unknown_words_are_words_and_masks_are_special(name):
    tokenizer = TOKENIZERS[name]()
    mask = tokenizer.mask_token or tokenizer.eos_token
    (tokenized_text,) = encode(tokenizer, [f"ok 😀 {mask}"], None)
    assert tokenized_text.special[-2 if name == "wordpiece" else -1]
    assert not any(
        special
        for token, special in zip(tokenized_text.tokens, tokenized_text.special, strict=True)
        if token in ("[UNK]", "<unk>")
    )


def test_the_tokenizer_is_left_as_it_was():
    tokenizer = copy.deepcopy(wordpiece())
    before = tokenizer.backend_tokenizer.to_str()
    tl.Explainer(model_for("bert"), tokenizer).explain(["ok", "key " * 400])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_threads_share_an_explainer():
    explainer = explainer_for("bert")
    texts = ["the key", "key " * 400, "it is a good movie", ("who ?", "the author " * 200)]
    alone = [explainer.explain(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        method_configs = [
            (i, pool.submit(lambda text: explainer.explain(text), texts[i])) for _ in range(8) for i in range(4)
        ]
    for i, method_config in method_configs:
        assert_equal(method_config.result(), alone[i])


# --- Several methods ------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch):
    """How often the model ran, by number of texts."""
    counter: Counter[int] = Counter()
    original = instrumented_models.InstrumentedModel.run

    def counted(self, batch, *args, **kwargs):
        counter[len(batch.input_ids)] += 1
        return original(self, batch, *args, **kwargs)

    monkeypatch.setattr(instrumented_models.InstrumentedModel, "run", counted)
    return counter


def test_explain_all_equals_explain_for_each_method():
    explainer = explainer_for("bert")
    names = [name for name, entry in METHODS.items() if entry.fits(explainer.inner)]
    together = explainer.explain_all(TEXTS[:3], names, target=1, steps=3, heads=models.SOME_HEADS)
    assert list(together) == names
    for name, results in together.items():
        given = {"steps": 3, "heads": models.SOME_HEADS}
        own: dict[str, Any] = {option: value for option, value in given.items() if option in METHODS[name].options}
        for e, alone in zip(results, explainer.explain(TEXTS[:3], name, target=1, **own), strict=True):
            assert e.method == name
            assert_equal(e, alone)


def test_explain_all_of_one_text_gives_one_explanation_a_method():
    results = explainer_for("bert").explain_all("ok", ["AttCAT", "rollout"])
    assert {name: type(e) for name, e in results.items()} == {"attcat": tl.Explanation, "rollout": tl.Explanation}


def test_all_methods_that_read_a_plain_pass_share_one(runs):
    explainer_for("bert").explain_all(TEXTS, PLAIN)
    assert runs == {len(TEXTS): 1}


def test_each_batch_runs_once(runs):
    explainer_for("bert").explain_all(TEXTS, PLAIN, batch_size=2)
    assert runs == {2: 2, 1: 1}


@pytest.mark.parametrize("name", PLAIN)
def test_one_method_runs_the_model_once(runs, name):
    explainer_for("bert").explain(TEXTS, name)
    assert runs == {len(TEXTS): 1}


def test_the_default_of_explain_all_is_every_method_that_does_not_ask_again():
    names = set(explainer_for("bert").explain_all("ok"))
    assert set(PLAIN) <= names
    assert not names & {"erasure", "integrated_gradients", "random"}


def test_an_option_goes_to_the_methods_that_have_it():
    results = explainer_for("bert").explain_all("the key", ["attcat", "gradient_x_input"], read="blocks")
    assert results["gradient_x_input"].options["read"] == "blocks"
    assert "read" not in results["attcat"].options


def test_options_change_the_result_and_are_kept_with_it():
    explainer = explainer_for("bert")
    plain = explainer.explain("the key", "gradient_x_input")
    blocks = explainer.explain("the key", "gradient_x_input", read="blocks")
    assert plain.options == {"reduce": "sum", "read": "embeddings"}
    assert blocks.options == {"reduce": "sum", "read": "blocks"}
    assert not torch.allclose(plain.scores, blocks.scores)


@pytest.mark.parametrize(
    ("methods", "error", "message"),
    [
        ("attcat", TypeError, r"explain\(\.\.\., method='attcat'\)"),
        ([], ValueError, "at least one method"),
        (["attcat", "atcat"], ValueError, "no method 'atcat'"),
    ],
)
def test_wrong_lists_of_methods(methods, error, message):
    with pytest.raises(error, match=message):
        explainer_for("bert").explain_all("ok", methods)


# --- Names and options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"), [("atcat", "attcat"), ("Rollouts", "rollout"), ("raw_atention", "raw_att")]
)
def test_a_wrong_method_name_lists_all_and_suggests_one(wrong, right):
    with pytest.raises(ValueError, match=f"no method '{wrong}'. Did you mean '{right}") as caught:
        explainer_for("bert").explain("ok", wrong)
    assert all(name in str(caught.value) for name in METHODS)


def test_a_name_far_from_all_is_not_given_a_suggestion():
    with pytest.raises(ValueError, match=r"no method 'xyzzy'\. Methods: raw_attention"):
        explainer_for("bert").explain("ok", "xyzzy")


@pytest.mark.parametrize("wrong", [None, 3, ["attcat"]])
def test_a_method_is_a_name(wrong):
    with pytest.raises(TypeError, match="expected the name of a method"):
        explainer_for("bert").explain("ok", wrong)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("AttCAT", "attcat"),
        ("ATTCAT", "attcat"),
        ("RawAtt", "raw_attention"),
        ("GAE", "generic_attention"),
        ("gae", "generic_attention"),
        ("IG", "integrated_gradients"),
        ("Occlusion", "erasure"),
        ("Grad-SAM", "grad_sam"),
        ("GradCAM", "attention_grad_cam"),
        ("gxi", "gradient_x_input"),
    ],
)
def test_papers_names_in_any_case(alias, name):
    few: dict[str, Any] = {"steps": 2} if alias == "IG" else {}
    assert explainer_for("bert").explain("ok", alias, **few).method == name


def test_no_two_methods_share_a_name():
    from tokenlight.methods import ALIASES

    for name, entry in METHODS.items():
        assert ALIASES[name] == name
        assert ALIASES[entry.title.lower()] == name


def test_a_wrong_option_names_the_right_ones():
    with pytest.raises(TypeError, match=r"'integrated_gradients' has no option stepz; its options: steps=50, baseline"):
        explainer_for("bert").explain("ok", "integrated_gradients", stepz=3)
    with pytest.raises(
        TypeError, match="'rollout' has no option steps; its options: layers=False, contexts=0, removal=None"
    ):
        explainer_for("bert").explain("ok", "rollout", steps=3)
    with pytest.raises(TypeError, match="none of the methods attcat, rollout has an option 'steps'"):
        explainer_for("bert").explain_all("ok", ["attcat", "rollout"], steps=3)


def test_a_target_that_has_no_effect_is_noted():
    explainer = explainer_for("bert")
    assert explainer.explain("ok", "rollout", target=1).notes == ("rollout does not depend on the target",)
    assert explainer.explain("ok", "rollout").notes == ()
    assert explainer.explain("ok", "gradient_x_input", target=1).notes == ()


def test_scores_that_are_all_zero_are_noted():
    model = copy.deepcopy(model_for("bert"))
    with torch.no_grad():
        model.classifier.weight.zero_()
    e = tl.Explainer(model, wordpiece()).explain("ok", "attcat")
    assert any("every score of attcat is 0" in note for note in e.notes)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DeBERTa's modeling file uses torch.jit
def test_scores_that_are_nothing_but_rounding_are_noted():
    settings = {**models.ENCODER, "vocab_size": len(wordpiece()), "type_vocab_size": 0, "position_biased_input": False}
    torch.manual_seed(0)
    kind = transformers.DebertaV2ForSequenceClassification  # a norm right behind the embeddings
    model = kind(transformers.DebertaV2Config(**settings)).eval()
    explainer = tl.Explainer(model, wordpiece())
    (note,) = explainer.explain("the key is here", "gradient_x_input").notes
    assert "little but rounding" in note
    assert "read='blocks'" in note
    assert explainer.explain("the key is here", "gradient_x_input", read="blocks").notes == ()


def test_completeness_of_integrated_gradients_is_reported():
    e = explainer_for("bert").explain("the key is here", "ig", steps=200)
    assert abs(e.extras["completeness"]) < 1e-3


def test_specials_do_not_move_in_integrated_gradients():
    e = explainer_for("bert").explain("the key is here", "ig", steps=4)
    assert (e.scores[e.special] == 0).all()
    assert (e.scores[~e.special] != 0).all()


# --- Loading --------------------------------------------------------------------------------------------------------


def saved(family: str, task: str, folder: Any) -> Any:
    model_for(family, task).save_pretrained(folder)
    tokenizer_for(family).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("bert", "text-classification"),
        ("bert", "question-answering"),
        ("bert", "token-classification"),
        ("bert", "fill-mask"),
        ("gpt2", "text-generation"),
        ("llama", "text-generation"),
    ],
)
def test_the_task_is_read_from_the_checkpoint(family, task, tmp_path):
    explainer = tl.load(saved(family, task, tmp_path))
    assert explainer.task.name == task
    assert not explainer.model.training
    if task in ("text-classification", "text-generation"):
        assert_equal(explainer.explain("the key"), explainer_for(family, task).explain("the key"))


def test_settings_go_to_from_pretrained(tmp_path):
    explainer = tl.load(str(saved("bert", "text-classification", tmp_path)), dtype=torch.float64)
    assert explainer.model.dtype == torch.float64
    assert explainer.explain("ok").scores.dtype == torch.float64


def test_an_unknown_task_lists_the_tasks(tmp_path):
    with pytest.raises(ValueError, match=r"no task 'sentiment'; tasks: .*text-classification.*token-classification"):
        tl.load(saved("bert", "text-classification", tmp_path), task="sentiment")


def test_a_checkpoint_without_a_head_is_refused(tmp_path):
    BertConfig(vocab_size=10).save_pretrained(tmp_path)
    with pytest.raises(
        tl.UnsupportedModelError, match=r"config.json names no architecture.*--task: text-classification"
    ):
        tl.load(tmp_path)


def test_the_model_inside_the_package_is_as_it_is():
    with pytest.raises(TypeError, match=r"dtype: settings are for a checkpoint .* tl.load\(\).model.double\(\)"):
        tl.load(dtype=torch.float64)
    with pytest.raises(
        ValueError, match="task='fill-mask': the model inside the package is a text-classification model"
    ):
        tl.load(task="fill-mask")
    assert tl.load(task="text-classification").task.name == "text-classification"


def test_the_error_says_why_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(TypeError, match="named by a text or a path; found int: 3"):
        tl.load(3)  # type: ignore[arg-type]
    for path in (tmp_path / "nowhere", str(tmp_path / "nowhere")):
        with pytest.raises(ValueError, match=r"there is no folder .*nowhere': expected a checkpoint there"):
            tl.load(path)


def test_layers_of_a_file_that_the_configuration_does_not_count_are_named(tmp_path):
    folder = saved("bert", "text-classification", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.warns(
        RuntimeWarning, match=r"1 in bert\.encoder\.layer.*left out: bert\.encoder\.layer\.1\. .*config\.json"
    ):
        explainer = tl.load(folder)
    assert explainer.model.config.num_hidden_layers == 1


def test_an_explanation_keeps_its_inputs():
    model, tokenizer = model_for("llama", "text-generation"), metaspace_bpe()
    explainer = tl.Explainer(model, tokenizer)
    assert explainer.model is model
    assert explainer.tokenizer is tokenizer
    assert explainer.task.name == "text-generation"


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (torch.zeros(3, dtype=torch.long), None, r"input_ids must be a tensor \[batch, token\].*\(3,\)"),
        ([[1, 2]], None, "input_ids must be a tensor.*found list"),
        (None, None, "input_ids must be a tensor.*found NoneType"),
        (torch.zeros(1, 0, dtype=torch.long), None, "input_ids is empty"),
        (torch.ones(1, 4, dtype=torch.long), torch.ones(1, 3), r"attention_mask must be.*\(1, 3\)"),
        (torch.ones(1, 4, dtype=torch.long), torch.zeros(1, 4), "hides every token of a row"),
        (torch.ones(1, 4), None, "whole numbers"),
        (torch.full((1, 4), 9999), None, "9999.*vocabulary"),
        (torch.full((1, 4), -1), None, "-1.*vocabulary"),
    ],
)
def test_token_ids_that_cannot_be(ids, mask, message):
    with pytest.raises(ValueError, match=message):
        tl.attribute(model_for("bert"), ids, mask, method="attcat", target=1)


@pytest.mark.parametrize(
    ("task", "target", "foil"),
    [
        ("text-classification", 1, 1),
        ("text-classification", [0, 1], [2, 1]),
        ("token-classification", (2, 1), 1),
        ("question-answering", (2, 3), (2, 3)),
    ],
)
def test_a_target_is_not_compared_with_itself(task, target, foil):
    with pytest.raises(ValueError, match="there is nothing to compare"):
        tl.attribute(model_for("bert", task), models.ids(2, 6), method="attcat", target=target, foil=foil)


def test_a_boolean_mask_is_a_mask():
    ids, mask = torch.randint(5, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    mask[0, 4:] = 0
    one, two = (tl.attribute(model_for("bert"), ids, m, method="attcat", target=1) for m in (mask, mask.bool()))
    assert torch.equal(one, two)


# --- What an explainer is -------------------------------------------------------------------------------------------


def test_the_repr_of_an_explainer_names_model_and_task():
    explainer = tl.load()
    assert repr(explainer) == "<Explainer of BertForSequenceClassification, text-classification: negative, positive>"
    table = explainer._repr_html_()
    assert all(fact in table for fact in ("negative, positive", "6 layers of 12 heads", "512 tokens"))
    assert ".generate" not in table
    language_model = explainer_for("gpt2", task="text-generation")
    assert ".generate(prompt)" in language_model._repr_html_()
    assert "labels" not in language_model._repr_html_()


def test_label_names_cannot_break_the_table():
    explainer = copy.copy(tl.load())
    config = copy.deepcopy(explainer.model.config)
    config.id2label = {0: "<b>bad", 1: "good"}
    changed = copy.copy(explainer.model)
    changed.config = config
    assert "&lt;b&gt;bad, good" in tl.Explainer(changed, explainer.tokenizer)._repr_html_()
