"""`tokenlight bench` and `tokenlight sanity` on tiny checkpoints from a folder."""

import re
from pathlib import Path

import pytest

from tests.cli.test_explain import fail, run, succeed

TEXTS = ["it is a good movie", "the key is here", "they are not bad at all"]


@pytest.fixture
def data(tmp_path) -> str:
    path = tmp_path / "data.tsv"
    path.write_text("gold\tsaid\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS)) + "9\tok\n")
    return str(path)


def test_bench_writes_and_prints_the_table(checkpoint, data, tmp_path):
    columns = ["--text", "said", "--label", "gold"]
    out = str(tmp_path / "out")
    command = [
        "bench",
        checkpoint,
        data,
        "-o",
        out,
        "--method",
        "attcat",
        "--method",
        "cat",
        "--metric",
        "aopc",
        *columns,
    ]
    printed = succeed(*command)
    assert "3 examples" in printed
    assert "Not usable 1: the model has no label '9'" in printed
    assert re.search(r"attcat +−?0\.\d+", printed)
    assert "inverse of" in printed
    assert {"table.md", "table.tex", "table.csv", "report.html", "bad_rows.jsonl", "run.json"} <= {
        path.name for path in Path(out).iterdir()
    }
    stored = (Path(out) / "results-00000.jsonl").read_bytes()
    assert succeed(*command) == printed  # everything is there already
    assert succeed("bench", out) == printed  # without model and data
    for option in (["--removal", "delete"], ["--heads", "own"], ["--written-out"], ["--no-erasure"], ["--limit", "2"]):
        assert "holds results, which are shown as they are" in fail("bench", out, *option)
    assert (Path(out) / "results-00000.jsonl").read_bytes() == stored
    assert "protocol.measures" in fail(*command, "--removal", "delete")
    assert "example 5: the model has no label" in fail(
        *command[:3], "-o", str(tmp_path / "b"), *columns, "--bad-rows", "refuse", "--method", "cat"
    )


def test_a_preset_and_its_filters(checkpoint, data, tmp_path):
    out = str(tmp_path / "out")
    columns = ["--text", "said", "--label", "gold", "--no-erasure"]
    assert "no example was measured: fewer than 10 tokens (3)" in fail(
        "bench", checkpoint, data, "-o", out, "--preset", "attcat", "--method", "attcat", *columns
    )
    printed = succeed("bench", checkpoint, data, "-o", out + "2", "--preset", "alti", "--method", "alti", *columns)
    assert "protocol alti" in printed
    assert "erasure " not in printed


def test_seed_models(checkpoint, data, tmp_path):
    columns = ["--text", "said", "--limit", "2", "--metric", "aopc", "--method", "attcat"]
    printed = succeed("bench", checkpoint, data, "-o", str(tmp_path / "out"), "--seed-model", checkpoint, *columns)
    assert re.search(r"attcat .* 1\.000\*? +\[−0\.684, 1\.000\]", printed)  # the same model twice, on two texts alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "OUT", "--method", "atcat"], "there is no method 'atcat'. Did you mean 'attcat'?"),
        (["-o", "OUT", "--metric", "aopcc"], "there is no metric 'aopcc'"),
        (["-o", "OUT", "--preset", "chefer"], "there is no protocol 'chefer'. Protocols: attcat"),
        (["-o", "OUT", "--metric", "spearman", "--text", "said"], "name others as seed models"),
        (["-o", "OUT"], "no column that is known to hold a text"),
        ([], "name the folder for the results with -o DIR"),
    ],
)
def test_wrong_arguments_are_one_line(checkpoint, data, tmp_path, arguments, message):
    placed = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    assert message in fail("bench", checkpoint, data, *placed)
    assert not (tmp_path / "out").exists()


def test_missing_data_is_one_line(checkpoint, tmp_path):
    assert "name the data to measure on" in fail("bench", checkpoint)
    gone = str(tmp_path / "gone.tsv")
    assert f"there is no file {gone}" in fail("bench", checkpoint, gone, "-o", str(tmp_path / "out"))


def test_writing_results_into_a_model_folder_is_refused(checkpoint, data):
    before = sorted(path.name for path in Path(checkpoint).iterdir())
    assert "holds a model: name another folder" in fail("bench", checkpoint, data, "-o", checkpoint)
    assert "holds a model: name another folder" in fail("explain-file", data, "-o", checkpoint)
    assert sorted(path.name for path in Path(checkpoint).iterdir()) == before


def test_a_stopped_run_prints_how_to_continue(checkpoint, data, tmp_path, monkeypatch):
    def stop(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokenlight.bench.benchmark.bench", stop)
    result = run("bench", checkpoint, data, "-o", str(tmp_path / "out"), "--text", "said")
    assert result.exit_code == 130
    assert "run the same command again to continue" in result.stderr


def test_sanity_prints_and_draws(checkpoint, data, tmp_path):
    figure = tmp_path / "sanity.svg"
    methods = ["--method", "attcat", "--method", "raw_attention"]
    printed = succeed("sanity", checkpoint, data, "--text", "said", "--limit", "2", *methods, "--figure", str(figure))
    lines = printed.splitlines()
    assert lines[1].split() == ["shuffled", "down", "to", "attcat", "raw_attention"]
    assert lines[2].split()[0] == "head"
    assert lines[2].split()[2] == "1.000"  # attention does not see the head
    assert lines[-2].split()[0] == "embeddings"
    assert lines[-1].startswith("Towards 0 is good")
    assert figure.read_text().startswith("<?xml")
    assert "the name of a figure must end in" in fail("sanity", checkpoint, data, "--figure", "a.gif")
