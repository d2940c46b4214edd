"""Hiding tokens: what is read at a token that may attend to nothing would depend on padding and on later tokens."""

import copy

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests import models
from tests.rounding import SHARES, assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.diagnostics.tiny_models import tiny_model
from tokenlight.model.capture import Capture, CaptureSpec
from tokenlight.model.hiding import hide_tokens
from tokenlight.model.instrumented import InstrumentedModel
from tokenlight.text.batch import Batch

FIRST = lambda output: output.logits[:, 0, 7]  # noqa: E731


def logits_of(family: str, task: str, ids: list[int]) -> Tensor:
    model = copy.deepcopy(models.model(family, task))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def side_by_side(short: list[int], width: int) -> tuple[Tensor, Tensor]:
    """A short text beside a longer one: ids and mask."""
    ids = models.ids(2, width)
    ids[0, : len(short)] = torch.tensor(short)
    ids[0, len(short) :] = models.SMALL["pad_token_id"]
    mask = torch.ones_like(ids)
    mask[0, len(short) :] = 0
    return ids, mask


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_a_prompt_of_one_token_is_replaced_by_an_empty_text(family):
    model = models.model(family, "text-generation")
    start = models.SMALL["bos_token_id"]
    expected = logits_of(family, "text-generation", [9])[0, 7] - logits_of(family, "text-generation", [start])[0, 7]
    alone = tl.attribute(model, torch.tensor([[9]]), method="erasure", target=7)
    ids, mask = side_by_side([9], 6)
    beside = tl.attribute(model, ids, mask, method="erasure", target=7)
    assert abs(float(expected)) > 0.1
    assert_near(alone[0], expected[None])
    assert_near(beside[0, :1], alone[0])


@pytest.mark.parametrize(
    ("family", "task", "target"),
    [
        ("llama", "text-classification", 1),
        ("llama", "token-classification", (0, 1)),
        ("gpt2", "question-answering", (0, 2)),
        ("gpt2", "text-generation", FIRST),
        ("bert", "text-classification", 1),
        ("bert", "token-classification", (0, 1)),
    ],
)
def test_what_is_read_at_the_first_token_does_not_depend_on_padding(family, task, target):
    model = models.model(family, task)
    for length in (1, 3):
        if task == "question-answering" and length == 1:
            continue
        short = [9, 12, 30][:length]
        ids, mask = side_by_side(short, 6)
        alone = tl.attribute(model, torch.tensor([short]), method="erasure", target=target)
        beside = tl.attribute(model, ids, mask, method="erasure", target=target)
        assert_near(beside[0, :length], alone[0])
        assert float(alone.abs().max()) > 1e-3


@pytest.mark.parametrize("fused", [True, False])
def test_a_token_whose_whole_window_is_hidden_attends_to_itself(fused):
    model = copy.deepcopy(models.model("mistral", "text-generation"))
    window, tokens = models.SLIDING["sliding_window"], 7
    query, key = torch.arange(tokens)[:, None], torch.arange(tokens)
    hidden = key >= tokens - window
    seen = (key <= query) & (key > query - window) & ~hidden
    seen |= torch.eye(tokens, dtype=torch.bool) & ~seen.any(1, keepdim=True)
    model.set_attn_implementation("eager")
    ids = models.ids(1, tokens)
    mask = torch.zeros(1, 1, tokens, tokens).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits[0]

    instrumented = InstrumentedModel(model)
    for width in (tokens, tokens + 3):  # without and with padding
        padded = torch.full((1, width), models.SMALL["pad_token_id"])
        padded[:, :tokens] = ids
        real = (torch.arange(width) < tokens)[None]
        gone = real & (torch.arange(width) >= tokens - window)
        batch = hide_tokens(instrumented, Batch(padded, real.long()), gone)
        found = instrumented.run(batch, Capture(CaptureSpec(fused=fused))).logits[0, :tokens]
        assert_near(found, expected, growth=SHARES)


def test_the_first_token_of_a_chunk_is_hidden_alike_with_padding():
    model = tiny_model("llama4_text", "text-generation")
    short = [44, 6, 21, 31, 9]
    assert model.config.attention_chunk_size == len(short) - 1
    ids, mask = side_by_side(short, 9)
    alone = tl.attribute(model, torch.tensor([short]), method="erasure", target=7)
    beside = tl.attribute(model, ids, mask, method="erasure", target=7)
    assert_near(beside[0, : len(short)], alone[0], growth=SHARES)


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_an_encoder_hides_its_first_token_where_others_are_left(task):
    target = 1 if task == "text-classification" else (0, 1)
    ids = torch.tensor([[9, 12, 30]])
    scores = tl.attribute(models.model("bert", task), ids, method="erasure", target=target)
    model = copy.deepcopy(models.model("bert", task))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        full, hidden = model(ids).logits[0], model(ids, attention_mask=torch.tensor([[0, 1, 1]])).logits[0]
    fall = (full - hidden)[1] if task == "text-classification" else (full - hidden)[0, 1]
    assert_near(scores[0, :1], fall[None])


