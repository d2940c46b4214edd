"""The engine for Ray: a Ray Data task reads the chunks, a pool of actors with copies of the model processes them.

Ray restarts actors that die and gives their chunk to another. Chunks are processed by the same code as in one process.
"""

import copy
import logging
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenlight.common.errors import RefusedValue, from_extra
from tokenlight.data.examples import Chunk
from tokenlight.runs.workers import Workers

if TYPE_CHECKING:  # Ray's processes import this file; without these imports the reading task need not load torch
    from tokenlight.runs.engines import Advance, ChunkTask, ReadChunks, Result

with from_extra("scale", 'engine="ray"'):
    import pyarrow
    import ray
    import ray.data

    from tokenlight._compat.ray_internals import reading_task, under


@dataclass(frozen=True)
class RayEngine:
    """Processes chunks by `count` actors of Ray, with the resources of each."""

    count: int
    threads: int
    cpus: float  # that Ray reserves for an actor
    gpus: float

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def run(
        self, task: "ChunkTask[Result]", read_chunks: "ReadChunks", advance: "Advance", ordered: bool = True
    ) -> "Iterator[Result]":
        if any(explainer.model.device.type != "cpu" for explainer in task.explainers):
            raise RefusedValue("every worker moves a copy of the model to its own device: load the model on the CPU")
        task_reference = ray.put(task)  # kept as long as actors may be restarted
        with ray_data_settings(ordered):
            # Reading reserves no CPU: if the workers have reserved all of them, it would never start.
            dataset = ray.data.read_datasource(ChunkSource(read_chunks), override_num_blocks=1, num_cpus=0)
            results = dataset.map_batches(
                Worker,
                fn_constructor_args=([task_reference], self.device, self.threads),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=self.count),
                num_cpus=self.cpus,
                num_gpus=self.gpus,
            )
            for row in results.iter_rows():
                succeeded, result = pickle.loads(row["result"])
                if not succeeded:
                    raise result
                advance(row["rows"])
                yield result


def choose_ray_engine(workers: Workers) -> RayEngine:
    """By default one actor for each GPU; without GPUs, one for each CPU, or for each `threads` CPUs."""
    resources = ray.cluster_resources()
    cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    count = workers.count or gpus or max(1, cpus // (workers.threads or 1))
    threads = workers.threads or max(1, cpus // count)
    share = int(100 * min(threads, cpus / count)) / 100
    return RayEngine(count, threads, share, min(1.0, gpus / count))


@contextmanager
def running_ray() -> Iterator[None]:
    """Use Ray if it is initialized; otherwise connect to RAY_ADDRESS or start Ray here, and shut it down at the end."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no usage statistics
    ray.init(include_dashboard=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


class ChunkSource(ray.data.Datasource):
    """Chunks that a single task reads and passes on one by one."""

    read_chunks: "ReadChunks"
    folder: str

    def __init__(self, read_chunks: "ReadChunks"):
        self.read_chunks, self.folder = read_chunks, os.getcwd()

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *settings: Any, **more: Any) -> list[ray.data.ReadTask]:
        return [reading_task(self.read)]

    def read(self) -> Iterator[pyarrow.Table]:
        if os.path.isdir(self.folder):
            os.chdir(self.folder)  # relative names of data files refer to the caller's working directory
        for chunk in self.read_chunks():
            yield pyarrow.table({"chunk": [pickle.dumps(chunk)]})


class Worker:
    """An actor: a process with a copy of the model."""

    def __init__(self, task_reference: list[Any], device: str, threads: int):
        self.task: ChunkTask[Any] = ray.get(task_reference[0])
        if self.task.explainers:
            import torch  # the task has loaded it

            torch.set_num_threads(threads)
        for explainer in self.task.explainers:
            model: Any = explainer.model
            model.to(device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Process one chunk. Errors of the data or the disk are returned for the caller to raise."""
        chunk: Chunk = pickle.loads(batch["chunk"][0])
        try:
            outcome = True, self.task.process(chunk, lambda rows: None)
        except (ValueError, TypeError, OSError) as error:
            outcome = False, error
        return {"rows": [len(chunk.rows)], "result": [pickle.dumps(outcome)]}


@contextmanager
def ray_data_settings(ordered: bool) -> Iterator[None]:
    """Settings of Ray Data inside the context: chunks are distributed one by one; Ray prints no progress or logs."""
    context, log = copy.deepcopy(ray.data.DataContext.get_current()), logging.getLogger("ray.data")
    context.target_max_block_size = context.target_min_block_size = 1  # byte: chunks are not merged
    context.enable_progress_bars = False
    context.execution_options.preserve_order = ordered
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with under(context):
            yield
    finally:
        log.setLevel(level)
