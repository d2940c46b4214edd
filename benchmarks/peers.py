"""Comparison with other libraries: the same models, texts, targets and machine, one thread, in one run. Linux only.

    python benchmarks/peers.py --setup --envs ENVS                 # an environment for each peer; takes a while
    python benchmarks/peers.py --envs ENVS --texts FILE -o FOLDER  # one text a line; default: 24 sentences
    python benchmarks/peers.py --envs ENVS --models embedded bert-base PATH/TO/smollm2

Every library runs in a process of its own (peers_runner.py) and is asked by turns, in another order each round, so that
a busy machine disturbs all alike. Times are the processor's, medians of several rounds after one to warm up. Memory is
how far the resident memory rises above the loaded model, in a process of its own. Methods of many passes get the first
`--few` texts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers_models import REQUIREMENTS, python_of, save_model, set_up
from peers_table import Result, agreement, show

OURS, RUNNER = "tokenlight", Path(__file__).with_name("peers_runner.py")
OF_PROBABILITY = "integrated_gradients of the probability"
MANY_PASSES = ("integrated_gradients", OF_PROBABILITY, "partition")
BESIDE = {OF_PROBABILITY: "integrated_gradients", "partition": "gradient_x_input"}  # whose speed of ours
TEXTS = Path(__file__).with_name("peers_texts.txt")


class PeerError(Exception):
    """An error of a library, as one line."""


class Peer:
    """A library in a separate process that waits for requests."""

    def __init__(self, name: str, python: Path, folder: Path, log: Path, runner: Path = RUNNER):
        self.name, self.log = name, log
        if not python.is_file():
            raise PeerError(f"not installed: there is no {python.name} for it; run --setup")
        threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        with log.open("a") as errors:
            command = [str(python), str(runner), name, str(folder)]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, text=True, env=os.environ | threads, **pipes)
        try:
            self.ready = self._read()
        except PeerError:
            self.close()
            raise

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f"its process ended; see {self.log.name}") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"its process ended with exit code {self.process.wait()}; see {self.log.name}")
        response = json.loads(line)
        if "error" in response:
            raise PeerError(response["error"])
        return response

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@dataclass
class Task:
    """A method of a peer on some texts."""

    peer: Peer
    method: str
    texts: list[str]
    targets: list[int]
    warming: dict[str, Any]  # a short text and its target
    seconds: list[float] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    peak: int | None = None
    failed: str | None = None

    @property
    def request(self) -> dict[str, Any]:
        return {"method": self.method, "texts": self.texts, "targets": self.targets}

    def run(self) -> None:
        if response := self._try("run", **self.request):
            self.scores = response["scores"]
            self.seconds.append(response["cpu"])

    def measure_memory(self) -> None:
        if not self.for_agreement_only and (response := self._try("memory", warming=self.warming, **self.request)):
            self.peak = response["bytes"]

    def warm_up(self) -> None:
        self._try("run", **self.request | (self.warming if self.method in MANY_PASSES else {}))

    def _try(self, do: str, **what: Any) -> dict[str, Any] | None:
        if self.failed:
            return None
        try:
            return self.peer.ask(do, **what)
        except PeerError as error:
            self.failed = str(error)
            return None

    @property
    def for_agreement_only(self) -> bool:
        """Whether the task is only for agreement, because tokenlight runs one text at a time there."""
        return self.peer.name == OURS and self.method == OF_PROBABILITY

    @property
    def rate(self) -> float:
        return len(self.texts) / statistics.median(self.seconds)


@dataclass(frozen=True)
class Bench:
    """One model and the tasks on it."""

    model: str
    folder: Path
    texts: list[str]
    few: int
    rounds: int
    pythons: dict[str, Path]
    log: Path

    def run(self) -> list[Result]:
        peers, results = self.start()
        try:
            targets = peers[0].ask("choose", texts=self.texts)["targets"]
            peers, different = self.same_model(peers, targets)
            tasks = [self.task(peer, method, targets) for peer in peers for method in peer.ready["methods"]]
            for task in tasks:
                task.measure_memory()
            for task in tasks:
                task.warm_up()
            for turn in range(self.rounds):
                first = turn % len(
                    tasks
                )  # so that tasks do not always follow the same task, whose data is in the caches
                for task in tasks[first:] + tasks[:first]:
                    if not turn or not task.for_agreement_only:
                        task.run()
                print(f"{self.model}: round {turn + 1} of {self.rounds}", file=sys.stderr, flush=True)
        finally:
            for peer in peers:
                peer.close()
        return [*self.compare(tasks), *different, *results]

    def start(self) -> tuple[list[Peer], list[Result]]:
        """Results, tokenlight first; errors are results, too."""
        peers, failed = [Peer(OURS, self.pythons[OURS], self.folder, self.log)], []
        for name, python in self.pythons.items():
            if name != OURS:
                try:
                    peers.append(Peer(name, python, self.folder, self.log))
                except PeerError as error:
                    failed.append(Result(self.model, name, reason=str(error)))
        return peers, failed

    def same_model(self, peers: list[Peer], targets: list[int]) -> tuple[list[Peer], list[Result]]:
        """Exclude libraries whose transformers computes other logits from the model's folder."""
        ours = peers[0].ask("logits", texts=self.texts, targets=targets)["logits"]
        same, different = [], []
        for peer in peers:
            logits = peer.ask("logits", texts=self.texts, targets=targets)["logits"]
            gap = max(abs(a - b) for a, b in zip(logits, ours, strict=True))
            if gap < 1e-3:
                same.append(peer)
            else:
                peer.close()
                reason = f"its transformers computes other logits from the same folder (up to {gap:.3g} apart)"
                different.append(Result(self.model, peer.name, peer.ready["versions"], reason=reason))
        return same, different

    def task(self, peer: Peer, method: str, targets: list[int]) -> Task:
        count = self.few if method in MANY_PASSES else len(self.texts)
        text, target = min(zip(self.texts, targets, strict=True), key=lambda pair: len(pair[0]))
        warming = {"texts": [text], "targets": [target]}
        return Task(peer, method, self.texts[:count], targets[:count], warming)

    def compare(self, tasks: Sequence[Task]) -> list[Result]:
        ours = {task.method: task for task in tasks if task.peer.name == OURS}
        return [self.result(task, ours) for task in tasks if not task.for_agreement_only]

    def result(self, task: Task, ours: dict[str, Task]) -> Result:
        name, versions = task.peer.name, task.peer.ready["versions"]
        if task.failed or task.peak is None:
            return Result(self.model, name, versions, task.method, reason=task.failed)
        beside = ours[BESIDE.get(task.method, task.method)]
        same = ours.get(task.method)
        return Result(
            model=self.model,
            peer=name,
            versions=versions,
            method=task.method,
            texts=len(task.texts),
            per_second=task.rate,
            slowest=len(task.texts) / max(task.seconds),
            fastest=len(task.texts) / min(task.seconds),
            peak=task.peak,
            beside=beside.method,
            times_as_fast=None if name == OURS else beside.rate / task.rate,
            agreement=None if name == OURS or same is None else agreement(same.scores, task.scores),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=Path, required=True, help="folder with the peers' environments")
    parser.add_argument("--setup", action="store_true", help="make the environments and stop")
    parser.add_argument("--peers", nargs="+", default=list(REQUIREMENTS), choices=list(REQUIREMENTS))
    parser.add_argument("--models", nargs="+", default=["embedded", "bert-base"], help="or paths of checkpoints")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="one text a line")
    parser.add_argument("--few", type=int, default=4, help="texts for methods of many passes")
    parser.add_argument("--steps", type=int, default=50, help="of integrated gradients; fewer for long texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path("peers"), help="folder for peers.json and peers.log")
    args = parser.parse_args()
    if args.setup:
        sys.exit(1 if set_up(args.envs, args.peers) else 0)
    os.environ["PEERS_STEPS"] = str(args.steps)  # for every library's process
    texts = [line.strip() for line in args.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not texts:
        parser.error(f"{args.texts} holds no text; expected one a line")
    pythons = {OURS: Path(sys.executable)} | {peer: python_of(args.envs, peer) for peer in args.peers}
    args.output.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            model = Path(name).name
            save_model(name, Path(folder) / model)
            log = args.output / "peers.log"
            bench = Bench(model, Path(folder) / model, texts, min(args.few, len(texts)), args.rounds, pythons, log)
            results += bench.run()
            (args.output / "peers.json").write_text(json.dumps([vars(result) for result in results], indent=1))
    show(results)


if __name__ == "__main__":
    main()