def test_the_first_token_of_an_answer_is_not_read_beside_later_ones():
    explainer = explainer_for("gpt2", "text-generation", dtype=torch.float64)
    prompt = "it"
    assert len(explainer.encode([prompt])[0]) == 1
    matrix = explainer.explain_answer(prompt, " is a good", "erasure", quantity="logit", progress=False).matrix
    alone = explainer.explain_answer(prompt, " is", "erasure", quantity="logit", progress=False).matrix
    single = explainer.explain(prompt, "erasure", target=" is", progress=False).scores
    assert_near(matrix[:1, :1], alone[:, :1])
    assert_near(torch.as_tensor(single), alone[0, :1])
    prompts, answers = [prompt, "it is a"], [" is", " good movie"]
    beside = explainer.explain_answer(prompts, answers, "erasure", quantity="logit", progress=False)
    assert_near(beside[0].matrix, alone)


def test_without_a_token_for_an_empty_text_nothing_can_be_hidden():
    model = copy.deepcopy(models.model("llama", "text-generation"))
    model.config.bos_token_id = model.config.eos_token_id = model.config.pad_token_id = None
    with pytest.raises(ValueError, match="bos_token_id or pad_token_id"):
        tl.attribute(model, torch.tensor([[9]]), method="erasure", target=7)


def test_a_function_reads_where_its_gradient_says():
    model, ids = models.model("llama", "text-generation"), models.ids(1, 5)
    by_index = tl.attribute(model, ids, method="erasure", target=7)
    by_function = tl.attribute(model, ids, method="erasure", target=lambda output: output.logits[:, -1, 7])
    assert_near(by_function, by_index)


@pytest.mark.parametrize("labels", [4, 7])
def test_as_many_labels_as_probing_tokens_are_still_labels(labels):
    explainer = explainer_for("bert", "text-classification", num_labels=labels)
    texts = ["it is", "it is a good movie"]
    together = explainer.explain(texts, "erasure", target=1, progress=False)
    for text, beside in zip(texts, together, strict=True):
        assert_near(beside.scores, explainer.explain(text, "erasure", target=1, progress=False).scores)


def test_windows_and_padding_on_the_left_are_refused():
    ids = models.ids(2, 9)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with pytest.raises(ValueError, match="attends within windows"):
        tl.attribute(models.model("mistral", "text-generation"), ids, mask, method="shapley_sampling", target=7)
    assert torch.isfinite(
        tl.attribute(models.model("llama", "text-generation"), ids, mask, method="shapley_sampling", target=7)
    ).all()


@pytest.mark.parametrize("removal", ["hide", "pad"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "opt", "roberta"])
@pytest.mark.parametrize("hidden", [0, 2])
def test_tokens_that_the_mask_hides_move_no_others(family, removal, hidden):
    """As the model counts its positions itself, with the same mask."""
    task = models.default_task(family)
    model, ids = models.model(family, task), models.ids(1, 7)
    mask = torch.ones_like(ids)
    mask[0, hidden] = 0
    if hidden == 0 and task == "text-classification":
        with pytest.raises(ValueError, match="pad on the right"):
            tl.attribute(model, ids, mask, method="erasure", target=1, removal=removal)
        return
    whole, token = (tl.attribute(model, ids, mask, method="erasure", target=models.target(task), removal=removal)), 4
    changed, other = ids.clone(), mask.clone()
    if removal == "hide":
        other[0, token] = 0
    else:
        changed[0, token] = models.SMALL["pad_token_id"]
    places = positions(family, ids, mask)
    with torch.no_grad():
        answers = [
            model(input_ids=one, attention_mask=seen, position_ids=places).logits[0]
            for one, seen in ((ids, mask), (changed, other))
        ]
    before, after = (answer[1] if task == "text-classification" else answer[-1, 7] for answer in answers)
    assert_near(whole[0, token], before - after, size=answers[0])


def positions(family: str, ids: Tensor, mask: Tensor) -> Tensor:
    """[batch, token] as the family counts them; where the first token is hidden, from the next one."""
    pad = models.SMALL["pad_token_id"]
    if family == "roberta":
        return (ids != pad).cumsum(1) + pad
    if family == "opt":
        return (mask.cumsum(1) - 1).clamp_min(0)
    return (torch.arange(ids.shape[1])[None] - mask.argmax(1)[:, None]).clamp_min(0)
