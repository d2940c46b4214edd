"""Long texts in windows: every token is read, and what windows say is put together where it belongs."""

import dataclasses
from itertools import pairwise

import pandas
import pytest
import torch

import tokenlight as tl
from tests.rounding import tolerance
from tests.tokenizers_ import explainer_for
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.corpus.windows import make_window, merge_explanations, split_into_windows
from tokenlight.text.tokenized_text import Text, TokenizedText

TEXT = "the book was written by a young author in Paris and the key is here on the table"
DIVIDED = "at not bad wrote on good is a key bad in rarely cabinet on to and author"
PAIR = ("who wrote the book ?", TEXT)


def whole(text: Text = TEXT, family: str = "bert") -> TokenizedText:
    return explainer_for(family).encode([text])[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama"])
@pytest.mark.parametrize(("size", "overlap"), [(8, 0), (8, 2), (9, 5), (12, 3)])
def test_windows_cover_the_text_in_order(family, size, overlap):
    tokenized_text = whole(family=family)
    windows = split_into_windows(tokenized_text, size, overlap)
    own = [[i for i in one.positions if tokenized_text.segments[i] == 0] for one in windows]
    added = [i for i, segment in enumerate(tokenized_text.segments) if segment is None]
    assert sorted({i for places in own for i in places}) == [i for i, s in enumerate(tokenized_text.segments) if s == 0]
    assert all(len(one.tokenized_text) == size for one in windows)
    assert all(set(added) <= set(one.positions) for one in windows)
    shared = [len(set(a) & set(b)) for a, b in pairwise(own)]
    assert shared[:-1] == [overlap] * (len(shared) - 1)
    assert shared[-1] >= overlap
    for one in windows:
        assert one.tokenized_text.input_ids == [tokenized_text.input_ids[i] for i in one.positions]
        assert one.tokenized_text.spans == [tokenized_text.spans[i] for i in one.positions]
        assert one.tokenized_text.text == tokenized_text.text


def test_of_a_pair_the_second_text_is_cut():
    tokenized_text = whole(PAIR)
    for one in split_into_windows(tokenized_text, 18, 4):
        assert one.tokenized_text.segments.count(0) == tokenized_text.segments.count(0)
        assert len(one.tokenized_text) == 18
    with pytest.raises(ValueError, match="first text of the pair"):
        split_into_windows(tokenized_text, 9, 2)
    with pytest.raises(ValueError, match="more than the overlap"):
        split_into_windows(whole(), 6, 4)


def test_tokens_count_less_where_their_window_is_cut():
    tokenized_text = whole()  # [CLS] 18 words [SEP]
    moving = list(range(1, len(tokenized_text) - 1))
    assert make_window(tokenized_text, moving, 0, 5).weights == [1, 5, 4, 3, 2, 1, 1]
    assert make_window(tokenized_text, moving, 3, 5).weights == [1, 1, 2, 3, 2, 1, 1]
    assert make_window(tokenized_text, moving, len(moving) - 5, 5).weights == [1, 1, 2, 3, 4, 5, 1]


def test_scores_are_averaged_by_weight():
    explainer, tokenized_text = explainer_for("bert"), whole("it is a good movie and they are")
    windows = split_into_windows(tokenized_text, 7, 2)
    assert [one.positions for one in windows] == [[0, 1, 2, 3, 4, 5, 9], [0, 4, 5, 6, 7, 8, 9]]
    template = explainer.explain("it is a good movie and they are", "gradient_x_input")
    scores = [torch.tensor([1.0, 2, 3, 4, 5, 6, 7]), torch.tensor([10.0, 20, 30, 40, 50, 60, 70])]
    found = [dataclasses.replace(template, scores=s, score=float(i)) for i, s in enumerate(scores)]
    merged = merge_explanations(tokenized_text, windows, found)
    four, five = (5 * 2 + 20 * 1) / 3, (6 * 1 + 30 * 2) / 3  # the left window is cut behind them, the right one before
    expected = torch.tensor([5.5, 2, 3, 4, four, five, 40, 50, 60, 38.5])
    torch.testing.assert_close(merged.scores, expected)
    assert merged.score == 0.5
    assert merged.tokens == tokenized_text.tokens
    assert "read in 2 windows" in merged.notes[-1]


def explained(tmp_path, texts, method="attn_lrp", family="bert", **settings):
    folder = tmp_path / "-".join(map(str, settings.values())) / "out"
    folder.parent.mkdir(parents=True)
    chosen = CorpusSettings(**settings)
    tl.explain_dataset(explainer_for(family), texts, folder, [method], settings=chosen, progress=False)
    return pandas.read_parquet(folder / "parts").to_dict("records")


def test_a_text_that_fits_is_read_as_without_windows(tmp_path):
    (plain,) = explained(tmp_path, [TEXT], chunk_rows=5)
    (fits,) = explained(tmp_path, [TEXT], window=50, overlap=10)
    expected = explainer_for("bert").explain(TEXT)
    assert fits["scores"].tolist() == plain["scores"].tolist() == expected.scores.tolist()
    assert fits["windows"] == 1
    assert (fits["score"], fits["probability"]) == (expected.score, expected.probability)


def test_windows_explain_one_label_and_say_what_the_model_says_on_average(tmp_path):
    texts = [DIVIDED, "it is a good movie", f"{TEXT} {TEXT}"]
    found = explained(tmp_path, texts, family="electra", window=10, overlap=4)
    explainer = explainer_for("electra")
    assert [row["windows"] for row in found] == [4, 1, 8]
    tokenized_text, one = explainer.encode([DIVIDED])[0], found[0]
    windows = [w.tokenized_text for w in split_into_windows(tokenized_text, 10, 4)]
    with torch.no_grad():
        logits = torch.stack([explainer.model(torch.tensor([w.input_ids])).logits[0] for w in windows])
    mean = logits.double().mean(0)
    label = int(mean.argmax())
    assert int(logits[0].argmax()) != label  # the first window alone would say something else
    assert one["prediction"] == one["target"] == explainer.task.name_of(label)
    assert one["probability"] == pytest.approx(float(mean.softmax(0)[label]), abs=tolerance(torch.float32, 1.0))
    assert one["score"] == pytest.approx(float(mean[label]), abs=tolerance(torch.float32, float(logits.abs().max())))
    assert one["tokens"].tolist() == tokenized_text.tokens
    assert one["truncated"] == 0
    # The first word is in the first window only, which is explained for the label of the whole.
    first = explainer.explain_tokenized(windows[:1], method_configs(explainer), target=label)["attn_lrp"][0]
    assert one["scores"][1] == pytest.approx(
        float(first.scores[1]), abs=tolerance(torch.float32, float(first.scores.abs().max()))
    )


def method_configs(explainer):
    from tokenlight.corpus.explain_dataset import make_configs

    return make_configs(explainer, ["attn_lrp"], None)


def test_without_windows_what_does_not_fit_is_noted(tmp_path):
    text = " ".join(["good"] * 400)
    (row,) = explained(tmp_path, [text], method="gradient_x_input", chunk_rows=7)
    assert row["truncated"] == 400 + 2 - 300
    assert any("too long" in note for note in row["notes"])
    (row,) = explained(tmp_path, [text], method="gradient_x_input", window=100)
    assert row["truncated"] == 0
    assert len(row["tokens"]) == 402


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 500}, "reads 300 tokens at most"),
        ({"window": 10, "overlap": 10}, "overlap by 0 to 9"),
        ({"overlap": 3}, "set window, the number of tokens"),
        ({"window": 0}, "positive"),
    ],
)
def test_windows_that_make_no_sense_are_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        explained(tmp_path, [TEXT], **settings)


def test_windows_are_for_classifiers(tmp_path):
    with pytest.raises(ValueError, match="text-generation"):
        tl.explain_dataset(
            explainer_for("gpt2", "text-generation"), [TEXT], tmp_path / "out", settings=CorpusSettings(window=10)
        )
