"""Benchmarks measure nothing here, but they start: imports and options are those of today, and the short one runs."""

from pathlib import Path

import pytest

from tests.scripts import run_script

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "ArgumentParser(" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_prints_what_it_measures(script, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="0"):
        run_script(script, ("--help",), monkeypatch)
    assert "usage: " in capsys.readouterr().out


def test_rounding_does_not_change_the_result(monkeypatch, capsys, tmp_path):
    texts = tmp_path / "texts.tsv"
    texts.write_text("text_a\na charming and often affecting journey .\nnot a bad film at all\n", encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "120")
    run_script(FOLDER / "precision.py", (texts,), monkeypatch)
    delivered = [line.split("│") for line in capsys.readouterr().out.splitlines() if "as delivered" in line]
    assert len(delivered) == 3
    assert all((below.strip(), finite.strip()) == ("0", "yes") for *_, below, finite, _ in delivered)
