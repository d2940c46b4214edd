"""`tokenlight heads` and `explain --heads`, on the embedded model and a real parser."""

import json

import pytest

from tests.cli.test_explain import fail, succeed
from tokenlight.heads.mask import HeadMask

TEXTS = [
    "a charming and often affecting journey .",
    "the actors never quite find the right tone .",
    "it rarely bores its audience , and it has a warm heart .",
    "young viewers love loud jokes .",
]
TREE = """# text = Dogs chase cats
1	Dogs	dog	NOUN	NNS	_	2	nsubj	_	_
2	chase	chase	VERB	VBP	_	0	root	_	_
3	cats	cat	NOUN	NNS	_	2	obj	_	_

"""
RECORD = {
    "sentence": "good film",
    "parsed": [
        {"id": 1, "text": "good", "head": 2, "deprel": "amod"},
        {"id": 2, "text": "film", "head": 0, "deprel": "root"},
    ],
}


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_texts_are_parsed_counted_drawn_and_used(texts, tmp_path):
    mask, figure = tmp_path / "masks.json", tmp_path / "heads.svg"
    shown = succeed(
        *("heads", "default", str(texts), "-o", str(mask)),
        *("--syntax-margin", "-0.3", "--position-share", "0.5", "--figure", str(figure)),
    )
    loaded = HeadMask.load(mask)
    assert loaded.statistics is not None
    assert loaded.statistics.texts == len(TEXTS)
    assert loaded.statistics.source.startswith("texts.txt (spacy; sha256 ")
    assert loaded.statistics.pairs.sum() > 5  # the parser found subjects, objects and modifiers
    assert loaded.made["position_share"] == 0.5
    assert f"{loaded.count} of 72 heads" in shown
    assert "layer × head" in shown
    assert figure.read_text().startswith("<?xml")
    assert not (tmp_path / "masks.json.partial").exists()
    arguments = ("explain", TEXTS[0], "--method", "mask_lrp", "--method", "attn_lrp", "--format", "json")
    masked, plain = (json.loads(succeed(*arguments, *more)) for more in (("--heads", str(mask)), ()))
    assert all(one["scores"] != other["scores"] for one, other in zip(masked, plain, strict=True))
    assert f"{loaded.count} of 72 heads" in masked[0]["options"]["heads"]
    assert "2 of 72 heads" in plain[0]["options"]["heads"]  # the embedded model's own
    assert plain[1]["options"]["heads"] is None


def test_a_mask_file_is_drawn(texts, tmp_path):
    mask = tmp_path / "masks.json"
    made = succeed("heads", "default", str(texts), "-o", str(mask))
    assert succeed("heads", str(mask)) == made


def test_treebanks_and_parsed_lines_are_read(tmp_path):
    tree, lines, mask = tmp_path / "a.conllu", tmp_path / "a.jsonl", tmp_path / "m.json"
    tree.write_text(TREE)
    lines.write_text(json.dumps(RECORD) + "\n")
    for path, counted in ((tree, [1, 1, 0, 0]), (lines, [0, 0, 1, 0])):
        succeed("heads", "default", str(path), "-o", str(mask))
        statistics = HeadMask.load(mask).statistics
        assert statistics is not None
        assert statistics.pairs.tolist() == counted
    succeed("heads", "default", str(tree), "-o", str(mask), "--relation", "obj", "--direction", "head-dependent")
    statistics = HeadMask.load(mask).statistics
    assert statistics is not None
    assert (statistics.relations, statistics.direction) == (("obj",), "head-dependent")


def test_wrong_input_is_one_line(texts, tmp_path):
    mask = str(tmp_path / "m.json")
    assert "name the file to write" in fail("heads", "default", str(texts))
    assert "name the texts to count on" in fail("heads", "default")
    assert "there is no file nowhere.txt" in fail("heads", "default", "nowhere.txt", "-o", mask)
    assert "must end in .png, .svg, .pdf" in fail("heads", "default", str(texts), "-o", mask, "--figure", "heads.gif")
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps({**RECORD, "sentence": "another text"}) + "\n")
    assert "'good'" in fail("heads", "default", str(wrong), "-o", mask)
    (tmp_path / "empty.txt").write_text("")
    assert "empty.txt" in fail("heads", "default", str(tmp_path / "empty.txt"), "-o", mask)
    (tmp_path / "other.json").write_text("{}")
    assert "is not a head mask" in fail("heads", str(tmp_path / "other.json"))
    assert "is not a head mask" in fail(
        "explain", "good", "--method", "mask_lrp", "--heads", str(tmp_path / "other.json")
    )
    assert not (tmp_path / "m.json").exists()


def test_relations_that_do_not_occur_are_reported(tmp_path):
    parses = tmp_path / "one.conllu"
    parses.write_text(TREE)
    shown = succeed("heads", "default", str(parses), "-o", str(tmp_path / "masks.json"))
    assert shown.count("not in these texts") == 2  # amod and advmod
