"""Answers of language models: every token of an answer by all tokens before it."""

import copy
from dataclasses import replace
from typing import Any

import pandas
import pytest
import torch

import tokenlight as tl
from tests import models
from tests.tokenizers_ import explainer_for, model_for, tokenizer_for
from tokenlight.common.progress import on_backward_pass
from tokenlight.explain import passes
from tokenlight.explain.memory import Shape, need_of_plan
from tokenlight.explain.options import RunOptions
from tokenlight.explain.plan import plan_passes
from tokenlight.explain.resolve import answer_request
from tokenlight.methods import METHODS, find_method
from tokenlight.methods.config import MethodConfig
from tokenlight.results.explained_answer import ExplainedAnswer
from tokenlight.tasks.targets import BatchTarget

PROMPT, ANSWER = "The keys to the cabinet", " are on the table. It is a good movie"
# Added up over the answer's tokens, explanations of these methods are that of the whole answer. The others take only
# the positive part of a gradient, start from 1, or take lengths, so that a sum is not the sum of its parts.
LINEAR = (
    "gradient_x_input",
    "attn_lrp",
    "lrp",
    "raw_attention",
    "rollout",
    "alti_logit",
    "erasure",
    "leave_one_out",
    "integrated_gradients",
    "smooth_grad",
    "expected_gradients",
    "shapley_sampling",
)
DECODERS = [family for family, task in models.COMBINATIONS if task == "text-generation"]


@pytest.fixture(scope="module")
def explainer():
    return explainer_for("llama", "text-generation", dtype=torch.float64)


def apart(one, other):
    return float((one - other).abs().max())


@pytest.mark.parametrize("method", LINEAR)
def test_rows_add_up_to_the_answer(explainer, method):
    answer = explainer.explain_answer(PROMPT, ANSWER, method, progress=False, **models.quick_options(method))
    whole = explainer.explain(PROMPT, method, target=ANSWER, progress=False, **models.quick_options(method))
    total = answer.total()
    assert apart(total.scores, whole.scores) < 1e-10
    assert total.score == pytest.approx(whole.score)
    assert total.indices == whole.indices == answer.ids
    assert total.extras["answer_share"] == pytest.approx(whole.extras["answer_share"])
    assert whole.scores.abs().max() > 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_a_row_is_the_explanation_of_that_token_with_the_text_before_it(explainer, method):
    if not METHODS[method].fits(explainer.inner):
        pytest.skip("the method is not defined for the model")
    answer = explainer.explain_answer(PROMPT, ANSWER, method, progress=False, **models.quick_options(method))
    step = 3
    begun = explainer.explain_answer(
        PROMPT, answer.ids[: step + 1], method, progress=False, **models.quick_options(method)
    )
    alone = begun.matrix[step]
    assert apart(answer.matrix[step, : len(alone)], alone) < 1e-10
    assert not answer.matrix[step, len(alone) - 1 :].any()
    assert answer.log_probabilities[step] == pytest.approx(float(begun.log_probabilities[step]))


# Methods for which a row is not what `explain` gives for the text before the token; docs/answers.md says why.
OTHER_ROWS = ("context_lrp", "leave_one_out", "contextcite")
SHORT = 6  # tokens of which shapley_sampling asks about all sets, with 10 permutations


def row_and_explanation(method, prompt, step, **options):
    """Of one token of the answer, and the same token with all the text before it as the prompt."""
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)
    answer = explainer.explain_answer(prompt, ANSWER, method, quantity="logit", progress=False, **options)
    text = prompt + explainer.tokenizer.decode(answer.ids[:step])
    alone = explainer.explain(text, method, target=answer.ids[step], progress=False, **options)
    assert alone.tokens == answer.tokens[: len(alone.tokens)]
    return answer.matrix[step, : len(alone.scores)], alone.scores


@pytest.mark.parametrize("method", METHODS)
def test_a_row_equals_explain_for_the_text_before_it(method):
    if not METHODS[method].fits(explainer_for("gpt2", "text-generation").inner):
        pytest.skip("the method is not defined for the model")
    row, alone = row_and_explanation(method, "The keys. To the cabinet", 7, **models.quick_options(method))
    if method in OTHER_ROWS:
        assert apart(row, alone) > 1e-4
    else:
        assert apart(row, alone) < 1e-10


