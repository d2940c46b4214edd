"""Mask-LRP: the paper's formula, the released behavior, and what tells them apart."""

from typing import Any

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near, tolerance
from tests.tokenizers_ import explainer_for
from tokenlight.explain.execute import execute_plan
from tokenlight.explain.plan import plan_passes
from tokenlight.heads.mask import HeadMask
from tokenlight.methods import METHODS
from tokenlight.methods.config import MethodConfig
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.record.recorder import record
from tokenlight.rules.tables import ZPLUS
from tokenlight.tasks import task_of
from tokenlight.tasks.targets import BatchTarget, ResolvedTarget
from tokenlight.text.batch import Batch

ONES = torch.ones(2, 4)
SOME = models.SOME_HEADS
TOP_ONLY = torch.tensor([[0.0] * 4, [1.0, 0.0, 1.0, 0.0]])
CASES = [(family, models.default_task(family)) for family in models.FAMILIES]
CASES += [("bert", "question-answering"), ("roberta", "fill-mask"), ("qwen2", "text-classification")]


def attribute(method="mask_lrp", family="bert", task=None, **options):
    task = task or models.default_task(family)
    model = models.model(family, task, torch.float64)
    return tl.attribute(model, models.ids(), method=method, target=models.target(task), **options)


def run(method, model, resolved=ResolvedTarget((1,)), **options):  # noqa: B008
    ids, instrumented = models.ids(), InstrumentedModel(model)
    method_config, target = (
        MethodConfig.for_model(METHODS[method], options, model),
        BatchTarget(task_of(instrumented.model), (resolved,) * len(ids)),
    )
    return execute_plan(instrumented, Batch(ids, torch.ones_like(ids)), plan_passes(target, [method_config]))[1][0]


def relevances(heads, variant="paper", family="bert", **options) -> Any:
    """The stored attention relevance of every block, and what the gates stopped: [batch]."""
    method_config = MethodConfig.for_model(
        METHODS["mask_lrp"], {"heads": heads, "variant": variant, **options}, models.model(family)
    )
    (gated, _) = method_config.passes(split=False)
    ids = models.ids()
    instrumented = InstrumentedModel(models.model(family, dtype=torch.float64))
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * len(ids))
    trace: Any = record(instrumented, Batch(ids, torch.ones_like(ids)), target, gated).traces[0]
    if variant == "paper":
        return [signal.relevance for signal in trace.attention], trace
    pairs = zip(trace.attention, trace.gated, trace.values, strict=True)
    return [a.value * (g.grad @ v.value.mT) for a, g, v in pairs], trace


@pytest.mark.parametrize(("family", "task"), CASES)
def test_all_ones_is_transformer_attribution(family, task):
    ours = attribute(family=family, task=task, heads=ONES)
    theirs = attribute("transformer_attribution", family, task)
    assert_near(ours, theirs, growth=SHARES)


def test_all_ones_in_the_two_groups_is_transformer_attribution_too():
    both = HeadMask(ONES.double(), torch.zeros(2, 4).double())
    assert_near(attribute(heads=both), attribute("transformer_attribution"), growth=SHARES)


@pytest.mark.parametrize(("family", "task"), CASES)
def test_relevance_is_conserved_with_a_head_in_every_block(family, task):
    model = models.model(family, task, torch.float64)
    masked = run(
        "zplus_lrp", model, resolved=models.task(task).resolve_target_ids(models.target(task), None), heads=SOME
    )
    for name in ("residual", "masked_share"):
        assert_near(masked.extras[name], 0, size=masked.scores, growth=SHARES)
    assert (masked.extras["bias_share"].abs() < 0.05).all()  # relevance at exact zeros: rare, but of some families
    assert not torch.allclose(masked.scores, attribute("zplus_lrp", family, task))


@pytest.mark.parametrize("options", [{}, {"empty": "drop"}, {"empty": "residual"}, {"normalize": False}])
def test_transformer_attribution_with_heads_is_mask_lrp(options):
    assert (TOP_ONLY[0] == 0).all()  # a block without a lit head, where `empty` decides
    theirs = attribute("transformer_attribution", heads=TOP_ONLY, **options)
    assert torch.equal(attribute(heads=TOP_ONLY, **options), theirs)


