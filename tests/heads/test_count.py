"""Head statistics against a count by hand on planted attention; masks, their controls and their files."""

import copy
import json
import os
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizer

import tokenlight as tl
from tests.model.test_behavior_probes import mobilebert
from tests.tokenizers_ import TOKENIZERS, explainer_for, model_for
from tokenlight.data.data_source import DataSource
from tokenlight.data.read import parse_source, read_parsed_texts
from tokenlight.heads import count as counting
from tokenlight.heads.count import align, count_heads
from tokenlight.heads.mask import HeadMask, choose_heads, roles
from tokenlight.heads.parses import Parse, ParsedWord, conllu_parses, spacy_parses
from tokenlight.heads.statistics import RELATIONS, HeadStatistics
from tokenlight.model.fingerprint import fingerprint, same_model
from tokenlight.text.tokenize import encode

NUMBERS = {label: i for i, labels in enumerate(RELATIONS.values()) for label in labels}


def parse(text: str, *links: tuple[str, str | None, str], segment: int = 0) -> Parse:
    """Words with their syntactic head and relation, in order."""
    words, place = [], 0
    spans = []
    for form, _, _ in links:
        start = text.index(form, place)
        spans.append((start, start + len(form)))
        place = start + len(form)
    forms = [form for form, _, _ in links]
    for span, (_, head, relation) in zip(spans, links, strict=True):
        words.append(ParsedWord(segment, span, None if head is None else forms.index(head), relation))
    return Parse(text, tuple(words))


PARSES = [
    parse(
        "unbelievable films are rarely believable",
        ("unbelievable", "films", "amod"),
        ("films", "believable", "nsubj"),
        ("are", "believable", "cop"),
        ("rarely", "believable", "advmod"),
        ("believable", None, "root"),
    ),
    parse("it is a good movie", ("it", "movie", "nsubj"), ("is", "movie", "cop"), ("a", "movie", "det"),
          ("good", "movie", "amod"), ("movie", None, "root")),
    parse("who wrote the book ?", ("who", "wrote", "nsubj"), ("wrote", None, "root"), ("the", "book", "det"),
          ("book", "wrote", "dobj"), ("?", "wrote", "punct")),
]  # fmt: skip


