"""Explanations of answers compared with captum and inseq: the same scores, and their costs. Linux only.

    python benchmarks/peers.py --setup --envs ENVS --peers captum inseq          # once: their environments
    python benchmarks/answers.py --envs ENVS                                     # the same scores? tiny models
    python benchmarks/answers.py --envs ENVS --models PATH/TO/smollm2 --time     # and the time, 300 + 60 tokens

Every step of every method of theirs is compared with ours: the largest difference in a row, as a part of the row's
largest score. More than 1e-5 on the tiny models is an error. Times are the processor's, medians of interleaved rounds
after one to warm up, one thread each; read the ratios, not the seconds.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from answers_runner import Case, Matrix
from peers import OURS, TEXTS, Peer, PeerError
from peers_models import python_of, save_model, save_tiny
from transformers import AutoTokenizer

RUNNER = Path(__file__).with_name("answers_runner.py")
TINY = ("tiny llama", "tiny gpt2")
TOLERANCE = 1e-5
ONE_PASS = ("gradient_x_input", "attn_lrp")
MATRIX_GOAL, WHOLE_GOAL = 5.0, 1.3


def make_case(folder: Path, prompt: int, answer: int, steps: int) -> Case:
    """The benchmark's sentences, joined and divided into a prompt and an answer of these lengths."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    text = " ".join(TEXTS.read_text(encoding="utf-8").split("\n"))
    ids = tokenizer((text + " ") * (1 + (prompt + answer) * 4 // len(text)))["input_ids"][: prompt + answer]
    first, second = tokenizer.decode(ids[:prompt]), tokenizer.decode(ids[prompt:])
    if tokenizer(first + second)["input_ids"] != ids or tokenizer(first)["input_ids"] != ids[:prompt]:
        raise SystemExit(f"prompt and answer are cut otherwise as texts: try another --prompt than {prompt}")
    return Case(first, second, ids[:prompt], ids[prompt:], steps)


def apart(ours: Matrix, theirs: Matrix) -> float:
    """The largest relative difference of rows; rows of other libraries may only have scores of the prompt."""
    worst = 0.0
    for our_scores, their_scores in zip(ours, theirs, strict=True):
        a, b = torch.tensor(our_scores[: len(their_scores)]).double(), torch.tensor(their_scores).double()
        worst = max(worst, float((a - b).abs().max() / b.abs().max()))
    return worst


@dataclass(frozen=True)
class Bench:
    """The libraries on one model, each in a separate process."""

    peers: dict[str, Peer]
    case: Case
    short: Case  # to warm up

    def ask(self, name: str, method: str, case: Case) -> dict[str, Any]:
        return self.peers[name].ask("matrix", method=method, case=asdict(case))

    def shared(self) -> Iterator[tuple[str, str]]:
        """Methods of other libraries that tokenlight also has."""
        for name, peer in self.peers.items():
            yield from ((name, method) for method in peer.ready["methods"] if name != OURS)

    def compare(self) -> dict[tuple[str, str], float]:
        return {
            (name, method): apart(*(self.ask(one, method, self.case)["scores"] for one in (OURS, name)))
            for name, method in self.shared()
        }

    def time(self, rounds: int, methods: list[str]) -> dict[tuple[str, str], float]:
        """Median seconds of each task."""
        whole = [f"{method}, whole answer" for method in ONE_PASS]
        theirs = [one for one in self.shared() if any(one[1].startswith(method) for method in methods)]
        ours = [(OURS, method) for method in dict.fromkeys(["by hand", *whole, *(method for _, method in theirs)])]
        tasks = [*ours, *theirs]
        if "attn_lrp" in methods:
            tasks.append((OURS, "attn_lrp, logit"))
        seconds: dict[tuple[str, str], list[float]] = {task: [] for task in tasks}
        for task in tasks:
            self.ask(*task, self.short)
        for turn in range(rounds):
            for task in tasks:
                seconds[task].append(self.ask(*task, self.case)["cpu"])
            print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        return {task: statistics.median(found) for task, found in seconds.items()}


def show_times(seconds: dict[tuple[str, str], float], title: str) -> None:
    """Print a Markdown table for docs/peers.md."""
    hand = seconds[OURS, "by hand"]
    print(f"\n{title}\n\n| library | what | seconds | × one pass by hand | ours is | goal |\n|---|---|---|---|---|---|")
    for (name, what), value in seconds.items():
        ratio, goal = "", ""
        if name != OURS:
            ratio, goal = f"{value / seconds[OURS, what]:.2f} × as fast", f"{MATRIX_GOAL:g} × as fast"
        elif what.endswith("whole answer"):
            goal = f"{WHOLE_GOAL:g} × by hand"
        print(f"| {name} | {what} | {value:.2f} | {value / hand:.2f} | {ratio} | {goal} |")


def start(pythons: dict[str, Path], folder: Path, log: Path) -> dict[str, Peer]:
    peers = {OURS: Peer(OURS, pythons[OURS], folder, log, RUNNER)}
    for name, python in pythons.items():
        if name != OURS:
            try:
                peers[name] = Peer(name, python, folder, log, RUNNER)
            except PeerError as error:
                print(f"{name}: {error}")
    return peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=Path, required=True, help="folder with the peers' environments")
    parser.add_argument("--peers", nargs="+", default=["captum", "inseq"], choices=["captum", "inseq"])
    parser.add_argument("--models", nargs="+", default=list(TINY), help=f"{', '.join(TINY)}, or paths of checkpoints")
    parser.add_argument("--time", action="store_true", help="measure the time instead of comparing scores")
    parser.add_argument("--methods", nargs="+", default=list(ONE_PASS), help="whose time is measured")
    parser.add_argument("--prompt", type=int, default=300, help="tokens of the prompt")
    parser.add_argument("--answer", type=int, default=60, help="tokens of the answer")
    parser.add_argument("--steps", type=int, default=20, help="of integrated gradients")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", type=Path, default=Path("answers.log"), help="what the libraries say")
    args = parser.parse_args()
    pythons = {OURS: Path(sys.executable)} | {name: python_of(args.envs, name) for name in args.peers}
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            model = Path(folder) / Path(name).name
            save_tiny(name.removeprefix("tiny "), model) if name in TINY else save_model(name, model)
            case, short = make_case(model, args.prompt, args.answer, args.steps), make_case(model, 20, 1, 1)
            bench = Bench(start(pythons, model, args.log), case, short)
            try:
                if args.time:
                    title = f"{model.name}: an answer of {args.answer} tokens to a prompt of {args.prompt}"
                    show_times(bench.time(args.rounds, args.methods), title)
                    continue
                for (peer, method), error in bench.compare().items():
                    versions = ", ".join(f"{k} {v}" for k, v in bench.peers[peer].ready["versions"].items())
                    print(f"{model.name}: {method}: {error:.1e} from {peer} ({versions})", flush=True)
                    wrong |= name in TINY and not error < TOLERANCE
            finally:
                for peer in bench.peers.values():
                    peer.close()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
