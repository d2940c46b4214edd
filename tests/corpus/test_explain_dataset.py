"""A corpus into a folder: the same numbers as one by one, nothing half written, nothing doubled, nothing lost."""

import copy
import errno
import json
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow.parquet
import pytest
import torch

import tokenlight as tl
from tests.as_ours import as_ours
from tests.tokenizers_ import explainer_for
from tokenlight.common.errors import RefusedValue
from tokenlight.corpus import chunks as explaining
from tokenlight.corpus import explain_dataset as run
from tokenlight.corpus import plan as planning
from tokenlight.corpus import shards as shards
from tokenlight.corpus.plan import Failure, run_batch, run_in_batches
from tokenlight.corpus.settings import CorpusSettings
from tokenlight.corpus.summary import summarize
from tokenlight.data.data_source import DataSource
from tokenlight.data.examples import Chunk
from tokenlight.data.read import read_texts
from tokenlight.runs.run_folder import lock_folder
from tokenlight.runs.workers import THIS_PROCESS, Workers

TEXT = "it is a good movie and they are not bad at all the key is here on the table"
METHODS = ["gradient_x_input", "attn_lrp", "random"]


def phrases(count: int) -> list[str]:
    """Of different lengths, no two alike."""
    return [" ".join(TEXT.split()[i % 5 : i % 5 + 3 + i % 11]) + f" {i}" for i in range(count)]


def explain(
    source: Any, folder: Path, methods: Any = ("gradient_x_input",), workers: Workers = THIS_PROCESS, **settings: Any
) -> run.ExplainedCorpus:
    chosen = CorpusSettings(**{"chunk_rows": 10, "tokens": 64, **settings})
    removal = {"settings": chosen, "workers": workers, "progress": False}
    return tl.explain_dataset(explainer_for("bert"), source, folder, methods, **removal)


def table(folder: Path) -> Any:
    return pandas.read_parquet(folder / "parts")