def by_hand(explainer: tl.Explainer, parses: list[Parse], direction: str = "dependent-head") -> Any:
    """Slow, literal, one text at a time, from the attention that transformers itself returns."""
    model = copy.deepcopy(explainer.model)
    model.set_attn_implementation("eager")
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    hits, pairs = torch.zeros(4, layers, heads, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    offsets: dict[int, Any] = {}
    for one in parses:
        encoded = explainer.tokenizer(one.text, return_tensors="pt", return_offsets_mapping=True)
        spans = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            attention = model(**encoded, output_attentions=True).attentions
        owner = {}  # word number -> tokens
        for token, (start, end) in enumerate(spans):
            for number, word in enumerate(one.words):
                if start < end and start < word.span[1] and end > word.span[0]:
                    owner.setdefault(number, []).append(token)
        for layer in range(layers):
            for head in range(heads):
                best = attention[layer][0, head].argmax(-1).tolist()
                for query, key in enumerate(best):
                    offsets.setdefault(key - query, torch.zeros(layers, heads, dtype=torch.long))[layer, head] += 1
                for number, word in enumerate(one.words):
                    if word.relation in NUMBERS and word.head is not None:
                        ends = (number, word.head) if direction == "dependent-head" else (word.head, number)
                        hits[NUMBERS[word.relation], layer, head] += best[owner[ends[0]][0]] in owner[ends[1]]
        for word in one.words:
            if word.relation in NUMBERS:
                pairs[NUMBERS[word.relation]] += 1
    return hits, pairs, offsets


@pytest.mark.parametrize("direction", ["dependent-head", "head-dependent"])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta", "gpt2", "llama"])
def test_counts_equal_a_count_by_hand(family, direction, monkeypatch):
    monkeypatch.setattr(counting, "CHUNK", 2)  # so that sums over chunks are part of it
    explainer = explainer_for(family, "text-generation" if family in ("gpt2", "llama") else "text-classification")
    counts = count_heads(explainer, PARSES, direction=direction)
    hits, pairs, offsets = by_hand(explainer_for(family, explainer.task.name), PARSES, direction)
    assert torch.equal(counts.hits, hits)
    assert torch.equal(counts.pairs, pairs)
    assert counts.offsets.keys() == offsets.keys()
    assert all(torch.equal(counts.offsets[offset], offsets[offset]) for offset in offsets)
    assert counts.tokens == sum(len(explainer.tokenizer(one.text)["input_ids"]) for one in PARSES)
    assert counts.distances[NUMBERS["nsubj"]] == Counter({-3: 1, -4: 1, -1: 1})
    assert counts.distances[NUMBERS["obj"]] == Counter({2: 1})
    assert (counts.texts, counts.cut_off) == (3, 0)


def test_planted_heads_are_found(monkeypatch):
    """Head 0 of layer 0 looks one back, head 1 of layer 1 at the syntactic head, the others at [CLS]."""
    explainer = explainer_for("bert")
    tokenized_texts = explainer.encode([one.text for one in PARSES])
    heads_of = {}
    for one, tokenized_text in zip(PARSES, tokenized_texts, strict=True):
        found, _ = align(one, tokenized_text, NUMBERS, "dependent-head")
        heads_of[tuple(tokenized_text.input_ids)] = {pair.query: pair.start for pair in found}
    real = counting.StrongestCapture.add
    seen: dict[str, Any] = {}

    def add(self: Any, name: str, tensor: Any) -> Any:
        if name == "attention":
            tensor = torch.zeros_like(tensor)
            tensor[..., 0] = 1.0
            layer = len(self.strongest)
            for b, ids in enumerate(seen["ids"].tolist()):
                head_of = next(heads for key, heads in heads_of.items() if list(key) == ids[: len(key)])
                for q in range(tensor.shape[2]):
                    if layer == 0:
                        tensor[b, 0, q, max(q - 1, 0)] = 2.0
                    if layer == 1 and q in head_of:
                        tensor[b, 1, q, head_of[q]] = 2.0
        return real(self, name, tensor)

    collate = explainer.collate

    def spy(rows: Any, device: Any) -> Any:
        batch = collate(rows, device)
        seen["ids"] = batch.input_ids
        return batch

    monkeypatch.setattr(counting.StrongestCapture, "add", add)
    monkeypatch.setattr(explainer, "collate", spy)
    counts = count_heads(explainer, PARSES)
    assert (counts.accuracy[:, 1, 1] == 1).all()
    assert counts.accuracy.sum() == len(RELATIONS)
    back = counts.offsets[-1][0, 0]
    assert int(back) == counts.tokens - counts.texts  # all but the first token of each text
    mask = counts.mask(syntax_margin=-0.2)
    assert mask.syntactic.nonzero().tolist() == [[1, 1]]
    assert mask.positional.nonzero().tolist() == [[0, 0]]
    grid = roles(mask)
    assert (grid[0][0].kind, grid[0][0].label) == ("positional", "-1")
    assert grid[1][1].kind == "syntactic"
    assert grid[1][0].kind == "dark"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_and_tokens_are_aligned_by_characters(name):
    tokenizer = TOKENIZERS[name]()
    (tokenized_text,) = encode(tokenizer, [PARSES[0].text], None)
    pairs, missed = align(PARSES[0], tokenized_text, NUMBERS, "dependent-head")
    assert missed == 0
    text = str(PARSES[0].text)
    expected = [("unbelievable", "films"), ("films", "believable"), ("rarely", "believable")]
    for pair, (dependent, head) in zip(pairs, expected, strict=True):
        assert text[tokenized_text.spans[pair.query][0] :].startswith(dependent)
        assert text[tokenized_text.spans[pair.start][0] : tokenized_text.spans[pair.end - 1][1]] == head


def test_pairs_of_texts_are_aligned_in_their_own_text():
    words = (ParsedWord(0, (0, 2), 1, "nsubj"), ParsedWord(0, (3, 5), None, "root"))
    second = (ParsedWord(1, (0, 4), 3, "nsubj"), ParsedWord(1, (5, 8), None, "root"))
    both = Parse(("it is", "they are"), words + second)
    (tokenized_text,) = explainer_for("bert").encode([both.text])
    pairs, _ = align(both, tokenized_text, NUMBERS, "dependent-head")
    assert [
        (tokenized_text.tokens[p.query], tokenized_text.tokens[p.start], tokenized_text.segments[p.query])
        for p in pairs
    ] == [
        ("it", "is", 0),
        ("they", "are", 1),
    ]


def test_truncated_words_are_counted():
    long = "it is " * 200 + "a good movie"
    words = (
        ParsedWord(0, (len(long) - 10, len(long) - 6), 1, "amod"),
        ParsedWord(0, (len(long) - 5, len(long)), None, ""),
    )
    counts = count_heads(explainer_for("bert"), [Parse(long, words)])
    assert (counts.cut_off, int(counts.pairs.sum())) == (1, 0)


def test_a_parse_of_another_text_is_refused():
    (tokenized_text,) = explainer_for("bert").encode(["it is a good movie"])
    with pytest.raises(ValueError, match="another text"):
        align(PARSES[0], tokenized_text, NUMBERS, "dependent-head")


def test_counting_continues_from_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "CHUNK", 1)
    explainer, path = explainer_for("bert"), tmp_path / "counts"
    whole = count_heads(explainer, PARSES)

    def breaking():
        yield from PARSES[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_heads(explainer, breaking(), checkpoint=path)
    asked = []

    def behind(done):
        asked.append(done)
        return iter(PARSES[done:])

    resumed = count_heads(explainer, behind, checkpoint=path)
    assert asked == [2]
    assert resumed.to_dict(rare=0) == whole.to_dict(rare=0)
    assert count_heads(explainer, PARSES, checkpoint=path).to_dict() == whole.to_dict()  # all there already
    with pytest.raises(ValueError, match="another direction"):
        count_heads(explainer, PARSES, checkpoint=path, direction="head-dependent")
    with pytest.raises(ValueError, match="another fingerprint"):
        count_heads(explainer_for("electra"), PARSES, checkpoint=path)
    path.write_text("{")
    with pytest.raises(ValueError, match="not a checkpoint"):
        count_heads(explainer, PARSES, checkpoint=path)


def test_a_text_that_cannot_be_read_is_not_counted():
    """It is counted among those that were read, so that counting goes on behind it."""
    explainer = explainer_for("bert")
    whole = count_heads(explainer, PARSES)
    with pytest.warns(RuntimeWarning, match="1 text skipped. The first: the text .* has no tokens of its own"):
        found = count_heads(explainer, [PARSES[0], Parse("\u200b", ()), *PARSES[1:]])
    assert found.texts == whole.texts + 1
    assert torch.equal(found.hits, whole.hits)
    with (
        pytest.warns(RuntimeWarning, match="1 text skipped"),
        pytest.raises(ValueError, match="none of the 1 texts can be read"),
    ):
        count_heads(explainer, [Parse("\u200b", ())])


def test_rows_without_text_are_skipped_and_reported(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("it is a good movie\n\n \nthey are not bad\n")
    with pytest.warns(RuntimeWarning, match=r"2 rows of texts.txt skipped. The first: .*line 2: .*empty"):
        assert list(read_parsed_texts(DataSource(path))) == ["it is a good movie", "they are not bad"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"direction": "up"}, "direction must be one of"), ({"relations": {}}, "at least one relation"), ({}, "no texts")],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        count_heads(explainer_for("bert"), [], **settings)


