"""Several worker processes under Ray, one of which is killed in the middle: the same files as from one process."""

import os
import threading
import time
from pathlib import Path

import pytest

import tokenlight as tl
from tests.corpus.test_explain_dataset import METHODS, contents, explain, phrases
from tests.tokenizers_ import explainer_for
from tokenlight.bench import benchmark as bench_run
from tokenlight.runs.workers import Workers

ray = pytest.importorskip("ray", reason="the extra `scale` is not installed")
ray_engine = pytest.importorskip("tokenlight.runs.ray_workers", reason="it needs Ray")
psutil = pytest.importorskip("psutil", reason="worker processes are found with psutil")
# Ray and what it brings along warn about themselves.
pytestmark = pytest.mark.filterwarnings("ignore")
SLOW = [*METHODS, "integrated_gradients:steps=24"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """This machine alone; nothing is sent anywhere."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in [*phrases(150), "", *phrases(50)]))
    return path


def workers() -> list:
    """The processes that hold the model."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if one.is_running() and "MapWorker" in " ".join(one.cmdline())]


def kill_one(folder: Path, killed: list[int]) -> None:
    """A worker, as soon as there are a few results."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if len(list((folder / "parts").glob("part-*"))) >= 2 and (found := workers()):
            found[0].kill()
            killed.append(len(list((folder / "parts").glob("part-*"))))
            return
        time.sleep(0.02)


@pytest.mark.usefixtures("cluster")
def test_two_workers_one_of_which_is_killed_write_what_one_process_writes(source, tmp_path):
    explain(source, tmp_path / "local", SLOW, Workers(threads=1))
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(tmp_path / "ray", killed))
    killer.start()
    done = explain(source, tmp_path / "ray", SLOW, Workers("ray", 2, threads=1))
    killer.join()
    assert (done.parts, done.explained, done.bad) == (21, 200, 1)
    assert killed, "no worker was killed"
    assert killed[0] < 21
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert ray.is_initialized()  # it was there before


@pytest.mark.usefixtures("cluster")
def test_the_benchmark_gives_the_same_on_ray(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_run, "PART_ROWS", 4)
    texts = Path("few.tsv")
    texts.write_text("text\n" + "".join(f"{text}\n" for text in [*phrases(9), "", *phrases(4)]))
    settings = {"metrics": ["aopc"], "erasure": False, "progress": False}
    for workers in (Workers(), Workers("ray", 2)):
        output = workers.engine
        tl.benchmark(explainer_for("bert"), texts, ["lrp", "attcat"], output=output, workers=workers, **settings)
    for file in ("results-00000.jsonl", "results-00001.jsonl", "examples.json", "table.csv", "bad_rows.jsonl"):
        assert (tmp_path / "ray" / file).read_bytes() == (tmp_path / "local" / file).read_bytes()


@pytest.mark.usefixtures("cluster")
def test_what_goes_wrong_is_said_as_without_ray_and_the_folder_is_shared(source, tmp_path):
    explain(source, tmp_path / "out", ["lrp"])
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "parts" / "part-000004.parquet").unlink()
    (tmp_path / "out" / "bad").rename(tmp_path / "out" / "elsewhere")
    (tmp_path / "out" / "bad").touch()
    (tmp_path / "out" / "parts" / "part-000015.parquet").unlink()
    with pytest.raises(OSError, match="bad"):
        explain(source, tmp_path / "out", ["lrp"], Workers("ray", 1))
    (tmp_path / "out" / "bad").unlink()
    (tmp_path / "out" / "elsewhere").rename(tmp_path / "out" / "bad")
    explain(source, tmp_path / "out", ["lrp"], Workers("ray", 1))  # begun by one engine, ended by the other
    assert contents(tmp_path / "out") == before
    (tmp_path / "out" / "_SUCCESS").unlink()  # killed when all parts were there
    explain(source, tmp_path / "out", ["lrp"], Workers("ray", 1))
    assert contents(tmp_path / "out") == before


def test_ray_that_was_started_for_a_run_ends_with_it(monkeypatch):
    said = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: said.append("begin"))
    monkeypatch.setattr(ray, "shutdown", lambda: said.append("end"))
    with pytest.raises(ValueError, match="refused"), ray_engine.running_ray():
        raise ValueError("refused")
    assert said == ["begin", "end"]
