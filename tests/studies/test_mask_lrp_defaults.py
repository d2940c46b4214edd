"""The study of Mask-LRP's defaults: its masks, and a short run."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import tokenlight as tl
from studies.layer_masks import random_in_each_layer, strongest_in_each_layer
from studies.mask_lrp_defaults import ALL, Setting, main, make_lines
from tokenlight.masks.statistics import HeadStatistics

HITS = torch.tensor([[[9, 1, 5, 3], [0, 2, 8, 4]]])  # [relation, layer, head] of 10 pairs
ONE_BACK = torch.tensor([[1, 7, 2, 3], [9, 3, 0, 1]])  # of 10 tokens


@pytest.fixture
def counts() -> HeadStatistics:
    distances = (Counter({1: 4, 2: 6}),)
    rest = {"tokens": 10, "texts": 1, "cut_off": 0, "direction": "dependent-head"}
    return HeadStatistics(("obj",), torch.tensor([10]), HITS, distances, {-1: ONE_BACK}, **rest)


def test_the_strongest_and_the_weakest_heads_of_each_layer(counts):
    best = strongest_in_each_layer(counts, 1)
    assert best.syntactic.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert best.positional.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    weakest = strongest_in_each_layer(counts, 2, weakest=True)
    assert weakest.syntactic.tolist() == [[0, 1, 0, 1], [1, 1, 0, 0]]
    assert weakest.positional.tolist() == [[1, 0, 1, 0], [0, 0, 1, 1]]


def test_a_random_mask_has_as_many_heads_in_each_layer_and_group():
    mask = tl.HeadMask(torch.tensor([[1.0, 1, 0, 0], [0, 0, 0, 0]]), torch.tensor([[0.0, 1, 0, 0], [1, 1, 1, 0]]))
    found = [random_in_each_layer(mask, seed) for seed in range(20)]
    for one in found:
        for group in ("syntactic", "positional", "lit"):
            assert getattr(one, group).sum(1).equal(getattr(mask, group).sum(1))
    assert len({str(one.lit.tolist()) for one in found}) > 4
    assert random_in_each_layer(mask, 3).lit.equal(found[3].lit)


def test_a_line_compares_text_by_text_and_means_over_masks():
    mask = tl.HeadMask.by_hand(torch.ones(2, 4))
    settings = [Setting(ALL, [mask]), Setting("random", [mask, mask])]
    texts, uneven = np.linspace(0, 1, 30), np.tile([-0.01, 0.01], 15)
    values = {
        ALL: np.stack([texts, 0 * texts], 1)[None],
        "random": np.stack([np.stack([texts + uneven + change, 0 * texts + 0.4], 1) for change in (0.1, 0.3)]),
    }
    own, other = make_lines(settings, values)
    assert own.difference[0] == 0
    assert other.difference == pytest.approx((0.2, 0.2, 0.2), abs=0.01)  # hardly different from text to text
    assert other.masks == pytest.approx((0.6, 0.8))
    assert other.dropped == pytest.approx(0.4)
    assert other.interval[0] < other.aopc < other.interval[1]


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["--small", "--limit", "1", "--shortest", "5", "--seeds", "1", "--output", str(tmp_path)])
    lines = {line["name"]: line for line in json.loads((tmp_path / "lines.json").read_text())}
    paper = "paper's thresholds"
    assert {ALL, f"{paper}, empty=all", f"{paper}, empty=drop", f"{paper}, random heads"} <= set(lines)
    assert lines[f"{paper}, empty=drop"]["dropped"] > 0.5 > abs(lines[f"{paper}, empty=all"]["dropped"])
    assert lines[ALL]["difference"][0] == 0
    assert f"{paper}, released" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"), [([], "--data, or --small"), (["--small", "--calibrate", "3"], "--count")]
)
def test_what_is_missing_is_said(arguments, said, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err