def contents(folder: Path) -> dict[str, bytes]:
    """Everything in the folder that is a result."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "run.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def bad_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "bad_rows.jsonl").read_text().splitlines()]


# --- what is written -------------------------------------------------------------------------------------------------


def test_scores_are_those_of_explain(tmp_path):
    texts = phrases(23)
    done = explain(texts, tmp_path, METHODS)
    assert (done.parts, done.rows, done.explained, done.bad) == (3, 23, 23, 0)
    found = table(tmp_path)
    assert found["row"].tolist() == [i for i in range(23) for _ in METHODS]
    assert found["method"].tolist() == METHODS * 23
    explainer = explainer_for("bert")
    for (i, text), method in ((pair, m) for pair in enumerate(texts) for m in METHODS):
        one = found[(found["row"] == i) & (found["method"] == method)].iloc[0]
        expected = explainer.explain(text, method)
        numpy.testing.assert_allclose(one["scores"], expected.scores, rtol=2e-4, atol=1e-6)
        assert one["score"] == pytest.approx(expected.score, rel=1e-4)
        assert one["probability"] == pytest.approx(expected.probability, rel=1e-4)
        assert (one["target"], one["prediction"]) == (expected.target, expected.prediction)
        assert one["tokens"].tolist() == expected.tokens
        assert list(zip(one["starts"], one["ends"], strict=True)) == expected.spans
        assert [None if s < 0 else s for s in one["segments"]] == expected.segments
        assert one["special"].tolist() == expected.special.tolist()
        assert (one["text"], one["id"], one["signed"]) == (text, str(i + 1), expected.signed)
        assert one["notes"].tolist() == list(expected.notes)


def test_every_shard_and_the_folder_say_what_they_hold(tmp_path):
    explain(phrases(12), tmp_path, ["lrp", "integrated_gradients:steps=3"])
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["methods"]["integrated_gradients:steps=3"]["options"]["steps"] == 3
    assert about["model"]["task"] == "text-classification"
    assert about["settings"]["tokens"] == 64
    for path in shards.shards(tmp_path).values():
        metadata = pyarrow.parquet.read_metadata(path).metadata
        assert json.loads(metadata[b"tokenlight"]) == about
    counts = {"parts": 2, "rows": 12, "explained": 12, "bad": 0, "too_small": 0}
    assert json.loads((tmp_path / "_SUCCESS").read_text()) == counts
    assert bad_rows(tmp_path) == []


def test_half_precision_and_no_texts(tmp_path):
    explain(phrases(5), tmp_path / "half", dtype="float16", keep_text=False)
    explain(phrases(5), tmp_path / "full")
    half, full = table(tmp_path / "half"), table(tmp_path / "full")
    assert half["text"].isna().all()
    for a, b in zip(half["scores"], full["scores"], strict=True):
        assert a.dtype == numpy.float16
        assert (a == b.astype(numpy.float16)).all()


def test_a_score_that_half_precision_cannot_hold_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setitem(planning.MAXIMA, "float16", 1e-3)
    with pytest.raises(ValueError, match="none of the first 5 rows"):
        explain(phrases(5), tmp_path, dtype="float16")
    explain([*phrases(2), "the"], tmp_path / "b")
    largest = sorted(table(tmp_path / "b")["scores"].map(lambda s: abs(s).max()))
    monkeypatch.setitem(planning.MAXIMA, "float16", float(largest[-1]) * 0.999)
    done = explain([*phrases(2), "the"], tmp_path / "c", dtype="float16")
    assert (done.explained, done.bad) == (2, 1)
    assert "float16 cannot hold" in bad_rows(tmp_path / "c")[0]["reason"]


def test_targets_of_all_and_of_each(tmp_path):
    rows = [{"text": text, "gold": label} for text, label in zip(phrases(4), (0, "positive", "2", "none"), strict=True)]
    done = explain(DataSource(rows, target="gold"), tmp_path / "each", foil="neutral")
    assert table(tmp_path / "each")["target"].tolist() == ["negative", "positive", "positive"]
    assert set(table(tmp_path / "each")["foil"]) == {"neutral"}
    assert done.bad == 1
    assert "no label 'none'" in bad_rows(tmp_path / "each")[0]["reason"]
    explain(phrases(4), tmp_path / "all", target="negative")
    assert set(table(tmp_path / "all")["target"]) == {"negative"}
    with pytest.raises(ValueError, match="no label 'nobody'"):
        explain(phrases(4), tmp_path / "wrong", target="nobody")
    assert not (tmp_path / "wrong").exists()


def test_readers_and_language_models(tmp_path):
    pairs = [("who wrote the book ?", "the book was written by a young author"), ("who ?", "they are here")]
    tl.explain_dataset(explainer_for("bert", "question-answering"), pairs, tmp_path / "qa", ["lrp"], progress=False)
    found = table(tmp_path / "qa")
    assert found["text_pair"].tolist() == [context for _, context in pairs]
    assert found["segments"][0].max() == 1
    rows = [{"text": "The keys to the cabinet", "right": " are", "wrong": " is"}, {"text": "the key", "right": " qqq"}]
    source = DataSource(rows[:1], target="right", foil="wrong")
    tl.explain_dataset(explainer_for("gpt2", "text-generation"), source, tmp_path / "lm", ["lrp"], progress=False)
    assert table(tmp_path / "lm")[["target", "foil"]].to_numpy().tolist() == [[" are", " is"]]
    with pytest.raises(ValueError, match="predicts a label for every token"):
        tl.explain_dataset(explainer_for("bert", "token-classification"), ["a"], tmp_path / "tokens")


# --- going on --------------------------------------------------------------------------------------------------------


def test_a_second_call_changes_nothing_and_runs_nothing(tmp_path, monkeypatch):
    first = explain(phrases(25), tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(run, "explain_chunk", None)
    assert explain(phrases(25), tmp_path) == first
    assert contents(tmp_path) == before


def test_a_stopped_run_continues(tmp_path, monkeypatch):
    texts = [*phrases(24), "", *phrases(30)]
    explain(texts, tmp_path / "whole", METHODS)
    parts = []

    def stop_at_the_third(plan, part, *tell, **trial):
        if not trial:  # which reads the first texts before the run
            if len(parts) == 2:
                raise KeyboardInterrupt
            parts.append(part.number)
        return real(plan, part, *tell, **trial)

    real = run.explain_chunk
    monkeypatch.setattr(run, "explain_chunk", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        explain(texts, tmp_path / "again", METHODS)
    assert parts == [0, 1]
    assert not (tmp_path / "again" / "_SUCCESS").exists()

    def note_part(plan, part, *tell, **trial):
        if not trial:
            parts.append(part.number)
        return real(plan, part, *tell, **trial)

    monkeypatch.setattr(run, "explain_chunk", note_part)
    (tmp_path / "again" / "parts" / ".part-000002.parquet.x.part").write_bytes(b"half")
    explain(texts, tmp_path / "again", METHODS)
    assert parts == [0, 1, 2, 3, 4, 5]
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")
    (tmp_path / "again" / "parts" / "part-000003.parquet").unlink()
    explain(texts, tmp_path / "again", METHODS)
    assert parts[6:] == [3]
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


@pytest.mark.parametrize("stopped", [False, True])
def test_damaged_parts_are_computed_again(tmp_path, stopped):
    """Bits flip on disks: a file with the right name is not a finished part."""
    texts = [*phrases(24), "", *phrases(30)]
    explain(texts, tmp_path)
    whole = contents(tmp_path)
    shard, aside = tmp_path / "parts" / "part-000001.parquet", tmp_path / "bad" / "part-000002.jsonl"
    for path, place in ((shard, 40), (shard, -1), (aside, 3)):
        flipped = bytearray(path.read_bytes())
        flipped[place] ^= 1
        path.write_bytes(flipped)
        if stopped:
            (tmp_path / "_SUCCESS").unlink()
        assert explain(texts, tmp_path).repaired == 1
        assert contents(tmp_path) == whole
    shard.write_bytes(shard.read_bytes()[:100])
    (tmp_path / "hashes" / "part-000001.json").unlink()
    assert explain(texts, tmp_path).repaired == 1
    assert contents(tmp_path) == whole
    assert explain(texts, tmp_path).repaired == 0


def test_shards_without_hashes_are_kept_if_they_can_be_read(tmp_path):
    """Of an older version, or copied without the folder of hashes."""
    texts = [*phrases(24), "", *phrases(30)]
    explain(texts, tmp_path)
    whole, hashes = contents(tmp_path), {path.name: path.read_text() for path in (tmp_path / "hashes").iterdir()}
    for path in (tmp_path / "hashes").iterdir():
        path.unlink()
    (tmp_path / "bad" / "part-000002.jsonl").write_text("")
    assert explain(texts, tmp_path).repaired == 1
    assert contents(tmp_path) == whole
    assert {path.name: path.read_text() for path in (tmp_path / "hashes").iterdir()} == hashes


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"parts": null}', b"\xff"])
def test_a_damaged_mark_is_written_again(tmp_path, content):
    explain(phrases(12), tmp_path)
    whole = contents(tmp_path)
    (tmp_path / "_SUCCESS").write_bytes(content)
    explain(phrases(12), tmp_path)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"])
def test_a_damaged_list_of_bad_rows_is_written_again(tmp_path, content):
    texts = [*phrases(11), "", *phrases(3), "\u200b"]
    done = explain(texts, tmp_path)
    whole = contents(tmp_path)
    if content is None:
        (tmp_path / "bad_rows.jsonl").unlink()
    else:
        (tmp_path / "bad_rows.jsonl").write_bytes(content)
    assert explain(texts, tmp_path) == done
    assert contents(tmp_path) == whole


def test_scores_that_are_too_small_for_their_type_are_counted(tmp_path):
    """Half precision stores numbers below 6e-5 with fewer digits, and below 3e-8 as 0."""
    explain(phrases(12), tmp_path / "full")
    scores = numpy.concatenate(table(tmp_path / "full")["scores"].to_list())
    expected = int(((scores != 0) & (abs(scores) < numpy.finfo(numpy.float16).smallest_normal)).sum())
    small = explainer_for("bert")
    weights: Any = copy.deepcopy(small.model)
    with torch.no_grad():
        weights.classifier.weight.mul_(1e-6)
        weights.classifier.bias.mul_(1e-6)
    chosen = CorpusSettings(chunk_rows=10, tokens=64, dtype="float16")
    found = tl.explain_dataset(
        tl.Explainer(weights, small.tokenizer), phrases(12), tmp_path / "half", ["gradient_x_input"], settings=chosen
    )
    nonzero = int((scores != 0).sum())
    assert expected < found.too_small <= nonzero
    assert json.loads((tmp_path / "half" / "_SUCCESS").read_text())["too_small"] == found.too_small
    assert explain(phrases(12), tmp_path / "other", dtype="float16").too_small == expected


def test_a_row_set_aside_by_an_attempt_that_was_killed_is_not_there_twice(tmp_path):
    """Too little memory sets rows aside; in the next attempt there may be enough."""
    explain(phrases(12), tmp_path / "whole")
    (tmp_path / "again" / "bad").mkdir(parents=True)
    (tmp_path / "again" / "bad" / "part-000001.jsonl").write_text('{"row": 11, "where": "text 12", "reason": "full"}\n')
    done = explain(phrases(12), tmp_path / "again")
    assert (done.explained, done.bad, bad_rows(tmp_path / "again")) == (12, 0, [])
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


def test_a_run_that_goes_on_under_another_path_writes_the_same(tmp_path, monkeypatch):
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"{text}\n" for text in phrases(25)))
    explain(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "parts" / "part-000001.parquet").unlink()
    monkeypatch.chdir(tmp_path)
    explain("texts.txt", Path("out"))
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("window", [None, 6])
def test_progress_is_told_batch_by_batch(tmp_path, monkeypatch, window):
    advances = []
    monkeypatch.setattr(run, "track_pace", lambda total, done, show: nullcontext(advances.append))
    explain([*phrases(23), ""], tmp_path, chunk_rows=100, window=window, overlap=window and 1)
    assert len(advances) > 3
    assert sum(advances) == pytest.approx(24)


def test_maps_are_not_kept(tmp_path):
    explainer = explainer_for("bert")
    method_configs = run.make_configs(explainer, ["alti:layers=true"], None)
    plan = planning.ExplainingPlan(explainer, method_configs, CorpusSettings())
    rows = tuple(enumerate(read_texts(DataSource(phrases(2)))))
    for text in explaining.explain_chunk(plan, Chunk(0, rows)).texts:
        (found,) = text.explanations.values()
        assert found.maps == {}
    assert explainer.explain(phrases(1)[0], "alti", layers=True).maps


def test_attention_fused_or_written_out_is_a_setting_of_the_run(tmp_path, fused_ways):
    for way in (None, True, False):
        explain(phrases(3), tmp_path / str(way), ["attn_lrp"], fused=way)
        assert json.loads((tmp_path / str(way) / "run.json").read_text())["settings"]["fused"] is way
        assert set(fused_ways) == {way}
        fused_ways.clear()
    with pytest.raises(ValueError, match=r"settings\.fused is True there and False here"):
        explain(phrases(3), tmp_path / "True", ["attn_lrp"], fused=False)
    with pytest.raises(ValueError, match="fused=True: attcat need attention weights"):
        explain(phrases(3), tmp_path / "refused", ["attcat"], fused=True)
    assert not (tmp_path / "refused").exists()


def test_the_folder_of_another_run_is_refused(tmp_path):
    explain(phrases(12), tmp_path)
    before = contents(tmp_path)
    for settings, message in [
        ({"tokens": 65}, "settings.tokens is 64 there and 65 here"),
        ({"target": 0}, "settings.target"),
        ({"dtype": "float16"}, "settings.dtype"),
        ({"workers": Workers(threads=7)}, "settings.threads"),
    ]:
        with pytest.raises(ValueError, match=message):
            explain(phrases(12), tmp_path, **settings)
    with pytest.raises(ValueError, match=r"data\.sha256"):
        explain(phrases(13), tmp_path)
    with pytest.raises(ValueError, match=r"methods\.lrp"):
        explain(phrases(12), tmp_path, ["lrp"])
    with pytest.raises(ValueError, match=r"model\.sha256"):
        tl.explain_dataset(explainer_for("roberta"), phrases(12), tmp_path, ["gradient_x_input"])
    assert contents(tmp_path) == before


def test_the_same_bytes_read_as_another_kind_of_data_are_another_run(tmp_path):
    lines = tmp_path / "texts.txt"
    lines.write_text("text\n" + "".join(f"{text}\n" for text in phrases(3)))
    explain(lines, tmp_path / "out")
    with pytest.raises(ValueError, match=r"data\.kind is 'text' there and 'csv' here"):
        explain(lines.rename(tmp_path / "texts.csv"), tmp_path / "out")


def test_data_that_was_changed_while_it_was_read_is_reported(tmp_path, monkeypatch):
    lines, honest = tmp_path / "texts.txt", run.explain_chunk
    lines.write_text("".join(f"{text}\n" for text in phrases(12)))

    def change_data(*arguments: Any, **trial: Any) -> Any:
        if not trial:
            lines.write_text("".join(f"{text}\n" for text in phrases(13)[1:]))
        return honest(*arguments, **trial)

    monkeypatch.setattr(run, "explain_chunk", change_data)
    with pytest.warns(RuntimeWarning, match=r"texts\.txt was changed while it was read: .*out holds results of rows"):
        explain(lines, tmp_path / "out")


def test_a_folder_with_other_parquet_files_or_in_use_is_refused(tmp_path):
    (tmp_path / "a" / "parts").mkdir(parents=True)
    (tmp_path / "a" / "parts" / "part-000000.parquet").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"no run\.json"):
        explain(phrases(3), tmp_path / "a")
    with lock_folder(tmp_path / "b"), pytest.raises(ValueError, match="another process"):
        explain(phrases(3), tmp_path / "b")


@pytest.mark.parametrize("name", run.WRITTEN)
def test_a_file_that_is_not_of_a_run_is_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=rf"holds {name} but no run\.json, and a run would overwrite it"):
        explain(phrases(3), tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {name, ".lock"}


def test_names_of_files_beside_the_parts():
    assert run.WRITTEN[:2] == (shards.BAD_ROWS, shards.DONE)


def test_results_go_to_a_folder_of_their_own(tmp_path):
    (tmp_path / "texts.txt").write_text("it is good\n")
    with pytest.raises(ValueError, match="holds the data: name another folder"):
        explain(tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"cannot write to .*texts\.txt: expected a folder"):
        explain(tmp_path, tmp_path / "texts.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_a_run_goes_on_with_the_threads_that_it_began_with(tmp_path):
    before = torch.get_num_threads()
    explain(phrases(3), tmp_path, workers=Workers(threads=before + 1))
    explain(phrases(3), tmp_path)
    assert torch.get_num_threads() == before


# --- bad rows --------------------------------------------------------------------------------------------------------


def test_bad_rows_are_set_aside_once_with_their_reason(tmp_path):
    texts = [*phrases(11), "", None, *phrases(3), "\u200b", 7]
    done = explain(texts, tmp_path)
    assert (done.rows, done.explained, done.bad) == (18, 14, 4)
    rows = bad_rows(tmp_path)
    assert [row["row"] for row in rows] == [11, 12, 16, 17]
    assert [row["where"] for row in rows] == ["text 12", "text 13", "text 17", "text 18"]
    assert "empty" in rows[0]["reason"]
    assert "no tokens of its own" in rows[2]["reason"]
    assert set(table(tmp_path)["row"]) == set(range(18)) - {11, 12, 16, 17}


def test_one_text_that_breaks_a_method_spoils_no_other(tmp_path, monkeypatch):
    real = tl.Explainer.explain_tokenized

    def fragile(self, rows, *args, **settings):
        if any("bad 7" in row.text for row in rows):
            raise RefusedValue("scores are not finite on this input")
        return real(self, rows, *args, **settings)

    monkeypatch.setattr(tl.Explainer, "explain_tokenized", as_ours(fragile))
    texts = [*phrases(20), "a bad 7"]
    done = explain(texts, tmp_path)
    assert done.bad == 1
    assert bad_rows(tmp_path) == [{"row": 20, "where": "text 21", "reason": "scores are not finite on this input"}]


def test_if_nothing_can_be_explained_the_run_stops_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"none of the first 30 rows .* text 1: .*empty"):
        explain([""] * 30, tmp_path / "a")
    with pytest.raises(ValueError, match="found none"):
        explain([], tmp_path / "b")
    explain([*[""] * 15, "good"], tmp_path / "c")  # its first part is nothing but bad rows
    assert not (tmp_path / "a").exists()


def test_first_texts_without_tokens_do_not_end_a_run(tmp_path):
    done = explain([*["\u200b"] * 12, *phrases(3)], tmp_path)
    assert (done.explained, done.bad) == (3, 12)


def test_the_model_runs_on_few_texts_before_a_run_is_given_up(tmp_path, monkeypatch):
    runs = []

    def refuse(self, rows, *args, **settings):
        runs.append(rows)
        raise RefusedValue("scores are not finite on this input")

    monkeypatch.setattr(tl.Explainer, "explain_tokenized", as_ours(refuse))
    with pytest.raises(ValueError, match="none of the first 22 rows"):
        explain([*["\u200b"] * 12, *phrases(30)], tmp_path / "a")
    assert len(runs) == 10
    assert not (tmp_path / "a").exists()


def test_a_model_that_cannot_be_explained_is_no_bad_row(tmp_path, monkeypatch):
    def refuse(*args, **settings):
        raise tl.UnsupportedModelError("no")

    monkeypatch.setattr(tl.Explainer, "explain_tokenized", refuse)
    with pytest.raises(tl.UnsupportedModelError):
        explain(phrases(3), tmp_path)


# --- memory ----------------------------------------------------------------------------------------------------------


def full_above(limit: int, error: Exception):
    """Explaining as it is, in a machine with room for so many tokens."""
    real, sizes = tl.Explainer.explain_tokenized, []

    def explain_tokenized(self, rows, *args, **settings):
        size = len(rows) * max(map(len, rows))
        sizes.append(size)
        if size > limit:
            raise error
        return real(self, rows, *args, **settings)

    return as_ours(explain_tokenized), sizes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError("attn_lrp on 30 texts needs about 9 GiB"),
    ],
    ids=["cuda", "cpu", "cublas", "foreseen"],
)
def test_a_batch_that_does_not_fit_is_halved(tmp_path, monkeypatch, error):
    texts = phrases(8)
    explain(texts, tmp_path / "roomy", tokens=200)
    small, sizes = full_above(40, error)
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", small)
    done = explain(texts, tmp_path / "tight", tokens=200)
    assert max(sizes) > 40
    assert done.bad == 0
    for a, b in zip(table(tmp_path / "tight")["scores"], table(tmp_path / "roomy")["scores"], strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_text_that_does_not_fit_alone_is_set_aside(tmp_path, monkeypatch):
    small, _ = full_above(30, MemoryError())
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", small)
    done = explain([*phrases(5), " ".join(["good"] * 40), *phrases(5)], tmp_path)
    assert (done.explained, done.bad) == (10, 1)
    assert bad_rows(tmp_path)[0] == {"row": 5, "where": "text 6", "reason": "its 42 tokens do not fit in memory"}


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
    broken, sizes = full_above(0, RuntimeError("a bug"))
    monkeypatch.setattr(tl.Explainer, "explain_tokenized", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        explain(phrases(5), tmp_path)
    assert len(sizes) == 5  # each text on its own, and nothing is halved


def test_what_a_text_says_of_memory_is_not_taken_for_a_lack_of_it():
    tokenized_texts = explainer_for("bert").encode(["out of memory"])

    def refuse(places):
        raise RefusedValue("'out of memory' is not finite")

    assert run_in_batches(tokenized_texts, 100, False, as_ours(refuse)) == [Failure("'out of memory' is not finite")]


def test_halves_are_tried_when_the_memory_of_the_whole_is_free_again():
    """The error holds the frames of the failed attempt, and they hold its tensors."""
    alive = []

    class Held:
        def __init__(self):
            alive.append(1)

        def __del__(self):
            alive.pop()

    def hold(places):
        assert not alive
        held = Held()
        if len(places) > 1:
            raise MemoryError(held)
        return places

    tokenized_texts = explainer_for("bert").encode(phrases(4))
    assert run_in_batches(tokenized_texts, 10_000, False, hold) == [0, 1, 2, 3]


def test_batches_keep_to_the_budget_and_results_to_their_order():
    tokenized_texts = explainer_for("bert").encode(phrases(40))
    seen = []

    def look(places):
        seen.append(len(places) * max(len(tokenized_texts[i]) for i in places))
        return [tokenized_texts[i].text for i in places]

    assert run_in_batches(tokenized_texts, 64, False, look) == phrases(40)
    assert max(seen) <= 64
    assert run_in_batches([], 64, False, look) == []


def test_a_row_that_is_refused_alone_is_a_failure():
    def refuse(places):
        raise RefusedValue("no")

    tokenized_texts = explainer_for("bert").encode(phrases(2))
    assert run_batch([0, 1], tokenized_texts, as_ours(refuse)) == [Failure("no"), Failure("no")]


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc, which is not here")
def test_memory_stays_flat(tmp_path, monkeypatch):
    sizes, real = [], run.ShardWriter.process

    def process(self, chunk, advance):
        sizes.append(resident())
        return real(self, chunk, advance)

    monkeypatch.setattr(run.ShardWriter, "process", process)
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"{text}\n" for text in phrases(3000)))
    explain(source, tmp_path / "out", chunk_rows=100, tokens=2048)
    assert len(sizes) == 30
    assert max(sizes) - sizes[5] < 24 * 2**20, [size >> 20 for size in sizes]


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for a few parts."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(small_disk, tmp_path):
    texts = phrases(100)
    explain(texts, tmp_path / "whole", METHODS)
    with pytest.raises(OSError, match="no space left for part-0000"):
        explain(texts, small_disk / "out", METHODS)
    there = {path.name: path.read_bytes() for path in (small_disk / "out" / "parts").iterdir()}
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole" / "parts").iterdir()}
    assert 0 < len(there) < len(whole)
    assert there.items() <= whole.items()
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    explain(texts, small_disk / "out", METHODS)
    assert contents(small_disk / "out") == contents(tmp_path / "whole")


def test_what_a_full_disk_leaves_half_written_is_removed(tmp_path, monkeypatch):
    texts = phrases(30)
    explain(texts, tmp_path / "whole")
    real, written = pyarrow.parquet.write_table, []

    def write(table, path, **settings):
        real(table, path, **settings)
        written.append(path)
        if len(written) == 2:
            os.truncate(path, 100)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", write)
    with pytest.raises(OSError, match=r"no space left for part-000001\.parquet"):
        explain(texts, tmp_path / "again")
    assert [path.name for path in (tmp_path / "again" / "parts").iterdir()] == ["part-000000.parquet"]
    explain(texts, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


def test_other_failures_of_the_disk_are_told_as_they_are(tmp_path, monkeypatch):
    def fail(*args, **settings):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(pyarrow.parquet, "write_table", fail)
    with pytest.raises(OSError, match="Input/output error"):
        explain(phrases(3), tmp_path)
    assert not list((tmp_path / "parts").iterdir())


def test_a_damaged_shard_is_named(tmp_path):
    explain(phrases(12), tmp_path)
    shard = tmp_path / "parts" / "part-000001.parquet"
    shard.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"part-000001\.parquet is damaged .* delete it"):
        shards.read_counts(shard)
    with pytest.raises(ValueError, match=r"part-000001\.parquet is damaged: .* the same call again"):
        summarize(tmp_path)


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": 0}, "tokens is a positive number"),
        ({"chunk_rows": 0}, "chunk_rows is a positive number"),
        ({"dtype": "int8"}, "float32"),
        ({"methods": []}, "at least one method"),
        ({"methods": ["lrp", "LRP"]}, "each once"),
        ({"methods": ["mask_lrp"]}, "head mask"),
        ({"methods": ["lrp:read=other"]}, "none of the first 3 rows .* 'other'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        explain(phrases(3), tmp_path / "out", **{"methods": ["lrp"], **settings})
    assert not (tmp_path / "out").exists()


def test_a_run_that_came_to_nothing_does_not_hold_the_folder(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_shards", stop)
        with pytest.raises(KeyboardInterrupt):
            explain(phrases(3), tmp_path, ["attcat"])
    assert (tmp_path / "run.json").exists()
    explain(phrases(3), tmp_path, ["lrp"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text('{"format": "tokenlight.bench"}')
    with pytest.raises(ValueError, match=r"format is 'tokenlight\.bench' there"):
        explain(phrases(3), tmp_path / "b")


@pytest.mark.parametrize(
    ("settings", "message"), [({"engine": "spark"}, "'local' or 'ray', found 'spark'"), ({"count": 2}, "one process")]
)
def test_workers_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Workers(**settings)


def test_methods_are_a_list(tmp_path):
    with pytest.raises(TypeError, match="list of names"):
        explain(phrases(3), tmp_path, "lrp")


@pytest.mark.parametrize("number", [0, 5])
def test_a_folder_with_the_name_of_a_shard_is_refused_in_words(number, tmp_path):
    explain(phrases(3), tmp_path, chunk_rows=2)
    shard = tmp_path / "parts" / f"part-{number:06d}.parquet"
    shard.unlink(missing_ok=True)
    shard.mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for call in (lambda: explain(phrases(3), tmp_path, chunk_rows=2), lambda: summarize(tmp_path)):
        with pytest.raises(ValueError, match=rf"{shard.name} is a folder, expected a file .* move it somewhere else"):
            call()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
