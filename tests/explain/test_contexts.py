"""Scores over contexts equal those of explicit loops, and do not depend on batches or other methods."""

from copy import deepcopy
from typing import Any

import pytest
import torch
import transformers as hf

import tokenlight as tl
from tests import models
from tests.together import together
from tests.tokenizers_ import explainer_for
from tokenlight.common.errors import UnsupportedModelError
from tokenlight.explain.contexts import CONVERGED, WHOLE_TEXT_WEIGHT, unit_numbers
from tokenlight.explain.memory import Shape, need_of_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.record.recorder import DEFAULT_RECORD_OPTIONS, RecordOptions
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.context_draws import MOST, NONE, ROUND, Contexts

PAD = 1
COUNT = 6
AVERAGED = ["gradient_x_input", "attcat", "lrp", "attn_lrp", "transformer_attribution", "alti", "rollout"]


def contexts_by_hand(ids: torch.Tensor, keep: tuple[int, ...] = ()) -> torch.Tensor:
    """[context, token]"""
    units, number = [], 0
    for i in range(len(ids)):
        units.append(-1 if i in keep else number)
        number += i not in keep
    return Contexts(COUNT).present(ids, torch.tensor(units))


def mean_by_hand(whole: torch.Tensor, samples: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """Of one text: [token] from [context, token]; a pair counts once, the whole text as a pair."""
    means = []
    for token in range(len(whole)):
        total = WHOLE_TEXT_WEIGHT * float(whole[token])
        for pair in range(0, len(samples), 2):
            seen = [float(samples[c, token]) for c in (pair, pair + 1) if there[c, token]]
            total += sum(seen) / len(seen)
        means.append(total / (len(samples) // 2 + WHOLE_TEXT_WEIGHT))
    return torch.tensor(means, dtype=whole.dtype)


@pytest.mark.parametrize("gap", ["pad", "mask", "hide", "delete"])
@pytest.mark.parametrize("method", ["attn_lrp", "attcat"])
def test_as_written_out(gap, method):
    model = deepcopy(explainer_for("bert").inner).double()
    explainer = tl.Explainer(model, explainer_for("bert").tokenizer)
    tokenized_text = explainer.encode(["it is not a good movie"])[0]
    ids, inside = torch.tensor([tokenized_text.input_ids]), len(tokenized_text) - 2
    there = contexts_by_hand(ids[0], keep=(0, len(tokenized_text) - 1))
    samples = torch.zeros(COUNT, len(tokenized_text), dtype=torch.float64)
    settings: dict[str, Any] = {"method": method, "target": 1}
    for c, stays in enumerate(there):
        if gap == "hide":
            samples[c] = tl.attribute(model, ids, stays[None].long(), **settings)[0]
        elif gap == "delete":
            samples[c, stays] = tl.attribute(model, ids[:, stays], **settings)[0]
        else:
            token = {"pad": explainer.tokenizer.pad_token_id, "mask": explainer.tokenizer.mask_token_id}[gap]
            samples[c] = tl.attribute(model, torch.where(stays, ids, token), **settings)[0]
    whole = tl.attribute(model, ids, **settings)[0]
    found = explainer.explain(tokenized_text.text, method, target=1, contexts=COUNT, removal=gap).scores
    assert inside > 4
    assert torch.allclose(found.double(), mean_by_hand(whole, samples, there), rtol=1e-5, atol=1e-7)
    assert not torch.allclose(found.double(), whole, atol=1e-4)


def mean_with_deletion(model, ids, there, target):
    """The contexts `there` of one text, whose other tokens are deleted, one after the other."""
    samples = torch.zeros(COUNT, ids.shape[1], dtype=torch.float64)
    for c, stays in enumerate(there):
        samples[c, stays] = tl.attribute(model, ids[:, stays], method="lrp", target=target)[0]
    return mean_by_hand(tl.attribute(model, ids, method="lrp", target=target)[0], samples, there)


def test_a_next_token_as_written_out():
    """Tokens are deleted; the one that the answer is read at stays."""
    model, ids = models.model("llama", "text-generation", torch.float64), models.ids(1, 6)
    expected = mean_with_deletion(model, ids, contexts_by_hand(ids[0], keep=(5,)), target=7)
    found = tl.attribute(model, ids, method="lrp", target=7, contexts=COUNT)
    assert torch.allclose(found[0], expected, atol=1e-10)


def test_an_extracted_answer_as_written_out():
    """Where it begins and ends are places in the text, which move when tokens before them are deleted."""
    model, ids = models.model("bert", "question-answering", torch.float64), models.ids(1, 8)
    there = contexts_by_hand(ids[0], keep=(3, 5))
    samples = torch.zeros(COUNT, 8, dtype=torch.float64)
    for c, stays in enumerate(there):
        moved = tuple(int(stays[:place].sum()) for place in (3, 5))
        samples[c, stays] = tl.attribute(model, ids[:, stays], method="lrp", target=(moved[0], moved[1] + 1))[0]
    expected = mean_by_hand(tl.attribute(model, ids, method="lrp", target=(3, 6))[0], samples, there)
    found = tl.attribute(model, ids, method="lrp", target=(3, 6), contexts=COUNT)
    assert torch.allclose(found[0], expected, atol=1e-10)


def test_every_unit_is_present_in_one_context_of_each_pair():
    ids, units = torch.arange(9), torch.tensor([-1, 0, 1, 2, 3, 4, 5, 6, -1])
    there = Contexts(8, seed=3).present(ids, units)
    assert there[:, [0, 8]].all()
    pairs = there.view(4, 2, 9)[:, :, 1:8]
    assert torch.equal(pairs[:, 0], ~pairs[:, 1])
    assert pairs[:, 0].sum(-1).tolist() == [4] * 4
    assert len(pairs[:, 0].unique(dim=0)) > 1
    assert torch.equal(there, Contexts(8, seed=3).present(ids, units))
    assert not torch.equal(there, Contexts(8, seed=4).present(ids, units))
    assert Contexts(4).present(torch.arange(3), torch.tensor([-1, 0, -1])).all()  # one unit: nothing to remove


@pytest.mark.parametrize(("family", "task"), models.USUAL)
def test_a_batch_equals_one_text_at_a_time(family, task):
    model = models.model(family, task, torch.float64)
    names = [name for name in AVERAGED if METHODS[name].fits(model)]
    ids, mask = models.ids(3, 8), torch.ones(3, 8, dtype=torch.long)
    lengths = (8, 5, 6)
    for row, length in enumerate(lengths):
        ids[row, length:], mask[row, length:] = PAD, 0
    options: Any = {name: {"contexts": 2} for name in names}
    target = models.target(task)
    both = together(model, names, ids, mask, target=target, **options)
    for row, length in enumerate(lengths):
        alone = together(model, names, ids[row : row + 1, :length], target=target, **options)
        for name in names:
            found, expected = both[name].scores[row], alone[name].scores[0]
            assert torch.allclose(found[:length], expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max())), name
            assert not found[length:].any()


def linear_model() -> hf.PreTrainedModel:
    """Its answer is linear in the embeddings: attention is even everywhere, the MLPs give nothing, and norms divide by
    the same number whatever they read, up to one in 10¹⁰."""
    torch.manual_seed(0)
    config = hf.BertConfig(**{**models.ENCODER, "layer_norm_eps": 1e10})
    model = hf.BertForTokenClassification(config).eval().double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm.weight" in name:
                parameter.fill_(1e5)
            elif "query" in name or "key" in name or ("output.dense" in name and "attention" not in name):
                parameter.zero_()
    return model


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp"])
def test_a_model_that_is_linear_in_its_tokens_has_the_same_scores_in_any_contexts(method):
    model, ids = linear_model(), models.ids(2, 8)
    expected = tl.attribute(model, ids, method=method, target=(3, 1))
    size = float(expected.abs().max())
    assert (expected.abs() > 1e-3 * size).all()  # every token counts
    for count in (2, 4, 10):
        found = tl.attribute(model, ids, method=method, target=(3, 1), contexts=count, removal="pad")
        assert torch.allclose(found, expected, atol=1e-6 * size)


def test_methods_share_the_passes_over_contexts(monkeypatch):
    ran: list[int] = []
    monkeypatch.setattr("tokenlight.model.instrumented.report_forward_pass", lambda: ran.append(1))
    model, ids = models.model("bert"), models.ids(2, 6)
    plain = ["gradient_x_input", "cat", "gradient_l2"]
    options: Any = {name: {"contexts": 4, "removal": "pad"} for name in plain}
    together(model, plain, ids, target=1, **options)
    shared, ran[:] = len(ran), []
    together(model, plain[:1], ids, target=1, gradient_x_input={"contexts": 4, "removal": "pad"})
    assert shared == len(ran)


def test_methods_with_and_without_contexts_in_one_call():
    explainer = explainer_for("bert")
    text = "it is a good movie"
    method_configs = {
        "plain": MethodConfig.for_model(METHODS["attn_lrp"], {}, explainer.inner),
        "few": MethodConfig.for_model(METHODS["attn_lrp"], {"contexts": 2}, explainer.inner),
        "more": MethodConfig.for_model(METHODS["attn_lrp"], {"contexts": 6}, explainer.inner),
        "asks": MethodConfig.for_model(METHODS["erasure"], {}, explainer.inner),
    }
    found = explainer.explain_configs(text, method_configs)
    for name, options in {"plain": {}, "few": {"contexts": 2}, "more": {"contexts": 6}}.items():
        assert torch.allclose(found[name].scores, explainer.explain(text, **options).scores, atol=1e-6), name
    assert len({one.target for one in found.values()}) == 1


def test_how_sure_it_is():
    explainer = explainer_for("bert")
    e = explainer.explain("it is a good movie and they are not bad", contexts=8)
    errors = e.maps["standard_error"]
    assert errors.shape == e.scores.shape
    assert float(e.extras["standard_error"]) == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-5)
    seeds = torch.stack(
        [explainer.explain(e.text, contexts=8, seed=seed).scores for seed in range(24)]
    )  # what another draw would have given
    measured, estimated = seeds.std(0).square().mean().sqrt(), errors.square().mean().sqrt()
    assert 0.5 < float(measured / estimated) < 2
    assert "bias_share" not in e.extras  # sums hold in each context, and not for their mean
    assert e.options["contexts"] == 8
    assert any("8 contexts" in note for note in e.notes)
    assert [word.error for word in e.words() if len(word.tokens) == 1] == [
        pytest.approx(float(errors[word.tokens[0]])) for word in e.words() if len(word.tokens) == 1
    ]
    again = tl.Explanation.from_dict(e.to_dict())
    assert torch.equal(again.maps["standard_error"], errors)
    assert "standard_error" not in explainer.explain(e.text, contexts=2).extras  # one pair is not enough to estimate it


def test_contexts_are_added_until_scores_converge():
    explainer = explainer_for("bert")
    texts = ["it is a good movie and they are not bad", "the key is here", "the book was written by a young author"]
    alone = [explainer.explain(text, contexts="auto") for text in texts]
    for text, e in zip(texts, alone, strict=True):
        used = int(e.extras["contexts"])
        assert used % ROUND == 0
        assert ROUND <= used <= MOST
        assert torch.allclose(e.scores, explainer.explain(text, contexts=used).scores, atol=1e-6)
        noise, spread = e.maps["standard_error"][1:-1].square().mean(), e.scores[1:-1].var(correction=0)
        assert used == MOST or float(noise) <= CONVERGED * float(spread) * 1.001
    for one, e in zip(explainer.explain(texts, contexts="auto"), alone, strict=True):
        assert torch.allclose(one.scores, e.scores, atol=1e-6)
    beside = explainer.explain_all(texts[0], ["attn_lrp", "attcat"], contexts="auto")  # each stops by itself
    assert torch.allclose(beside["attn_lrp"].scores, alone[0].scores, atol=1e-6)
    assert torch.allclose(
        beside["attcat"].scores, explainer.explain(texts[0], "attcat", contexts="auto").scores, atol=1e-6
    )


def test_answers_are_averaged_row_by_row():
    explainer = explainer_for("llama", "text-generation")
    prompt, answer = "who wrote the book ? the book was written by", (7, 9)
    whole = explainer.explain_answer(prompt, answer, contexts=0)
    found = explainer.explain_answer(prompt, answer, contexts=4)
    assert found.matrix.shape == whole.matrix.shape
    assert not torch.allclose(found.matrix, whole.matrix, atol=1e-4)
    later = torch.ones_like(found.matrix).tril(found.matrix.shape[1] - len(answer) - 1) == 0
    assert not found.matrix[later].any()  # nothing behind the token that is explained


@pytest.mark.parametrize("padding", [PAD, None])
def test_classifiers_that_find_the_end_of_a_text_by_padding(padding):
    """Shortened texts are padded with the model's padding id; without one, they run one by one."""
    model = deepcopy(models.model("llama", "text-classification", torch.float64))
    model.config.pad_token_id = padding
    ids = models.ids(1, 7)
    expected = mean_with_deletion(model, ids, contexts_by_hand(ids[0]), target=1)
    found = tl.attribute(model, ids, method="lrp", target=1, contexts=COUNT)
    assert torch.allclose(found[0], expected, atol=1e-10)


def test_tokens_that_the_target_reads_are_never_removed():
    model = models.model("bert", "question-answering")
    ids = models.ids(1, 8)
    for target, stay in (((2, 5), {2, 4}), ((0, 1), {0})):
        batch, selectors = question(model, ids, target)
        assert set((unit_numbers(batch, selectors)[0] < 0).nonzero()[:, 0].tolist()) == stay


def question(model: Any, ids: torch.Tensor, target: Any) -> Any:
    from tokenlight.explain.attribute_ids import raw_batch
    from tokenlight.model.instrumented import InstrumentedModel
    from tokenlight.record.recorder import record
    from tokenlight.tasks import task_of

    instrumented = InstrumentedModel(model)
    task, batch = task_of(model), raw_batch(ids, None, None, instrumented)
    return batch, record(instrumented, batch, BatchTarget(task, (task.resolve_target_ids(target, None),))).selectors


def test_contexts_in_little_memory_are_the_same():
    model, ids = models.model("bert", dtype=torch.float64), models.ids(2, 7)
    for method in ("attn_lrp", "transformer_attribution"):
        ordinary, saved = (
            tl.attribute(model, ids, method=method, target=1, contexts=4, removal="pad", low_memory=low)
            for low in (False, True)
        )
        assert torch.allclose(ordinary, saved, atol=1e-9)


def test_memory_is_foreseen_for_the_contexts_that_run_together():
    model = models.model("bert")
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),))

    def need(record_options: RecordOptions = DEFAULT_RECORD_OPTIONS, **options: Any) -> int:
        plan = plan_passes(target, [MethodConfig.for_model(METHODS["attn_lrp"], options, model)])
        return need_of_plan(Shape.of(model), plan, 1, 20, record_options)

    assert need(contexts=8) == pytest.approx(8 * need(), rel=0.01)
    assert need(RecordOptions(by_block=True), contexts=8) == need(RecordOptions(by_block=True))
    assert Contexts(8).together(4, 8000) == 4
    assert Contexts(100).together(1, 10) == 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contexts": 3}, "pairs"),
        ({"contexts": -2}, "pairs"),
        ({"contexts": True}, "pairs"),
        ({"contexts": 4, "removal": "nothing"}, "hide, mask, pad, delete"),
        ({"contexts": 4, "removal": ""}, "hide, mask, pad, delete"),
        ({"contexts": 4, "removal": "mask"}, "no mask token"),
        ({"contexts": 4, "seed": 0.5}, "whole number"),
        ({"contexts": 4, "detail": "layers"}, "detail"),
    ],
)
def test_impossible_combinations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tl.attribute(models.model("bert"), models.ids(), method="attn_lrp", target=1, **options)