@pytest.mark.parametrize("method", ["leave_one_out", "contextcite"])
def test_units_of_the_prompt_are_those_of_a_text_without_the_answer(method):
    """The first token has nothing of the answer before it, which `explain` would take for a part of the text."""
    row, alone = row_and_explanation(method, "The keys. To the cabinet", 0)
    assert apart(row, alone) < 1e-10


def test_contexts_are_drawn_for_the_whole_answer():
    row, alone = row_and_explanation("attn_lrp", "The keys. To the cabinet", 7, contexts=2)
    assert apart(row, alone) > 1e-4


def test_shapley_values_of_a_short_text_are_exact_and_those_of_an_answer_are_drawn():
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)
    before = len(explainer.encode(["it is"])[0])
    short, exact = row_and_explanation("shapley_sampling", "it is", SHORT - before)
    assert len(exact) == SHORT
    assert apart(short, exact) > 1e-6
    longer, drawn = row_and_explanation("shapley_sampling", "it is", SHORT + 1 - before)
    assert len(drawn) == SHORT + 1
    assert apart(longer, drawn) < 1e-10


@pytest.mark.parametrize("family", DECODERS)
def test_a_row_equals_attribute_for_the_ids_before_it(family):
    explainer = explainer_for(family, "text-generation", dtype=torch.float64)
    ids = tuple(models.ids(1, 4)[0].tolist())
    answer = explainer.explain_answer("it is", ids, "attn_lrp", quantity="logit", progress=False)
    before = explainer.encode(["it is"])[0].input_ids
    for step in range(len(ids)):
        row = torch.tensor([[*before, *ids[:step]]])
        alone = tl.attribute(explainer.model, row, method="attn_lrp", target=ids[step])[0]
        assert apart(answer.matrix[step, : row.shape[1]], alone) < 1e-10


@pytest.mark.parametrize("quantity", ["logit", "log_probability"])
@pytest.mark.parametrize("method", ["attn_lrp", "lrp"])
def test_every_row_conserves(explainer, method, quantity):
    answer = explainer.explain_answer(PROMPT, ANSWER, method, quantity=quantity, progress=False)
    assert answer.extras["residual"].abs().max() < 1e-10
    shares = sum(answer.extras[name] for name in ("bias_share", "softmax_deficit") if name in answer.extras)
    assert apart(answer.matrix.sum(1) + shares, answer.numbers) < 1e-10


def test_the_gradient_of_the_log_probability():
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)  # keeps double precision all the way
    answer = explainer.explain_answer(PROMPT, ANSWER, "gradient_x_input", quantity="log_probability", progress=False)
    row = explainer.encode([PROMPT])[0].input_ids
    ids = torch.tensor([[*row, *answer.ids]])
    embeddings = explainer.inner.get_input_embeddings()(ids).detach().requires_grad_()
    chances = explainer.inner(inputs_embeds=embeddings).logits.log_softmax(-1)
    for step, token in enumerate(answer.ids):
        one = chances[0, len(row) - 1 + step, token]
        (gradient,) = torch.autograd.grad(one, embeddings, retain_graph=True)
        assert apart(answer.matrix[step], (gradient * embeddings.detach()).sum(-1)[0]) < 1e-10
        assert float(answer.log_probabilities[step]) == pytest.approx(one.item())