def statistics() -> HeadStatistics:
    """2 layers of 3 heads; 10 words of one relation, 100 tokens."""
    return HeadStatistics(
        relations=("nsubj", "obj"),
        pairs=torch.tensor([10, 0]),
        hits=torch.tensor([[[5, 6, 7], [0, 10, 2]], [[0] * 3] * 2]),
        distances=(Counter({-1: 5, -2: 3, 4: 2}), Counter()),
        offsets={-1: torch.tensor([[80, 81, 0], [0, 0, 0]]), 0: torch.tensor([[0, 0, 95], [0, 0, 0]])},
        tokens=100,
        texts=4,
        cut_off=0,
        direction="dependent-head",
        source="by hand",
        model="m",
    )


def test_thresholds_are_the_papers():
    counts = statistics()
    assert counts.thresholds().tolist() == pytest.approx([0.6, 0.1])
    mask = counts.mask()
    assert mask.syntactic.tolist() == [[0, 0, 1], [0, 1, 0]]  # 0.6 is not above 0.6; a relation never seen lights none
    assert mask.positional.tolist() == [[0, 1, 0], [0, 0, 0]]  # nor is 0.8 above 0.8; offset 0 is not counted
    assert counts.mask(count_self=True).positional.tolist() == [[0, 1, 1], [0, 0, 0]]
    assert counts.mask(relations=["obj"]).syntactic.sum() == 0
    assert counts.mask(0.0, 0.0).syntactic.tolist() == [[0, 1, 1], [0, 1, 0]]
    with pytest.raises(ValueError, match="'det' was not counted"):
        counts.mask(relations=["det"])


