"""The table: means, intervals, and who is level with the best."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from tests.bench.known_runs import write_four_methods, write_run
from tokenlight.bench.tabulate import best_method, level_with, read_table
from tokenlight.common.intervals import weighted_means
from tokenlight.metrics import METRICS
from tokenlight.runs.run_folder import Journal


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_four_methods(tmp_path / "run")


def test_a_micro_average_draws_numerators_and_denominators(tmp_path):
    values, marked = np.array([[100.0], [0.0], [25.0]]), [1, 1, 8]
    assert weighted_means(values, np.array([marked], float).T) == pytest.approx([30.0])
    assert weighted_means(np.array([[1.0], [np.nan], [4.0]]), np.ones((3, 1))) == pytest.approx([2.5])
    table = read_table(write_run(tmp_path / "run", {"good": values, "poor": values * 0.5}, ["recall_at_k"], marked))
    cell = table.cell("good", "recall_at_k")
    assert table.columns[0].title == "Recall@20"
    assert cell.mean == pytest.approx(30.0)
    assert np.isnan([cell.low, cell.high]).all()  # three texts are too few
    assert "[–, –]: not known" in table.to_markdown()
    assert r"$30.0$" in table.to_latex().replace(r"\mathbf{30.0}", "30.0")
    assert "{\\scriptsize[--, --]}" in table.to_latex()


def test_who_is_level_with_the_best(folder):
    table = read_table(folder)
    for metric in ("aopc", "log_odds"):
        assert table.cell("good", metric).best
        assert not table.cell("good", metric).level
        assert table.cell("similar", metric).level  # about as good: the paired difference holds 0
        assert not table.cell("poor", metric).level  # worse on the same texts, although the intervals overlap
        assert table.cell("poor", metric).high > table.cell("good", metric).low
        assert not table.cell("random", metric).best  # a control, although its mean is the best
        assert not table.cell("random", metric).level
    assert best_method(folder) == "good"
    assert [line.label for line in table.lines] == ["similar", "good", "poor", "random", "inverse of good"]
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


@pytest.mark.parametrize("failed", [1, 200])
def test_rows_that_fail_only_in_the_last_control_leave_the_run_ended(folder, failed):
    before = read_table(folder)
    journal = Journal(folder / "results-00001.jsonl")
    records = [
        {"row": one["row"], "where": "x", "bad": "failed"} if i < failed else one for i, one in enumerate(journal)
    ]
    assert len(records) == 200
    journal.path.unlink()
    journal.append(0, records)
    table = read_table(folder)
    text = table.to_markdown()
    assert "has not ended" not in text
    assert f"reversed could not be measured on {failed} of them" in text
    assert table.cell("good", "aopc") == before.cell("good", "aopc")
    rows = [row.split(",") for row in table.to_csv().splitlines()[1:]]
    counts = {row[0]: int(row[-1]) for row in rows if row[3] == "aopc"}
    assert counts["good"] == 200
    if failed == 1:
        assert counts["inverse of good"] == 199
        mean = np.nanmean(before.values[1:, [line.label for line in before.lines].index("inverse of good"), 0])
        assert table.cell("inverse of good", "aopc").mean == pytest.approx(mean)
    else:
        assert "inverse of good" not in counts


def test_panels_hold_what_the_metrics_average(folder):
    falls, odds = read_table(folder).panels
    assert falls.places == (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    assert [cell.mean for cell in falls.curves["good"]] == pytest.approx([0, *np.linspace(0.1, 0.9, 10)])
    assert [cell.mean for cell in odds.curves["good"]] == pytest.approx([0, *np.log(np.linspace(0.9, 0.1, 10))])
    assert (falls.quantity, odds.quantity) == ("p − p_k", "ln(p_k / p)")


def called_worse(values: np.ndarray) -> np.ndarray:
    """[method] of [example, method], higher is better."""
    best = int(values.mean(0).argmax())
    return ~level_with(best, values, np.ones_like(values), range(values.shape[1]), seed=0)


@pytest.mark.parametrize("kind", ["normal", "exponential", "groups", "0-1"])
def test_equal_methods_are_seldom_told_apart(kind):
    """Ten methods of equal quality on ten texts: at most 5 % of tables call any of them worse.

    The bound is .05 of the tables and 3 standard errors of that share. The bootstrap of the largest difference, without
    Student's correction, called a method worse in .34 of such tables (normal).
    """
    generator, tables, wrong = np.random.default_rng(0), 100, 0
    for _ in range(tables):
        if kind == "exponential":
            values = generator.exponential(size=(10, 10))
        else:
            common = 3 * generator.normal(size=(10, 5)).repeat(2, 1) * (kind != "normal")
            values = common + generator.normal(size=(10, 10))
            values = (values < 1.28).astype(float) if kind == "0-1" else values
        wrong += called_worse(values).any()
    assert wrong <= tables * 0.05 + 3 * np.sqrt(tables * 0.05 * 0.95)


def test_the_truly_best_method_is_seldom_called_worse():
    """The others are a little worse, and one of them often has the best mean."""
    generator, tables, wrong = np.random.default_rng(1), 100, 0
    for _ in range(tables):
        values = generator.normal(size=(10, 8))
        values[:, 0] += 0.1
        wrong += called_worse(values)[0]
    assert wrong <= tables * 0.05 + 3 * np.sqrt(tables * 0.05 * 0.95)


def test_a_clear_difference_is_seen():
    values = np.random.default_rng(0).normal(loc=[0.0, 0.1, 3.0], size=(100, 3))
    assert called_worse(values).tolist() == [True, True, False]
    assert called_worse(values[:10]).tolist() == [True, True, False]
    assert not called_worse(values[:9]).any()  # too few texts


def test_a_constant_difference_is_seen_and_equal_methods_are_level():
    texts = np.random.default_rng(0).normal(size=(12, 1))
    assert called_worse(texts + np.array([[0.0, 0.1, 0.1]])).tolist() == [True, False, False]


def test_missing_values_are_left_out_in_pairs():
    generator = np.random.default_rng(0)
    texts = generator.normal(0, 5, size=(40, 1))
    values = texts + generator.normal(0, 0.1, size=(40, 3)) + np.array([[1.0, 0.0, 1.0]])
    values[texts[:, 0] < 0, 1] = np.nan  # the mean of the second is the best, since it has the easy texts alone
    weights = np.ones_like(values)
    level = level_with(1, values, weights, range(3), seed=0)
    assert level.tolist() == [True, True, True]  # on the texts that both have, the others are better, not worse
    assert level_with(0, values, weights, range(3), seed=0).tolist() == [True, False, True]
    values[9:, 1] = np.nan  # nine texts in common at most
    assert level_with(0, values, weights, range(3), seed=0)[1]


def test_a_share_of_texts_has_an_interval_also_where_all_are_right(tmp_path):
    everywhere, almost = np.ones((20, 1)), np.ones((20, 1))
    almost[0] = 0.5  # a tie
    run = write_run(tmp_path / "run", {"good": everywhere, "poor": almost}, ["pointing_game"], [1] * 20)
    good, poor = (read_table(run).cell(name, "pointing_game") for name in ("good", "poor"))
    assert (good.low, good.high) == pytest.approx(binomtest(20, 20).proportion_ci())
    assert (poor.low, poor.high) == pytest.approx((binomtest(19, 20).proportion_ci().low, 1.0))


def test_an_interval_ends_at_the_bounds_of_its_metric(tmp_path):
    values = np.array([0.0] * 8 + [0.9, 1.0])[:, None]
    names = ["relevance_mass", "recall_at_k"]
    run = write_run(tmp_path / "run", {"good": np.hstack([1 - values, values])}, names, [*[1] * 9, 2])
    bounded, weighted = (read_table(run).cell("good", name) for name in names)
    assert (bounded.low, bounded.high) == (pytest.approx(0.48, abs=0.01), pytest.approx(0.98, abs=0.01))
    assert (weighted.low, weighted.high) == (0.0, 100.0)
    table = read_table(write_run(tmp_path / "free", {"good": values}, ["precision_at_k"]))  # no marks are known
    free = table.cell("good", "precision_at_k")
    assert (free.low, free.high) == (pytest.approx(0.022, abs=0.01), np.inf)  # .1 of the resamples hold zeros alone
    assert ", ∞] |" in table.to_markdown()
    assert r", $\infty$]" in table.to_latex()


@pytest.mark.parametrize(("marked", "k", "highest"), [(1, 20, 1), (3, 20, 3), (30, 20, 20), (30, 2, 2)])
def test_a_count_of_marked_tokens_is_bounded_by_them_and_by_k(tmp_path, marked, k, highest):
    found = np.zeros((60, 2))
    found[:3, 0], found[:, 1] = highest, highest  # three texts of 60, and all of them
    values = {"poor": found[:, :1], "good": found[:, 1:]}
    run = write_run(tmp_path / "run", values, ["precision_at_k"], [marked] * 60)
    settings = json.loads((run / "run.json").read_text())
    settings["protocol"]["measures"][0]["options"] = {"k": k}
    (run / "run.json").write_text(json.dumps(settings))
    poor, good = (read_table(run).cell(name, "precision_at_k") for name in ("poor", "good"))
    share = binomtest(3, 60).proportion_ci()  # a text has nothing or everything: Clopper and Pearson
    assert (poor.low / highest, poor.high / highest) == pytest.approx((share.low, share.high), abs=0.02)
    assert (good.low, good.high) == pytest.approx((highest * binomtest(60, 60).proportion_ci().low, highest))


def test_constant_values_of_a_bounded_metric_have_no_empty_interval(tmp_path):
    names = ["kendall_confidence", "precision_at_k"]
    table = read_table(write_run(tmp_path / "run", {"good": np.ones((20, 2))}, names))
    bounded, free = (table.cell("good", name) for name in names)
    low = 2 * binomtest(20, 20).proportion_ci().low - 1
    assert (bounded.low, bounded.high) == pytest.approx((low, 1.0))
    assert np.isnan([free.low, free.high]).all()


def test_a_binary_metric_with_other_values_is_refused(tmp_path):
    run = write_run(tmp_path / "run", {"good": np.full((20, 1), 3.0)}, ["pointing_game"], [1] * 20)
    with pytest.raises(
        ValueError, match=r"'pointing_game' is binary with values from 0 to 1, found 3\.0 to 3\.0: correct"
    ):
        read_table(run)


@pytest.mark.parametrize(("bounds", "binary"), [((1, 0), False), ((0, float("inf")), True)])
def test_bounds_that_are_none_are_refused(bounds, binary):
    entry = METRICS["pointing_game"]
    with pytest.raises((TypeError, ValueError), match="bounds="):
        replace(entry, bounds=bounds, binary=binary)


def test_the_legend_says_what_is_claimed(folder):
    table = read_table(folder)
    for text in (table.to_markdown(), table.to_latex().replace("\\", ""), table._repr_html_()):
        assert "95 % interval, the wider of Student-t and bootstrap-t (Clopper-Pearson for 0-1 metrics, Gaffke " in text
        assert "cannot be told from it (paired sign-flip test, family-wise error 5 % over all pairs of methods)" in text
        assert "not known" not in text
