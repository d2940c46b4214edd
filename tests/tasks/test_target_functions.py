"""Target functions: in a batch, a text has the number and the scores that it has alone."""

import pytest
import torch

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for

TEXTS = ["it is a good movie", "they are not bad at all and the key is here", "the book is a good book"]
READS_PADDING = {
    "token-classification": lambda output: output.logits[..., 1].mean(1),
    "fill-mask": lambda output: output.logits[:, -1, 7],
    "text-generation": lambda output: output.logits[..., 7].amax(1),
    "question-answering": lambda output: output.start_logits.logsumexp(1),
}


def padded(lengths: tuple[int, ...] = (9, 4, 6)) -> tuple[torch.Tensor, torch.Tensor]:
    ids = models.ids(len(lengths), max(lengths))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask + (1 - mask), mask


@pytest.mark.parametrize("method", ["gradient_x_input", "erasure", "attn_lrp"])
@pytest.mark.parametrize("task", READS_PADDING)
def test_a_function_of_all_tokens_sees_no_padding(task, method):
    explainer = explainer_for("gpt2" if task == "text-generation" else "bert", task)
    texts = [("who is it ?", text) for text in TEXTS] if task == "question-answering" else TEXTS
    function = READS_PADDING[task]
    together = explainer.explain(texts, method, target=function)
    for text, e in zip(texts, together, strict=True):
        alone = explainer.explain(text, method, target=function)
        assert e.score == pytest.approx(alone.score, rel=1e-5)
        assert_near(e.scores, alone.scores)


@pytest.mark.parametrize("task", [task for task in READS_PADDING if task != "text-generation"])
def test_padding_that_a_function_reads_in_rows_of_your_own_is_refused(task):
    ids, mask = padded()
    with pytest.raises(ValueError, match=r"the target function reads token \d of a text, which is padding"):
        tl.attribute(models.model("bert", task), ids, mask, method="gradient_x_input", target=READS_PADDING[task])


def test_functions_that_read_real_tokens_of_padded_rows_are_not_refused():
    ids, mask = padded()
    model, last = models.model("gpt2", "text-generation"), mask.sum(1) - 1
    function = lambda output: output.logits[torch.arange(3), last, 7]  # noqa: E731  # of the whole batch
    scores = tl.attribute(model, ids, mask, method="gradient_x_input", target=function)
    assert_near(scores, tl.attribute(model, ids, mask, method="gradient_x_input", target=7))
    ids, mask = padded((3, 2))  # as many tokens as labels
    model = models.model("bert")
    scores = tl.attribute(model, ids, mask, method="gradient_x_input", target=lambda output: output.logits[:, 2])
    assert_near(scores, tl.attribute(model, ids, mask, method="gradient_x_input", target=2))


@pytest.mark.parametrize(
    "function",
    [
        lambda output: output.logits[:, 1] - output.logits.mean(),
        lambda output: output.logits.softmax(0)[:, 1],
    ],
)
def test_functions_that_mix_texts_are_refused(function):
    with pytest.raises(ValueError, match="the target function mixes texts"):
        tl.attribute(models.model("bert"), models.ids(), method="gradient_x_input", target=function)
    with pytest.raises(ValueError, match="the target function mixes texts"):  # here, with changed copies of the text
        tl.attribute(models.model("bert"), models.ids(1), method="erasure", target=function)