def test_relations_are_counted_as_in_equations_6_to_8():
    """M_synt is a sum over relations, M_pos a sum over offsets; the largest entry of a mask is 1."""
    counts = replace(
        statistics(),
        pairs=torch.tensor([10, 10]),
        hits=torch.tensor([[[9, 6, 8], [0, 7, 2]], [[8, 1, 9], [0, 1, 2]]]),
        distances=(Counter({1: 5, -1: 5}), Counter({2: 4, 1: 6})),
    )
    offsets = {offset: share.double() / counts.tokens for offset, share in counts.offsets.items()}
    M_synt, M_pos = torch.zeros(2, 3).double(), torch.zeros(2, 3).double()
    for b in range(2):
        for m in range(3):
            for k, distances in enumerate(counts.distances):
                lambdas = [n / distances.total() for n in distances.values()]
                a_k = int(counts.hits[k, b, m]) / int(counts.pairs[k])
                M_synt[b, m] += 1 if a_k > max(lambdas) + 0.1 else 0
            M_pos[b, m] += sum(1 for i, share in offsets.items() if i != 0 and share[b, m] > 0.8)
    assert M_synt.tolist() == [[2, 0, 2], [0, 1, 0]]
    mask = counts.mask(count_relations=True)
    assert torch.equal(mask.syntactic * 2, M_synt)
    assert torch.equal(mask.positional * 2, M_pos)
    assert torch.equal(counts.mask().syntactic, M_synt.clamp_max(1))
    assert mask.made["count_relations"] is True
    # A head that is let in counts for one relation, half of what the strongest heads count for.
    let_in = (mask.lit == 0) & (mask.corrupted(0.5).lit > 0)
    assert mask.corrupted(0.5).syntactic[let_in].tolist() == [0.5]


