"""Work spread by Ray: Ray Data reads and hands out the items, a pool of actors holds the model and does them.

Ray restarts actors that die and gives their item to another. Each item is done by the same code as in one process.
"""

import copy
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch

from tokenlight.corpus.explain_dataset import Place, Work
from tokenlight.data.corpus import Corpus, Part
from tokenlight.explain.explainer import Explainer

try:
    import pyarrow
    import ray
    import ray.data

    from tokenlight.foundation.ray_internals import reading_task, under
except ImportError as missing:
    raise ImportError('engine="ray" needs Ray: pip install "tokenlight[scale]"') from missing


class Doing(Protocol):
    """What workers get: a copy each."""

    @property
    def explainers(self) -> Sequence[Explainer]: ...

    def do(self, item: Any, /) -> Any: ...


@dataclass(frozen=True)
class Workers:
    """How many, and what each has."""

    count: int
    threads: int
    cpus: float  # what Ray sets aside
    gpus: float

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"


def find_workers(count: int | None, threads: int | None) -> Workers:
    """As many as there are GPUs; without any, one for each processor, or for each so many threads."""
    resources = ray.cluster_resources()
    cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    count = count or gpus or max(1, cpus // (threads or 1))
    threads = threads or max(1, cpus // count)
    share = int(100 * min(threads, cpus / count)) / 100
    return Workers(count, threads, share, min(1.0, gpus / count))


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


@contextmanager
def place_on_ray(workers: int | None, threads: int | None) -> Iterator[Place]:
    """Where the parts of a corpus are done."""
    with running_ray():
        found = find_workers(workers, threads)
        yield Place(partial(run_parts, found), found.device, found.threads)


def run_parts(workers: Workers, work: Work, corpus: Corpus, done: Set[int], tell: Callable[[float], None]) -> None:
    """Parts get done in any order."""
    items = partial(unfinished, corpus, work.plan.settings.part_rows, frozenset(done))
    for rows in spread(replace(work, folder=work.folder.resolve()), items, workers):
        tell(rows)


def unfinished(corpus: Corpus, size: int, done: frozenset[int]) -> Iterator[Part]:
    return (part for part in corpus.parts(size) if part.number not in done)


def spread(work: Doing, items: Callable[[], Iterator[Any]], workers: Workers, ordered: bool = False) -> Iterator[Any]:
    """What `work` makes of every item, as it gets done or in the items' order."""
    if any(one.model.device.type != "cpu" for one in work.explainers):
        raise ValueError("every worker moves a copy of the model to its own device: load the model on the CPU")
    held = ray.put(work)  # must live as long as actors may be restarted
    with settings_of_ray_data(ordered):
        # Reading asks for no processor of its own: with all of them taken by workers, it would wait for ever.
        dataset = ray.data.read_datasource(ItemSource(items), override_num_blocks=1, num_cpus=0)
        results = dataset.map_batches(
            Worker,
            fn_constructor_args=([held], workers),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers.count),
            num_cpus=workers.cpus,
            num_gpus=workers.gpus,
        )
        for row in results.iter_rows():
            good, result = pickle.loads(row["result"])
            if not good:
                raise result
            yield result


class ItemSource(ray.data.Datasource):
    """Items that one task makes, one after another, and hands on as they come."""

    def __init__(self, items: Callable[[], Iterator[Any]]):
        self.items, self.folder = items, os.getcwd()

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *settings: Any, **more: Any) -> list[ray.data.ReadTask]:
        return [reading_task(self.read)]

    def read(self) -> Iterator[pyarrow.Table]:
        if os.path.isdir(self.folder):
            os.chdir(self.folder)  # where the names of files that the items are read from are true
        for item in self.items():
            yield pyarrow.table({"item": [pickle.dumps(item)]})


class Worker:
    """Holds the model; lives in a process of its own."""

    def __init__(self, held: list[Any], workers: Workers):
        self.work: Doing = ray.get(held[0])
        torch.set_num_threads(workers.threads)
        for explainer in self.work.explainers:
            model: Any = explainer.model
            model.to(workers.device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """One item; what is wrong with the data or the disk goes to the caller as it is, not as a failure of Ray's."""
        try:
            outcome = True, self.work.do(pickle.loads(batch["item"][0]))
        except (ValueError, TypeError, OSError) as error:
            outcome = False, error
        return {"result": [pickle.dumps(outcome)]}


@contextmanager
def settings_of_ray_data(ordered: bool) -> Iterator[None]:
    """Inside, every item is handed out on its own, and progress is told by us alone, in texts."""
    context, log = copy.deepcopy(ray.data.DataContext.get_current()), logging.getLogger("ray.data")
    context.target_max_block_size = context.target_min_block_size = 1  # byte: items are not gathered
    context.enable_progress_bars = False
    context.execution_options.preserve_order = ordered
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with under(context):
            yield
    finally:
        log.setLevel(level)