def test_two_groups_are_normalized_as_the_paper_says():
    """By hand at the last block: R_s and R_p are scaled by |ΣR_s| / (|ΣR_s| + |ΣR_p|) · ΣR / ΣR_s."""
    syntactic, positional = torch.zeros(2, 4).double(), torch.zeros(2, 4).double()
    syntactic[1, [0, 2]] = 1
    positional[1, [2, 3]] = 1  # a head in both groups counts in both
    syntactic[0] = 1
    stored, _ = relevances(HeadMask(syntactic, positional))
    plain, _ = relevances(ONES)
    last = plain[1]  # [batch, head, query, key]: half of the relevance at the context
    per_head = 2 * last.sum((2, 3))
    s, p = per_head[:, [0, 2]].sum(1), per_head[:, [2, 3]].sum(1)
    size, total = s.abs() + p.abs(), per_head.sum(1)
    scale_s, scale_p = s.abs() / size * total / s, p.abs() / size * total / p
    expected = torch.zeros_like(last)
    expected[:, [0, 2]] += last[:, [0, 2]] * scale_s[:, None, None, None]
    expected[:, [2, 3]] += last[:, [2, 3]] * scale_p[:, None, None, None]
    assert_near(stored[1], expected, growth=SHARES)


def test_equations_9_to_11_with_counts():
    """A head that follows two relations weighs twice in R_synt, and nothing normalizes the rows of Ā."""
    M_synt = torch.tensor([[1.0, 0, 2, 0], [2, 0, 1, 0]]).double()
    M_pos = torch.tensor([[0.0, 1, 1, 0], [0, 0, 1, 1]]).double()
    mask = HeadMask(M_synt / 2, M_pos / 2)  # as HeadStatistics.mask(count_relations=True) makes it
    stored, _ = relevances(mask)
    per_head = 2 * relevances(ONES)[0][1].sum((2, 3))  # [batch, head] at the last block: half of it goes to attention
    for text, R in enumerate(per_head):
        R_synt, R_pos, total = M_synt[1] * R, M_pos[1] * R, R.sum()
        size = R_synt.sum().abs() + R_pos.sum().abs()
        R_synt = R_synt * R_synt.sum().abs() / size * total / R_synt.sum()
        R_pos = R_pos * R_pos.sum().abs() / size * total / R_pos.sum()
        assert_near(2 * stored[1][text].sum((1, 2)), R_synt + R_pos, growth=SHARES)
        assert_near((R_synt + R_pos).sum(), total, size=R, growth=SHARES)  # conservation
    method_config = MethodConfig.for_model(METHODS["mask_lrp"], {"heads": mask}, models.model("bert"))
    target = BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * 3)
    batch = Batch(models.ids(), torch.ones_like(models.ids()))
    plain: Any = record(
        InstrumentedModel(models.model("bert", dtype=torch.float64)),
        batch,
        target,
        method_config.passes(split=False)[1],
    )
    gradients = [signal.gradient for signal in plain.traces[0].attention]
    first, last = (  # eq. 10; the paper counts blocks from the output, so eq. 11 has the last on the left
        (gradient * R).clamp_min(0).mean(1) + torch.eye(9).double()
        for gradient, R in zip(gradients, stored, strict=True)
    )
    assert_near(attribute(heads=mask, normalize=False), (last @ first)[:, 0], growth=SHARES)
    assert not torch.allclose(attribute(heads=mask), attribute(heads=mask, normalize=False))


def test_corruption_of_all_heads_is_transformer_attribution():
    """Whatever the mask counted: section 5.4 calls it a mask filled with ones, which is their GAE."""
    M_synt, M_pos = torch.tensor([[1.0, 0, 2, 0], [2, 0, 1, 0]]), torch.tensor([[0.0, 1, 1, 0], [0, 0, 1, 1]])
    mask = HeadMask(M_synt.double() / 2, M_pos.double() / 2, {"largest_count": 2})
    assert_near(attribute(heads=mask.corrupted(1)), attribute("transformer_attribution"), growth=SHARES)


def test_masking_a_head_changes_that_blocks_own_stored_relevance_in_the_paper_only():
    dark = ONES.clone()
    dark[1, 3] = 0
    paper, released = (relevances(dark, variant)[0][1] for variant in ("paper", "released"))
    assert (paper[:, 3] == 0).all()
    assert not torch.allclose(paper[:, 0], relevances(ONES)[0][1][:, 0])
    torch.testing.assert_close(released, relevances(ONES, "released")[0][1])


