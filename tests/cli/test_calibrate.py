"""`tokenlight calibrate`, on the embedded model."""

import json

import pytest

from tests.cli.test_explain import fail, run, succeed
from tokenlight.heads.mask import HeadMask

TEXTS = [
    f"{first} {second}"
    for first in ("a warm film", "the jokes fall flat", "dull", "a joy")
    for second in ("with a heart", "but slow", "again")
]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("text\n" + "\n".join(TEXTS) + "\n\n")
    return path


def test_calibrated_strengths_are_saved_drawn_and_used(texts, tmp_path):
    mask, figure = tmp_path / "heads.json", tmp_path / "heads.svg"
    arguments = ("calibrate", "default", str(texts), "-o", str(mask), "--removal", "pad", "--folds", "2")
    arguments += ("--steps", "2")
    shown = succeed(*arguments, "--figure", str(figure))
    loaded = HeadMask.load(mask)
    assert loaded.calibrated is not None
    assert loaded.made["texts"] == len(TEXTS)
    assert loaded.made["source"].endswith("texts.tsv")
    assert loaded.made["perturbation"]["removal"] == 0  # the embedded model's padding
    assert str(loaded) in shown
    assert "syntactic and positional" in shown
    assert "held back" in shown
    assert figure.read_text().startswith("<?xml")
    assert not (tmp_path / "heads.json.partial").exists()
    assert "held back" in succeed("heads", str(mask))
    found = json.loads(
        succeed("explain", TEXTS[0], "--method", "calibrated_lrp", "--heads", str(mask), "--format", "json")
    )
    assert f"calibrated for attn_lrp on {len(TEXTS)} texts" in found[0]["options"]["heads"]


def test_what_was_skipped_is_counted_in_plain_words(texts, tmp_path):
    result = run("calibrate", "default", str(texts), "-o", str(tmp_path / "heads.json"), "--folds", "2", "--steps", "1")
    assert result.exit_code == 0, result.output
    assert "1 row skipped: " in result.stderr  # the empty one


def test_mistakes_are_one_line(texts, tmp_path):
    out = ("-o", str(tmp_path / "heads.json"))
    assert "'rollout' has no heads to calibrate" in fail(
        "calibrate", "default", str(texts), *out, "--method", "rollout"
    )
    assert "5 different texts are too few" in fail("calibrate", "default", str(texts), *out, "--limit", "5")
    assert "no folder" in fail("calibrate", "default", str(texts), "-o", str(tmp_path / "none" / "heads.json"))
    assert "there is no file" in fail("calibrate", "default", str(tmp_path / "nothing.tsv"), *out)
    assert not (tmp_path / "heads.json").exists()
