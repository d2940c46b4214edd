"""The table: means, intervals, and who is level with the best."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench.known_runs import write_four_methods, write_run
from tokenlight.bench.tabulate import best_method, level_with, read_table, resampled_means, weighted_means


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_four_methods(tmp_path / "run")


def test_means_and_intervals():
    generator = np.random.default_rng(0)
    values = generator.normal(3, 2, (400, 2))
    draws = resampled_means(values, np.ones_like(values), seed=0)
    assert draws.shape == (2000, 2)
    assert draws.mean(0) == pytest.approx(values.mean(0), abs=0.02)
    assert draws.std(0) == pytest.approx(values.std(0) / 20, rel=0.1)  # the standard error of a mean
    assert (draws == resampled_means(values, np.ones_like(values), seed=0)).all()
    assert not (draws == resampled_means(values, np.ones_like(values), seed=1)).all()


def test_the_same_draws_for_all_columns():
    values = np.random.default_rng(0).normal(0, 1, (50, 1))
    draws = resampled_means(np.hstack([values, values + 1]), np.ones((50, 2)), seed=0)
    assert draws[:, 1] - draws[:, 0] == pytest.approx(np.ones(2000))


def test_a_micro_average_draws_numerators_and_denominators(tmp_path):
    values, marked = np.array([[100.0], [0.0], [25.0]]), [1, 1, 8]
    assert weighted_means(values, np.array([marked]).T) == pytest.approx([30.0])
    assert weighted_means(np.array([[1.0], [np.nan], [4.0]]), np.ones((3, 1))) == pytest.approx([2.5])
    table = read_table(write_run(tmp_path / "run", {"good": values, "poor": values * 0.5}, ["recall_at_k"], marked))
    cell = table.cell("good", "recall_at_k")
    assert table.columns[0].title == "Recall@20"
    assert cell.mean == pytest.approx(30.0)
    assert (cell.low, cell.high) == (0.0, 100.0)  # the second or the first text three times, each in 1 of 27 draws


def test_who_is_level_with_the_best(folder):
    table = read_table(folder)
    for metric in ("aopc", "log_odds"):
        assert table.cell("good", metric).best
        assert not table.cell("good", metric).level
        assert table.cell("twin", metric).level  # about as good: the paired difference holds 0
        assert not table.cell("poor", metric).level  # worse on the same texts, although the intervals overlap
        assert table.cell("poor", metric).high > table.cell("good", metric).low
        assert not table.cell("random", metric).best  # a control, although its mean is the best
        assert not table.cell("random", metric).level
    assert best_method(folder) == "good"
    assert [line.label for line in table.lines] == ["twin", "good", "poor", "random", "inverse of good"]
    assert [line.label for line in table.controls] == ["random", "inverse of good"]


def test_a_control_is_known_by_its_method_and_not_by_its_label(folder):
    controls = {line.label: line.control for line in read_table(folder).lines}
    assert controls["good"] is None
    assert controls["random"] == "random scores"
    assert controls["inverse of good"] == "the best method reversed"
    settings = json.loads((folder / "run.json").read_text())
    settings["methods"]["random"]["name"] = "erasure"  # under a label that the caller chose
    (folder / "run.json").write_text(json.dumps(settings))
    assert "the best: erasure (a costly reference), the best method reversed" in read_table(folder).to_markdown()


def test_an_unfinished_run_says_so(folder):
    (folder / "results-00001.jsonl").unlink()
    table = read_table(folder)
    assert [line.label for line in table.controls] == ["random"]
    assert "has not ended" in table.to_markdown()


def test_panels_hold_what_the_metrics_average(folder):
    falls, odds = read_table(folder).panels
    assert falls.places == (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    assert [cell.mean for cell in falls.curves["good"]] == pytest.approx([0, *np.linspace(0.1, 0.9, 10)])
    assert [cell.mean for cell in odds.curves["good"]] == pytest.approx([0, *np.log(np.linspace(0.9, 0.1, 10))])
    assert (falls.quantity, odds.quantity) == ("p − p_k", "ln(p_k / p)")


def test_equal_methods_are_seldom_told_apart():
    """Eight methods of equal worth, of which the best is chosen by looking: 95 % of tables call all of them level."""
    wrong = 0
    for seed in range(60):
        values = np.random.default_rng(seed).normal(size=(30, 8))
        draws = resampled_means(values, np.ones_like(values), seed, draws=400)
        means = values.mean(0)
        wrong += not level_with(int(means.argmax()), means, draws, range(8)).all()
    assert wrong <= 9  # of 60; by the plain interval of each difference it would be about 36


def test_a_clear_difference_is_seen():
    values = np.random.default_rng(0).normal(loc=[0.0, 0.1, 3.0], size=(100, 3))
    level = level_with(2, values.mean(0), resampled_means(values, np.ones_like(values), 0), range(3))
    assert level.tolist() == [False, False, True]