def test_methods_that_ask_again_compare_log_probabilities():
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)  # keeps double precision all the way
    settings = {"quantity": "log_probability", "progress": False}
    erased = explainer.explain_answer("it is", " a good", "erasure", **settings)
    ids = torch.tensor([[*explainer.encode(["it is"])[0].input_ids, *erased.ids]])
    seen = torch.ones_like(ids)
    seen[0, 1] = 0
    places = torch.arange(ids.shape[1])[None]  # hiding a token moves no other
    logits = explainer.inner(ids, attention_mask=seen, position_ids=places).logits[0, -len(erased) - 1 : -1]
    left = logits.log_softmax(-1).gather(-1, torch.tensor(erased.ids)[:, None])[:, 0].detach()
    assert apart(erased.matrix[:, 1], erased.log_probabilities - left) < 1e-10
    path = explainer.explain_answer("it is", " a good", "integrated_gradients", steps=40, **settings)
    assert path.extras["completeness"].abs().max() < 1e-3 * path.matrix.sum(1).abs().max()  # falls with more steps


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("method", ["attn_lrp", "rollout", "erasure"])
def test_prompts_and_answers_of_different_lengths_are_the_same_together(explainer, method, low_memory):
    prompts, answers = [PROMPT, "it is"], [ANSWER, " a good movie"]
    together = explainer.explain_answer(prompts, answers, method, low_memory=low_memory, progress=False)
    for prompt, answer, found in zip(prompts, answers, together, strict=True):
        alone = explainer.explain_answer(prompt, answer, method, progress=False)
        assert found.tokens == alone.tokens
        assert apart(found.matrix, alone.matrix) < 1e-10
        assert apart(found.log_probabilities, alone.log_probabilities) < 1e-10


def test_signals_of_a_token_are_read_before_the_next_token_is_recorded(explainer, monkeypatch):
    """Memory does not grow with the answer."""
    calls, real = [], passes.read_parts
    monkeypatch.setattr(passes, "read_parts", lambda *given: calls.append("read") or real(*given))
    with on_backward_pass(lambda: calls.append("part")):
        found = explainer.explain_answer(PROMPT, ANSWER, "attn_lrp", progress=False)
    assert calls == ["part", "read"] * len(found)


def test_memory_for_the_logits_of_an_answer_is_foreseen(explainer):
    needs = []
    for answer in (" is", ANSWER):
        asked = answer_request(explainer.task, explainer.encode([PROMPT])[0], answer, "logit")
        method_config = MethodConfig.for_model(find_method("attn_lrp"), {}, explainer.inner)
        plan = plan_passes(BatchTarget(explainer.task, (asked.target,)), [method_config])
        needs.append(need_of_plan(Shape.of(explainer.inner), plan, 1, 100, RunOptions().record_options))
        count = len(asked.target.continuation)
    assert needs[1] - needs[0] >= 8 * (count - 2) * len(explainer.tokenizer)


@pytest.mark.parametrize(
    "method", ["erasure", "integrated_gradients", "smooth_grad", "expected_gradients", "shapley_sampling"]
)
def test_methods_that_ask_again_read_all_tokens_of_an_answer_from_the_same_passes(explainer, method):
    from tokenlight.common.progress import on_forward_pass

    def passes(answer, **settings):
        calls = []
        with on_forward_pass(lambda: calls.append(1)):
            settings |= models.quick_options(method)
            found = explainer.explain_answer("it is", answer, method, progress=False, **settings)
        return len(calls), found

    count, found = passes((7, 8, 9))
    assert count == passes((7,))[0]
    _, careful = passes((7, 8, 9), low_memory=True)
    assert apart(found.matrix, careful.matrix) < 1e-10


# --- Parts of an answer ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer(explainer):
    return explainer.explain_answer(PROMPT, ANSWER, progress=False)


def test_parts_are_named_by_text_tokens_or_sentence(answer):
    assert answer.answer == ANSWER
    assert answer.of(sentence=0).target + " " + answer.of(sentence=1).target == ANSWER.strip()
    both = answer.of(sentence=0).scores + answer.of(sentence=1).scores
    assert apart(both, answer.total().scores) < 1e-10
    table = answer.of("table")
    places = [i for i, span in enumerate(answer.spans[answer.prompt_length :]) if span[0] < 17 and span[1] > 12]
    assert table.target == "table"
    assert torch.equal(table.scores, answer.of(tokens=places).scores)
    assert table.given == answer.ids[: places[0]]
    assert torch.equal(answer.of(tokens=2).scores, answer.matrix[2, : answer.prompt_length])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"text": "zebra"}, "occurs 0 times"),
        ({"text": "a"}, r"occurs \d+ times"),
        ({"sentence": 2}, "there is no sentence 2: the answer has 2"),
        ({"tokens": 99}, "found 99"),
        ({"tokens": []}, "no token"),
        ({}, "in one way"),
        ({"text": "table", "sentence": 0}, "in one way"),
    ],
)
def test_missing_tokens_are_an_error(answer, what, message):
    with pytest.raises(ValueError, match=message):
        answer.of(**what)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"text": 3}, "found 3: name tokens with tokens="),
        ({"tokens": "are"}, "tokens= is a number, a slice or a list of numbers, counted from 0; found 'a'"),
        ({"tokens": 1.5}, "found 1.5"),
        ({"tokens": True}, "found True"),
        ({"sentence": "a"}, "sentence= is the number of a sentence, counted from 0; found 'a'"),
    ],
)
def test_selections_without_tokens_are_an_error(answer, what, message):
    with pytest.raises(TypeError, match=message):
        answer.of(**what)