def test_the_released_variant_doubles_what_it_stores():
    twice, once = relevances(ONES, "released")[0], relevances(ONES)[0]
    for released, paper in zip(twice, once, strict=True):
        assert_near(released, 2 * paper, growth=SHARES)


def test_the_first_blocks_mask_has_no_effect_in_the_released_variant():
    dark_below = torch.stack([torch.zeros(4), SOME[1]])
    assert torch.equal(attribute(heads=SOME, variant="released"), attribute(heads=dark_below, variant="released"))
    assert not torch.allclose(attribute(heads=SOME), attribute(heads=dark_below))


def test_the_released_variant_loses_the_relevance_of_dark_heads():
    _, trace = relevances(SOME, "released")
    assert (trace.masked_share.abs() > 1e-3).all()
    _, trace = relevances(SOME)
    assert_near(trace.masked_share, 0, size=1, growth=SHARES)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_neox"])
def test_a_block_without_a_lit_head_drops_its_relevance_or_hands_it_on(family):
    dropped = attribute("zplus_lrp", family, heads=TOP_ONLY, empty="drop").sum(1)
    handed_on = attribute("zplus_lrp", family, heads=TOP_ONLY, empty="residual").sum(1)
    assert ((dropped - 1).abs() > 1e-3).all()
    assert_near(handed_on, 1, growth=SHARES)