def test_masks_and_statistics_are_equal_after_saving_and_loading(tmp_path):
    mask = statistics().mask()
    mask.save(tmp_path / "m.json")
    loaded = HeadMask.load(tmp_path / "m.json")
    assert torch.equal(loaded.syntactic, mask.syntactic)
    assert torch.equal(loaded.positional, mask.positional)
    assert (loaded.made, loaded.model, str(loaded)) == (mask.made, "m", str(mask))
    assert loaded.statistics is not None
    assert loaded.statistics.to_dict() == statistics().to_dict()
    assert torch.equal(loaded.statistics.mask(0.0).lit, statistics().mask(0.0).lit)
    plain = json.loads((tmp_path / "m.json").read_text())
    assert plain["made"]["position_share"] == 0.8
    assert plain["statistics"]["texts"] == 4
    assert "[0, 0, 1]" in (tmp_path / "m.json").read_text()  # a row of the matrix is a line one can read


@pytest.mark.parametrize("seed", range(5))
def test_controls_are_exact_in_count_and_seeded(seed):
    mask = statistics().mask()  # 3 of 6
    control = mask.random(seed)
    assert (control.count, mask.count) == (3, 3)
    assert torch.equal(control.lit, mask.random(seed).lit)
    for share, count in ((0.0, 3), (1 / 3, 4), (2 / 3, 5)):
        corrupted = mask.corrupted(share, seed)
        assert corrupted.count == count
        assert (corrupted.lit >= mask.lit).all()
        assert torch.equal(corrupted.positional, mask.positional)
    assert torch.equal(mask.corrupted(1).groups, torch.stack([torch.ones(2, 3), torch.zeros(2, 3)]).double())
    assert len({tuple(mask.random(s).lit.flatten().tolist()) for s in range(20)}) > 5
    with pytest.raises(ValueError, match="from 0 to 1"):
        mask.corrupted(1.5)
    assert mask.only("positional").count == 1
    with pytest.raises(ValueError, match="'syntactic' or 'positional'"):
        mask.only("both")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "m.json"
    for text, message in (
        ("{", "which is a JSON file"),
        ("[]", "is not a head mask"),
        ('{"format": "tokenlight.heads", "version": 9}', "version 9"),
        ('{"format": "tokenlight.heads", "version": 1}', "damaged"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            HeadMask.load(path)
    for wrong in ({"made": None}, {"made": "by hand"}, {"model": 3}, {"fingerprint": ["a"]}, {"fingerprint": None}):
        HeadMask.by_hand([[1, 0], [0, 1]]).save(path)
        path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
        with pytest.raises(ValueError, match="damaged head mask"):
            HeadMask.load(path)


def test_a_mask_belongs_to_its_model():
    explainer = explainer_for("bert")
    mask = count_heads(explainer, PARSES).mask()
    assert choose_heads(mask, explainer.model) is mask
    assert choose_heads(mask, copy.deepcopy(model_for("bert")).half()) is mask  # the same weights, rounded
    with pytest.raises(ValueError, match="whose weights are not those of"):
        choose_heads(mask, model_for("electra"))
    assert choose_heads(mask.lit, model_for("electra")) is not None  # asked for by hand


def test_fingerprints_tell_models_apart():
    one, other = fingerprint(model_for("bert")), fingerprint(model_for("electra"))
    assert same_model(one, one)
    assert not same_model(one, other)
    assert not same_model((), ())


DATA = Path(os.environ.get("TOKENLIGHT_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.skipif(not (DATA / "ud").is_dir(), reason="needs Universal Dependencies treebanks: set TOKENLIGHT_DATA")
def test_gold_trees_and_a_parser_find_the_same_heads():
    parses = list(islice(conllu_parses(DATA / "ud" / "en_ewt-ud-dev.conllu"), 300))
    explainer = tl.load()
    gold = count_heads(explainer, parses, progress=False)
    parsed = count_heads(explainer, spacy_parses(parse.text for parse in parses), progress=False)
    for i, relation in enumerate(gold.relations):
        both = torch.stack([gold.accuracy[i].flatten(), parsed.accuracy[i].flatten()])
        assert torch.corrcoef(both)[0, 1] > 0.9, relation
    assert gold.accuracy[gold.relations.index("obj")].argmax() == 2 * 12 + 0  # layer 2, head 0


def test_a_relation_that_does_not_occur_selects_no_head():
    mask = statistics().mask(-1.0)
    assert {role.relation for row in roles(mask) for role in row} == {"nsubj"}


def test_a_changed_file_is_not_resumed(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a good film\n")
    before = parse_source(path).name
    path.write_text("a bad film\n")
    assert parse_source(path).name != before


def test_relations_that_share_a_label_are_refused():
    with pytest.raises(ValueError, match="the relations 'obj' and 'dobj' both count the label 'dobj'"):
        count_heads(explainer_for("bert"), PARSES, relations={"obj": ("obj", "dobj"), "dobj": ("dobj",)})


def test_counts_of_other_labels_under_the_same_names_are_not_resumed(tmp_path):
    path, explainer = tmp_path / "c.json", explainer_for("bert")
    count_heads(explainer, PARSES, relations={"object": ("dobj",)}, checkpoint=path)
    with pytest.raises(ValueError, match=r"counts with other labels \(.*'dobj'.*, now .*'obj'.*\): delete it"):
        count_heads(explainer, PARSES, relations={"object": ("obj",)}, checkpoint=path)
    before = {name: value for name, value in json.loads(path.read_text()).items() if name != "labels"}
    path.write_text(json.dumps(before))
    with pytest.raises(ValueError, match="counts with other labels"):
        count_heads(explainer, PARSES, relations={"object": ("dobj",)}, checkpoint=path)


@pytest.mark.parametrize("changed", ["biases", "tokenizer"])
def test_counts_of_a_model_with_another_tokenizer_or_attention_are_not_resumed(changed, tmp_path):
    path, explainer = tmp_path / "c.json", explainer_for("bert")
    count_heads(explainer, PARSES, checkpoint=path)
    other: Any = copy.deepcopy(explainer)
    if changed == "biases":  # the fingerprint knows some weights of some matrices
        with torch.no_grad():
            other.model.bert.encoder.layer[0].attention.self.query.bias.add_(1)
    else:
        vocabulary = other.tokenizer.get_vocab()
        swapped = {"good": vocabulary["bad"], "bad": vocabulary["good"]}
        other = tl.Explainer(other.model, BertTokenizer(vocab=vocabulary | swapped))
    assert fingerprint(other.model) == fingerprint(explainer.model)
    with pytest.raises(ValueError, match="counts with other weights, another configuration or another tokenizer"):
        count_heads(other, PARSES, checkpoint=path)


def test_a_model_that_reads_padding_is_counted_without_padding():
    tokenizer = TOKENIZERS["wordpiece"]()
    model: Any = copy.deepcopy(mobilebert(len(tokenizer)))
    with torch.no_grad():  # each embedding holds those of the neighbors
        model.mobilebert.embeddings.word_embeddings.weight[model.config.pad_token_id] = 30 * torch.linspace(-1, 1, 16)
    explainer = tl.Explainer(model, tokenizer)
    alone = [count_heads(explainer, [one], progress=False) for one in PARSES]
    together = count_heads(explainer, PARSES, progress=False)
    assert together.to_dict(rare=0) == (alone[0] + alone[1] + alone[2]).to_dict(rare=0)


@pytest.mark.parametrize("damage", ["hits", "offsets", "no offsets"])
def test_counts_of_another_shape_are_not_resumed(damage, tmp_path):
    path, explainer = tmp_path / "c.json", explainer_for("bert")
    count_heads(explainer, PARSES, checkpoint=path)
    stored = json.loads(path.read_text())
    if damage == "hits":
        for entry in stored["relations"].values():
            entry["hits"] = [[1]]
    else:
        stored["offsets"] = [] if damage == "no offsets" else {"0": [[1]]}
    path.write_text(json.dumps(stored))
    with pytest.raises(
        ValueError, match=r"c\.json is not a checkpoint of head statistics .*: delete it to start again"
    ):
        count_heads(explainer, PARSES, checkpoint=path)
