"""Runs with Ray workers, one of which is killed, write the same files as a run in one process."""

import os
import pickle
from functools import partial
from pathlib import Path

import pytest

import tokenlight as tl
from tests.corpus.test_explain_dataset import METHODS, contents, explain, phrases
from tests.runs.in_workers import FailsAtSecondChunk, KillsOneWorker
from tests.tokenizers_ import explainer_for
from tokenlight.bench import benchmark as bench_run
from tokenlight.data.examples import Chunk
from tokenlight.model import block_structure
from tokenlight.runs.workers import Workers

ray = pytest.importorskip("ray", reason="the extra `scale` is not installed")
ray_engine = pytest.importorskip("tokenlight.runs.ray_workers", reason="it needs Ray")
# Ray and its dependencies raise warnings.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A local Ray cluster that sends no usage statistics."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # By default, workers have a low priority, and the other tests would always run first.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (its name)
    ray.init("local", num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*phrases(35), "", *phrases(25)]))
    return path


@pytest.mark.usefixtures("cluster")
def test_two_workers_of_which_one_is_killed_write_the_same_files_as_one_process(source, tmp_path):
    local, folder, killed = tmp_path / "local", tmp_path / "ray", tmp_path / "killed"
    second_block = block_structure.blocks(explainer_for("bert").model)[1]
    hook = second_block.register_forward_pre_hook(KillsOneWorker(folder / "parts", killed))
    try:  # all runs have the hook, because it is part of the model's fingerprint
        explain(source, local, METHODS, Workers(threads=1))
        done = explain(source, folder, METHODS, Workers("ray", 2, threads=1))
        assert killed.exists(), "no worker was killed"
        assert (done.parts, done.explained, done.bad) == (7, 60, 1)
        assert contents(folder) == contents(local)
        assert ray.is_initialized()  # the run does not stop a cluster that was already running
        (folder / "_SUCCESS").unlink()
        (folder / "parts" / "part-000004.parquet").unlink()
        explain(source, folder, METHODS, Workers(threads=1))  # started by one engine, finished by the other
        assert contents(folder) == contents(local)
    finally:
        hook.remove()


def run_here(self, task, read_chunks, advance, ordered=True):
    """RayEngine.run with the worker in this process, which saves the imports of a new process."""
    worker = ray_engine.Worker([ray.put(task)], self.device, self.threads)
    for chunk in read_chunks():
        done = worker({"chunk": [pickle.dumps(chunk)]})
        succeeded, result = pickle.loads(done["result"][0])
        assert succeeded, result
        advance(done["rows"][0])
        yield result


@pytest.mark.usefixtures("cluster")
def test_the_benchmark_writes_the_same_files_with_a_ray_worker(tmp_path, monkeypatch):
    """The worker's input and output are pickled as with Ray; scheduling by Ray is tested above."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_engine.RayEngine, "run", run_here)
    monkeypatch.setattr(bench_run, "CHUNK_ROWS", 4)
    texts = Path("few.tsv")
    texts.write_text("text\n" + "".join(f"{text}\n" for text in [*phrases(9), "", *phrases(4)]))
    settings = {"metrics": ["aopc"], "erasure": False, "progress": False}
    for workers in (Workers(threads=1), Workers("ray", 1, threads=1)):
        output = workers.engine
        tl.benchmark(explainer_for("bert"), texts, ["lrp", "attcat"], output=output, workers=workers, **settings)
    for file in ("results-00000.jsonl", "results-00001.jsonl", "examples.json", "table.csv", "bad_rows.jsonl"):
        assert (tmp_path / "ray" / file).read_bytes() == (tmp_path / "local" / file).read_bytes()


@pytest.mark.usefixtures("cluster")
def test_errors_of_workers_are_raised_as_without_ray():
    chunks = [Chunk(number, ()) for number in range(3)]
    results = ray_engine.choose_ray_engine(Workers("ray", 1)).run(
        FailsAtSecondChunk(), partial(iter, chunks), lambda rows: None
    )
    assert next(results) == 0
    with pytest.raises(OSError, match="the disk is full"):
        next(results)


@pytest.mark.parametrize("ordered", [True, False])
def test_results_keep_their_order_on_request(ordered):
    with ray_engine.ray_data_settings(ordered):
        assert ray.data.DataContext.get_current().execution_options.preserve_order is ordered


def test_a_ray_cluster_that_was_started_for_a_run_is_shut_down(monkeypatch):
    calls = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: calls.append("begin"))
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("end"))
    with pytest.raises(ValueError, match="refused"), ray_engine.running_ray():
        raise ValueError("refused")
    assert calls == ["begin", "end"]