def test_tokens_are_explained_in_their_order(answer):
    backwards = answer.of(tokens=slice(3, 0, -1))
    assert backwards == answer.of(tokens=slice(1, 4))


def test_metrics_measure_the_explained_tokens(explainer, answer):
    """Point 0 of a curve is the probability of the part, given what stands before it."""
    from tokenlight.metrics.evaluate import draw_curves

    table = answer.of("table")
    curve = draw_curves(explainer, [table])[0]
    steps = slice(len(table.given), len(table.given) + len(table.indices))
    assert float(curve.log_probabilities[0]) == pytest.approx(float(answer.log_probabilities[steps].sum()))
    assert set(table.evaluate()) == {"aopc", "log_odds", "comprehensiveness", "sufficiency"}


def test_scattered_tokens_have_no_probability(answer):
    with pytest.raises(ValueError, match="give target="):
        answer.of(tokens=[0, 3]).evaluate()


@pytest.mark.parametrize("name", ["answer.json", "answer.parquet"])
def test_saved_and_loaded(answer, tmp_path, name):
    answer.save(tmp_path / name)
    loaded = ExplainedAnswer.load(tmp_path / name)
    assert loaded == answer
    assert torch.equal(loaded.matrix, answer.matrix)
    assert loaded.matrix.dtype == answer.matrix.dtype
    assert loaded.of("table") == answer.of("table")
    with pytest.raises(ValueError, match="not a saved answer"):
        ExplainedAnswer.from_dict(answer.total().to_dict())


def test_other_parquet_files_are_no_answers(tmp_path):
    pandas.DataFrame({"text": ["a"]}).to_parquet(tmp_path / "texts.parquet")
    with pytest.raises(ValueError, match="holds no saved answer; it has the columns text"):
        ExplainedAnswer.load(tmp_path / "texts.parquet")
    (tmp_path / "bad.parquet").write_text("{}")
    with pytest.raises(ValueError, match="not a Parquet file"):
        ExplainedAnswer.load(tmp_path / "bad.parquet")


# --- Through the answer ---------------------------------------------------------------------------------------------


def test_propagation_through_the_answer_reaches_the_prompt(answer):
    through = answer.through()
    length = answer.prompt_length
    assert not through.matrix[:, length:].any()
    assert apart(through.matrix.sum(1), answer.matrix.sum(1)) < 1e-10
    assert through.total().extras["answer_share"] == 0
    # By hand for the second token: what the first took goes where the first token's own relevance came from.
    first, second = answer.matrix[0, :length], answer.matrix[1]
    assert apart(through.matrix[1, :length], second[:length] + second[length] * first / first.sum()) < 1e-10
    assert apart(through.matrix[0], answer.matrix[0]) < 1e-10


def test_the_published_form_takes_positive_shares(answer):
    shares = answer.through("cage").matrix[:, : answer.prompt_length]
    assert bool((shares >= 0).all())
    assert apart(shares.sum(1), torch.ones(len(answer), dtype=shares.dtype)) < 1e-10