@pytest.mark.parametrize("method", ["mask_lrp", "zplus_lrp"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_neox"])
def test_a_block_without_a_lit_head_is_as_if_all_of_its_heads_were_lit(method, family):
    filled = TOP_ONLY.clone()
    filled[0] = 1
    expected = attribute(method, family, heads=filled)
    assert torch.equal(attribute(method, family, heads=TOP_ONLY, empty="all"), expected)
    assert torch.equal(attribute(method, family, heads=TOP_ONLY), expected)  # the default
    assert not torch.allclose(attribute(method, family, heads=TOP_ONLY, empty="drop"), expected)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gpt_neox"])
def test_a_block_whose_heads_are_all_lit_for_want_of_one_conserves_relevance(family):
    assert_near(attribute("zplus_lrp", family, heads=TOP_ONLY, empty="all").sum(1), 1, growth=SHARES)


def test_a_block_without_a_lit_head_in_either_group_is_left_alone():
    """By hand: block 1 has one lit head, which takes all; block 0 has none, so what arrives there stays as it is."""
    syntactic, positional = torch.zeros(2, 4).double(), torch.zeros(2, 4).double()
    positional[1, 2] = 1
    (first, last), trace = relevances(HeadMask(syntactic, positional), empty="all")
    plain = relevances(ONES)[0][1]
    expected = torch.zeros_like(last)
    expected[:, 2] = plain[:, 2] * (plain.sum((1, 2, 3)) / plain[:, 2].sum((1, 2)))[:, None, None]
    assert_near(last, expected, growth=SHARES)
    assert (first.abs().sum((2, 3)) > 0).all()  # [batch, head]: every head of block 0 has its own relevance
    assert_near(trace.masked_share, 0, size=1, growth=SHARES)


def test_what_is_lost_is_reported_and_adds_up():
    explainer = explainer_for("bert")
    e = explainer.explain("it is a good movie", "zplus_lrp", heads=TOP_ONLY, empty="drop")
    parts = (float(e.scores.sum()), e.extras["bias_share"], e.extras["masked_share"])
    assert sum(parts) == pytest.approx(1, abs=tolerance(torch.float32, max(map(abs, parts))))
    assert abs(e.extras["masked_share"]) > 1e-3
    assert abs(explainer.explain("it is a good movie", "mask_lrp", heads=SOME).extras["masked_share"]) < 1e-3
    assert any("2 of 8 heads" in note for note in e.notes)


@pytest.mark.parametrize("method", ["lrp", "attn_lrp", "alpha_beta_lrp"])
def test_masked_relevance_still_adds_up_to_the_score(method):
    result = run(method, models.model("bert", dtype=torch.float64), heads=SOME)
    assert (result.extras["masked_share"].abs() > 1e-6).all()
    assert_near(result.extras["residual"], 0, size=result.scores, growth=SHARES)
    assert not torch.allclose(result.scores, attribute(method))


@pytest.mark.parametrize("method", ["lrp", "attn_lrp"])
def test_a_head_that_is_lit_half_passes_half(method):
    """Gates act linearly below one block: the last block's heads, halved, give the mean of lit and dark."""
    lit, dark, half = ONES.clone(), ONES.clone(), ONES.clone()
    dark[1], half[1] = 0.0, 0.5
    scores = [attribute(method, heads=heads) for heads in (lit, dark, half)]
    assert_near(scores[2], (scores[0] + scores[1]) / 2, size=torch.stack(scores[:2]))


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("empty", ["drop", "residual"])
def test_an_empty_mask_is_defined_and_said(variant, empty):
    e = explainer_for("bert").explain("it is a good movie", "mask_lrp", heads=ONES * 0, variant=variant, empty=empty)
    assert e.scores.isfinite().all()
    assert any("no head is lit: only the residual stream" in note for note in e.notes)
    if variant == "paper":
        assert (e.scores[1:] == 0).all()  # nothing but the row's own start is left


def test_an_empty_mask_lights_all_heads_by_default_and_says_so():
    explainer = explainer_for("bert")
    e = explainer.explain("it is a good movie", "mask_lrp", heads=ONES * 0)
    torch.testing.assert_close(e.scores, explainer.explain("it is a good movie", "transformer_attribution").scores)
    assert any("no head is lit: relevance flows through all heads" in note for note in e.notes)
    assert not any("residual stream" in note for note in e.notes)


def test_the_answer_of_the_model_never_changes():
    ids = models.ids()
    batch, target = (
        Batch(ids, torch.ones_like(ids)),
        BatchTarget(models.task("text-classification"), (ResolvedTarget((1,)),) * len(ids)),
    )
    plain = record(models.model("bert"), batch, target)
    for variant in ("paper", "released"):
        method_config = MethodConfig.for_model(
            METHODS["mask_lrp"], {"heads": SOME, "variant": variant}, models.model("bert")
        )
        (gated, _) = method_config.passes(split=False)
        masked = record(InstrumentedModel(models.model("bert", dtype=torch.float64)), batch, target, gated)
        assert_near(masked.output["logits"].float(), plain.output["logits"])
    assert gated.rules is ZPLUS


def test_an_answer_is_explained_from_where_it_stands():
    """The release spreads an answer's relevance over all positions; here only its own row has any in the last block."""
    model, ids = models.model("bert", "question-answering", torch.float64), models.ids(1)
    method_config = MethodConfig.for_model(METHODS["mask_lrp"], {"heads": SOME}, model)
    (gated, _) = method_config.passes(split=False)
    target = BatchTarget(
        models.task("question-answering"), (models.task("question-answering").resolve_target_ids((2, 5), None),)
    )
    traces = record(InstrumentedModel(model), Batch(ids, torch.ones_like(ids)), target, gated).traces
    assert [trace.rows.nonzero()[:, 1].tolist() for trace in traces] == [[2], [4]]
    for trace in traces:
        rows = trace.attention[-1].relevance.abs().sum((1, 3))[0]  # [query]
        assert rows.nonzero()[:, 0].tolist() == trace.rows[0].nonzero()[:, 0].tolist()


def test_methods_with_the_same_mask_share_their_pass():
    method_configs = [
        MethodConfig.for_model(METHODS[name], {"heads": SOME}, models.model("bert"))
        for name in ("mask_lrp", "zplus_lrp")
    ]
    assert method_configs[0].passes(False)[0].key == method_configs[1].passes(False)[0].key
    other = MethodConfig.for_model(METHODS["zplus_lrp"], {"heads": ONES}, models.model("bert"))
    assert other.passes(False)[0].key != method_configs[0].passes(False)[0].key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "comes without a head mask"),
        ({"heads": torch.ones(3, 4)}, "has 3 layers of 4 heads"),
        ({"heads": torch.ones(4)}, r"tensor \[layer, head\]"),
        ({"heads": 2 * ONES}, "numbers from 0 to 1"),
        ({"heads": 7}, "HeadMask, a mask file or a tensor"),
        ({"heads": "nowhere.json"}, "there is no head mask 'nowhere.json'"),
        ({"heads": ONES, "variant": "published"}, "'paper' or 'released'"),
        ({"heads": ONES, "empty": "keep"}, "'all', 'drop' or 'residual'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        attribute(**options)


def test_no_mask_is_every_head():
    explainer = explainer_for("bert")
    every = explainer.explain("it is a good movie", "mask_lrp", heads=None)
    torch.testing.assert_close(every.scores, explainer.explain("it is a good movie", "transformer_attribution").scores)
