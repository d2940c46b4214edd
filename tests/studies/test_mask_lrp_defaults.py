"""The study of Mask-LRP's defaults: its masks, and a short run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tokenlight as tl
from studies.layer_masks import random_in_each_layer, strongest_in_each_layer
from studies.mask_lrp_defaults import (
    ALL,
    DELETES,
    PADS,
    Setting,
    main,
    make_lines,
    measure,
    perturbation_for,
    select_settings,
)
from tests.tokenizers_ import explainer_for
from tokenlight.heads.statistics import HeadStatistics
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.model.config import layers_and_heads

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
    assert len((tmp_path / "texts.jsonl").read_text().splitlines()) == 1


def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lit, asked = tl.HeadMask.by_hand(torch.ones(2, 4)), []

    def group(explainer: tl.Explainer, texts: list[str], settings: list[Setting]) -> list[dict[str, list[Any]]]:
        asked.extend(texts)
        return [{one.name: [(len(text), 0.5)] * len(one.masks) for one in settings} for text in texts]

    monkeypatch.setattr("studies.mask_lrp_defaults.measure_group", group)
    explainer, settings = explainer_for("bert"), [Setting(ALL, [lit]), Setting("two", [lit, lit])]
    measure(explainer, ["a", "bb"], settings, tmp_path / "texts.jsonl")
    found = measure(explainer, ["a", "bb", "ccc"], settings, tmp_path / "texts.jsonl")
    assert asked == ["a", "bb", "ccc"]
    assert found["two"].shape == (2, 3, 2)
    assert found["two"][1, :, 0].tolist() == [1, 2, 3]
    measure(explainer, ["a"], settings[:1], tmp_path / "texts.jsonl")  # not the same settings
    assert asked == ["a", "bb", "ccc", "a"]


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "--data, or --small"), (["--small", "--calibrate", "3"], "--count")]
)
def test_missing_arguments_are_named(arguments, message, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_chosen_settings_bring_those_that_they_are_compared_with():
    lit = tl.HeadMask.by_hand(torch.ones(2, 4))
    settings = [Setting(ALL, [lit]), Setting("a", [lit]), Setting("a, random", [lit], against="a"), Setting("b", [lit])]
    assert [setting.name for setting in select_settings(settings, ["random"])] == [ALL, "a", "a, random"]
    assert select_settings(settings, []) == settings
    with pytest.raises(SystemExit, match="no setting has a name with 'c'"):
        select_settings(settings, ["c"])


@pytest.mark.parametrize(
    ("family", "task", "expected"),
    [
        ("bert", "text-classification", PADS),
        ("llama", "text-classification", DELETES),  # finds the end of a text by its padding
        ("llama", "text-generation", DELETES),
    ],
)
def test_tokens_are_replaced_by_padding_only_where_that_is_no_signal(family: str, task: str, expected: Perturbation):
    assert perturbation_for(explainer_for(family, task)) == expected


def test_a_language_model_is_explained_by_its_next_token(tmp_path: Path):
    explainer = explainer_for("llama", "text-generation")
    every = tl.HeadMask.by_hand(torch.ones(layers_and_heads(explainer.inner)))
    values = measure(explainer, ["it is a film here"], [Setting(ALL, [every])], tmp_path / "texts.jsonl")[ALL]
    assert values.shape == (1, 1, 2)
    assert np.isfinite(values).all()


def test_a_short_run_on_random_pairs(tmp_path: Path):
    path = tmp_path / "pairs.tsv"
    path.write_text("premise\thypothesis\tlabel\n" + "".join(f"it is {n}\tit is here\t0\n" for n in range(9)))
    given = ["--small", "--data", str(path), "--shortest", "1", "--setting", "empty=all"]
    given += ["--seeds", "1", "--sample", "2", "--output", str(tmp_path)]
    for _ in range(2):  # the second time, all is read from the file
        main(given)
    assert {line["name"] for line in json.loads((tmp_path / "lines.json").read_text())} == {
        ALL,
        "paper's thresholds, empty=all",
    }
    stored = [json.loads(line)["text"] for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert len(stored) == 2
    assert all(second == "it is here" for _, second in stored)