def by_the_books(matrix, length, sink, hops):
    """FlashTrace's recursion as its released code has it: hop 0 from the output span, then from the reasoning before
    it, weighted by what each of its tokens took; each hop counts as much as reached the reasoning until then."""

    def positive(vector):
        vector = vector.clamp(min=0)
        return vector / (vector.sum() + 1e-12)

    total = positive(matrix[sink].sum(0))
    thinking = slice(length, length + sink.start)
    observed, weights = total[:length].clone(), total[thinking]
    ratio = float(weights.sum())
    for _ in range(hops):
        total = positive(sum(w * row for w, row in zip(weights / (weights.sum() + 1e-12), matrix, strict=False)))
        observed += ratio * total[:length]
        weights = total[thinking]
        ratio *= float(weights.sum())
    return observed


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_flashtrace_follows_a_sentence_back_in_hops(answer, hops):
    length = answer.prompt_length
    first = len(answer.of(sentence=0).indices)
    found = answer.through("flashtrace", hops=hops)
    last = found.of(sentence=1)
    expected = by_the_books(answer.matrix, length, slice(first, len(answer)), hops)
    assert apart(last.scores, expected) < 1e-9
    assert float(last.scores.sum()) + last.extras["answer_share"] == pytest.approx(1)
    if hops == 1:
        assert torch.equal(answer.through("flashtrace").matrix, found.matrix)


def test_cage_substitutes_backwards_as_released(answer):
    rows = answer.matrix.clamp(min=0)
    rows = rows / rows.sum(1, keepdim=True)
    length, step = answer.prompt_length, len(answer) - 1
    expected = rows[step].clone()
    for k in reversed(range(step)):
        share = expected[length + k].clone()
        expected[length + k] = 0
        expected += share * rows[k]
    assert apart(answer.through("cage").matrix[step], expected) < 1e-10


def test_propagating_scores_that_nearly_cancel_adds_a_note(answer):
    assert all("nearly cancel" not in note for note in answer.through("cage").notes)
    matrix = torch.zeros_like(answer.matrix)
    matrix[:2, 0], matrix[:2, 1], matrix[1, answer.prompt_length] = 1.0, -0.99, 1.0  # the first row adds up to 0.01
    (note,) = (n for n in replace(answer, matrix=matrix).through().notes if "nearly cancel" in n)
    assert "up to 199 times" in note


def test_through_is_a_keyword_too(explainer, answer):
    assert torch.equal(explainer.explain_answer(PROMPT, ANSWER, through=True).matrix, answer.through().matrix)
    assert torch.equal(explainer.explain_answer(PROMPT, ANSWER, through="cage").matrix, answer.through("cage").matrix)
    with pytest.raises(ValueError, match="exact, cage, flashtrace; found 'inexact'"):
        answer.through("inexact")
    with pytest.raises(ValueError, match="hops= is a number from 0 for the form 'flashtrace'; found 2 for 'cage'"):
        answer.through("cage", hops=2)


# --- Writing one ----------------------------------------------------------------------------------------------------


def test_a_generated_answer_is_explained(explainer):
    written = explainer.generate(PROMPT, max_new_tokens=5, do_sample=False)
    inputs = torch.tensor([explainer.encode([PROMPT])[0].input_ids])
    expected = explainer.model.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=5, do_sample=False
    )
    assert written.ids == tuple(expected[0, inputs.shape[1] :].tolist())
    found = written.explain("attn_lrp", progress=False)
    assert found.ids == written.ids
    assert [some[0].index for some in found.alternatives] == list(written.ids)  # it took the likeliest each time