def test_refusals_that_depend_on_the_model():
    with pytest.raises(TypeError, match="contexts"):
        tl.attribute(models.model("bert"), models.ids(), method="erasure", target=1, contexts=4)
    with pytest.raises(ValueError, match="end of a text by the padding"):
        tl.attribute(
            models.model("llama", "text-classification"), models.ids(), method="lrp", contexts=2, removal="pad"
        )
    settings: dict[str, Any] = {"target": lambda output: output.logits[:, 0], "contexts": 2, "removal": "delete"}
    with pytest.raises(ValueError, match="may count tokens"):
        tl.attribute(models.model("bert"), models.ids(), method="lrp", **settings)


def test_hiding_from_a_model_that_never_looks_at_the_mask_is_refused(monkeypatch):
    monkeypatch.setattr("tokenlight.explain.contexts.hidden_tokens_affect_others", lambda instrumented: True)
    with pytest.raises(UnsupportedModelError, match="another removal= than 'hide'"):
        tl.attribute(models.model("bert"), models.ids(), method="lrp", target=1, contexts=2, removal="hide")


def test_a_job_without_contexts_does_not_mention_them():
    assert not set(NONE) & set(explainer_for("bert").explain("it is a good movie").options)
    assert METHODS["attn_lrp"].all_options["contexts"] == 0
    own = set(METHODS["erasure"].options)  # its removal= is what replaces a removed token, not that of contexts
    assert not (set(NONE) - own) & set(METHODS["erasure"].all_options)
