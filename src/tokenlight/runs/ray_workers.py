"""A run spread by Ray: Ray Data reads the chunks, a pool of actors holds the model.

Ray restarts actors that die and gives their part to another. Each part is done by the same code as in one process.
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

if TYPE_CHECKING:  # Ray's processes import this file: what they do not need of torch, they do not wait for
    from tokenlight.runs.engines import Parts, Procedure, Result, Tell

with from_extra("scale", 'engine="ray"'):
    import pyarrow
    import ray
    import ray.data

    from tokenlight._compat.ray_internals import reading_task, under


@dataclass(frozen=True)
class RayWorkers:
    """How many, and what each has."""

    count: int
    threads: int
    cpus: float  # what Ray sets aside
    gpus: float

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def run(
        self, procedure: "Procedure[Result]", parts: "Parts", tell: "Tell", ordered: bool = True
    ) -> "Iterator[Result]":
        if any(one.model.device.type != "cpu" for one in procedure.explainers):
            raise RefusedValue("every worker moves a copy of the model to its own device: load the model on the CPU")
        held = ray.put(procedure)  # must live as long as actors may be restarted
        with settings_of_ray_data(ordered):
            # Reading asks for no processor of its own: with all of them taken by workers, it would wait for ever.
            dataset = ray.data.read_datasource(ChunkSource(parts), override_num_blocks=1, num_cpus=0)
            results = dataset.map_batches(
                Worker,
                fn_constructor_args=([held], self.device, self.threads),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=self.count),
                num_cpus=self.cpus,
                num_gpus=self.gpus,
            )
            for row in results.iter_rows():
                good, result = pickle.loads(row["result"])
                if not good:
                    raise result
                tell(row["rows"])
                yield result


def find_workers(wanted: Workers) -> RayWorkers:
    """As many as there are GPUs; without any, one for each processor, or for each so many threads."""
    resources = ray.cluster_resources()
    cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    count = wanted.count or gpus or max(1, cpus // (wanted.threads or 1))
    threads = wanted.threads or max(1, cpus // count)
    share = int(100 * min(threads, cpus / count)) / 100
    return RayWorkers(count, threads, share, min(1.0, gpus / count))


@contextmanager
def running_ray() -> Iterator[None]:
    """The cluster that RAY_ADDRESS names or that runs here already; otherwise one of this machine's own, until then."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    ray.init(include_dashboard=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


class ChunkSource(ray.data.Datasource):
    """Parts that one task reads, one after another, and hands on as they come."""

    parts: "Parts"
    folder: str

    def __init__(self, parts: "Parts"):
        self.parts, self.folder = parts, os.getcwd()

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *settings: Any, **more: Any) -> list[ray.data.ReadTask]:
        return [reading_task(self.read)]

    def read(self) -> Iterator[pyarrow.Table]:
        if os.path.isdir(self.folder):
            os.chdir(self.folder)  # where the names of files that the parts are read from are true
        for part in self.parts():
            yield pyarrow.table({"part": [pickle.dumps(part)]})


class Worker:
    """Holds the model; lives in a process of its own."""

    def __init__(self, held: list[Any], device: str, threads: int):
        self.procedure: Procedure[Any] = ray.get(held[0])
        if self.procedure.explainers:
            import torch  # by now it is there

            torch.set_num_threads(threads)
        for explainer in self.procedure.explainers:
            model: Any = explainer.model
            model.to(device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """One part; what is wrong with the data or the disk goes to the caller as it is, not as a failure of Ray's."""
        part: Chunk = pickle.loads(batch["part"][0])
        try:
            outcome = True, self.procedure.do(part, lambda rows: None)
        except (ValueError, TypeError, OSError) as error:
            outcome = False, error
        return {"rows": [len(part.rows)], "result": [pickle.dumps(outcome)]}


@contextmanager
def settings_of_ray_data(ordered: bool) -> Iterator[None]:
    """Inside, every part is handed out on its own, and progress is told by us alone, in texts."""
    context, log = copy.deepcopy(ray.data.DataContext.get_current()), logging.getLogger("ray.data")
    context.target_max_block_size = context.target_min_block_size = 1  # byte: parts are not gathered
    context.enable_progress_bars = False
    context.execution_options.preserve_order = ordered
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with under(context):
            yield
    finally:
        log.setLevel(level)