def test_a_seed_repeats_what_was_drawn(explainer):
    drawn = [explainer.generate(PROMPT, max_new_tokens=8, do_sample=True, seed=seed).ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    state = torch.random.get_rng_state()
    explainer.generate(PROMPT, max_new_tokens=2, do_sample=True, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_prompt_and_an_answer_that_do_not_fit(explainer):
    with pytest.raises(ValueError, match=r"prompt and answer have \d+ tokens, the model reads"):
        explainer.explain_answer(PROMPT, ANSWER * 60)
    with pytest.raises(ValueError, match="an empty one"):
        explainer.explain_answer(PROMPT, "")
    with pytest.raises(ValueError, match="2 answers for 1 prompts"):
        explainer.explain_answer([PROMPT], [ANSWER, ANSWER])
    with pytest.raises(ValueError, match="quantity must be one of"):
        explainer.explain_answer(PROMPT, ANSWER, quantity="odds")


def test_only_language_models_write():
    with pytest.raises(ValueError, match="text-classification model"):
        explainer_for("bert").generate("it is good")
    with pytest.raises(ValueError, match="text-classification model"):
        explainer_for("bert").explain_answer("it is good", "and bad")


def test_characters_of_several_tokens():
    explainer = explainer_for("gpt2", "text-generation")
    answer = explainer.explain_answer(PROMPT, " 😀 東京", "gradient_x_input", progress=False)
    assert answer.answer == " 😀 東京"
    pieces = [answer.answer[slice(*span)] for span in answer.spans[answer.prompt_length :]]
    assert "".join(dict.fromkeys(pieces)) == "😀東京"
    assert all(pieces[1:5])  # every byte belongs to its character, as in prompts
    assert answer.of("😀").target == "😀"
    assert answer.of("😀").indices == answer.ids[1:5]


def test_a_foil_of_any_length_is_a_difference(explainer):
    alone = tuple(
        explainer.tokenizer.encode(" is", add_special_tokens=False)
    )  # as ids, a single token counts as an answer, too
    one, other = (explainer.explain(PROMPT, "attn_lrp", target=some, progress=False) for some in (ANSWER, alone))
    both = explainer.explain(PROMPT, "attn_lrp", target=ANSWER, foil=" is", progress=False)
    assert apart(both.scores, one.scores - other.scores) < 1e-10
    assert both.score == pytest.approx(one.score - other.score)
    assert (both.target, both.foil) == (ANSWER, " is")
    with pytest.raises(ValueError, match="nothing to compare"):
        explainer.explain(PROMPT, target=ANSWER, foil=ANSWER)
    with pytest.raises(ValueError, match="needs a target"):
        explainer.explain(PROMPT, foil=ANSWER)


def test_targets_of_one_and_of_several_tokens_in_one_call(explainer):
    targets = [ANSWER, " is", None]
    together = explainer.explain([PROMPT, "it", "they are"], target=targets, progress=False)
    alone = [
        explainer.explain(t, target=x, progress=False) for t, x in zip([PROMPT, "it", "they are"], targets, strict=True)
    ]
    assert all(apart(one.scores, other.scores) < 1e-10 for one, other in zip(together, alone, strict=True))


# --- dropout -------------------------------------------------------------------------------------------------------


def training_explainer():
    model: Any = copy.deepcopy(model_for("gpt2", "text-generation", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5))
    model.train(True)
    model.transformer.h[0].mlp.eval()  # modes are not all the same
    return tl.Explainer(model, tokenizer_for("gpt2"))


def test_a_model_that_is_being_trained_writes_without_dropout_and_stays_as_it_is():
    explainer = training_explainer()
    model: Any = explainer.model
    modes = [module.training for module in model.modules()]
    weights = {name: (weight.data_ptr(), weight.requires_grad) for name, weight in model.named_parameters()}
    settings, seen = {**vars(model.config)}, []
    hook = model.register_forward_hook(lambda module, args, output: seen.append(module is model))
    plain = copy.deepcopy(model).eval()
    ids = torch.tensor([explainer.tokenizer.encode(PROMPT)])
    expected = plain.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    seen.clear()
    answers = {explainer.generate(PROMPT, max_new_tokens=6, do_sample=False).ids for _ in range(4)}
    hook.remove()
    assert answers == {tuple(expected[0, ids.shape[1] :].tolist())}
    assert seen  # forward hooks are part of what the model computes
    assert not any(seen)
    with pytest.raises(ValueError, match="num_return_sequences"):
        explainer.generate(PROMPT, max_new_tokens=2, do_sample=True, num_return_sequences=2)
    with pytest.raises(Exception, match="nonsense"):
        explainer.generate(PROMPT, nonsense=3)
    assert [module.training for module in model.modules()] == modes
    assert {**vars(model.config)} == settings
    after = {name: (weight.data_ptr(), weight.requires_grad) for name, weight in model.named_parameters()}
    assert after == weights


def test_temperatures_that_overflow_are_refused(explainer):
    for temperature in (1e-320, 1e-9):
        with pytest.raises(ValueError, match=r"temperature is 0 .* or a number from 0\.01"):
            explainer.generate("The keys", do_sample=True, temperature=temperature)
