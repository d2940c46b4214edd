"""`tokenlight explain-file` and `tokenlight corpus` on a tiny checkpoint from a folder."""

import re
from pathlib import Path

import pandas
import pytest

from tests.cli.test_explain import fail, run, succeed
from tests.corpus.test_explain_dataset import phrases


@pytest.fixture
def source(tmp_path) -> str:
    path = tmp_path / "texts.tsv"
    path.write_text("said\tname\n" + "".join(f"{text}\tn{i}\n" for i, text in enumerate(phrases(25))) + "\tempty\n")
    return str(path)


def test_a_file_is_explained_and_summarized(checkpoint, source, tmp_path):
    out = tmp_path / "out"
    command = ["explain-file", source, "-o", str(out), "-m", checkpoint, "--text", "said", "--id", "name"]
    command += ["--method", "lrp", "--method", "AttCAT", "--chunk-rows", "10", "--dtype", "float16"]
    printed = succeed(*command)
    assert printed == f"25 texts explained in 3 parts, 1 row skipped (see bad_rows.jsonl): {out}\n"
    found = pandas.read_parquet(out / "parts")
    assert set(found["method"]) == {"lrp", "attcat"}
    assert found["id"].tolist()[:4] == ["n0", "n0", "n1", "n1"]
    assert succeed(*command) == printed  # everything is there already
    printed = succeed(*command, "--summary")
    assert re.search(r"texts\) +\w+ +\d+ +\d+ +[+]\d\.\d\d", printed)
    assert (out / "summary.csv").read_text().startswith("model,method,label")
    assert "settings.target" in fail(*command, "--target", "positive")


def test_corpus_shows_one_folder_or_two(checkpoint, source, tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for out, target in ((one, "positive"), (two, "negative")):
        succeed("explain-file", source, "-o", out, "-m", checkpoint, "--text", "said", "--target", target)
    file, figure = tmp_path / "words.csv", tmp_path / "words.svg"
    printed = succeed("corpus", one, "--csv", str(file), "--figure", str(figure), "--top", "3")
    assert "positive (25 texts)" in printed
    assert file.read_text().count("attn_lrp") > 3
    assert "<svg" in figure.read_text()
    printed = succeed("corpus", one, "--other", two, "--csv", str(file), "--figure", str(figure))
    assert "change" in printed
    names = {line.split(",")[0] for line in file.read_text().splitlines()[1:]}
    assert names == {"one", "two"}  # the same checkpoint twice: the folders tell them apart
    assert "no word is used 1000 times or more: lower --min-uses" in run("corpus", one, "--min-uses", "1000").stderr
    assert not run("corpus", one, "--other", two).stderr
    about = Path(two) / "run.json"
    about.write_text(about.read_text().replace('"sha256": "', '"sha256": "0'))
    (Path(one) / "_SUCCESS").unlink()
    message = run("corpus", one, "--other", two).stderr
    assert f"note: {one} is not finished: only its finished parts are counted\n" in message
    assert f"note: {one} and {two} have different data\n" in message
    assert "png, svg" in succeed("corpus", "--help").replace(".", "")
    assert "must end in" in fail("corpus", one, "--figure", "words.gif")
    assert "no run.json" in fail("corpus", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.tsv"], "there is no file nothing.tsv"),
        (["{source}", "--method", "lrpp"], "lrpp"),
        (["{source}"], "no column that is known to hold a text"),
        (["{source}", "--text", "said", "--window", "400"], "300 tokens at most"),
        (["{source}", "--text", "said", "--workers", "3"], "one process"),
        (["{source}", "--text", "said", "--summary", "--no-keep-text"], "--summary needs the texts"),
        (["{source}", "--text", "said", "-m", "./nowhere"], "no such folder"),
    ],
)
def test_errors_are_one_line(arguments, message, checkpoint, source, tmp_path):
    out = tmp_path / "out"
    given = [one.format(source=source) for one in arguments]
    model = [] if "-m" in given else ["-m", checkpoint]
    assert message in fail("explain-file", *given, "-o", str(out), *model)
    assert not any(Path(out).glob("parts/*"))


def test_moved_files_and_lost_scores_are_reported(checkpoint, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("it is a good movie\n" * 4)
    command = ["explain-file", str(texts), "-m", checkpoint, "-o", str(tmp_path / "out"), "--dtype", "float16"]
    assert run(*command).exit_code == 0
    shard = tmp_path / "out" / "parts" / "part-000000.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    again = run(*command)
    assert "1 damaged part of the earlier run computed again" in again.stderr


def test_scores_that_half_precision_loses_are_reported(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenlight.corpus.shards.count_too_small", lambda text, settings: 2)
    texts = tmp_path / "texts.txt"
    texts.write_text("it is a good movie\n" * 4)
    command = ["explain-file", str(texts), "-m", checkpoint, "-o", str(tmp_path / "out"), "--dtype", "float16"]
    assert "note: 8 scores too small for float16" in run(*command).stderr
