"""Comparison with captum in ONE process, alternating, one thread: separate processes differ by 25 % on some machines.

    pip install --no-deps --target FOLDER captum==0.9.0
    PYTHONPATH=FOLDER python benchmarks/beside_captum.py --models embedded bert-base PATH/TO/smollm2

Both find out what the model says and explain that. captum gets a forward pass for it before integrated gradients, and
none before gradient x input, where the logit can be read from the pass that is differentiated. Printed is how long
ours takes, captum's being 1: the median over rounds of the ratio within a round. Below 1, ours is faster.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peers_common import Subject, load
from peers_models import save_model
from rich.console import Console
from rich.table import Table

import tokenlight as tl

LONG = 500  # tokens of a long text
TEXTS = Path(__file__).with_name("peers_texts.txt")


def captum_methods(subject: Subject, texts: Sequence[str], steps: int) -> dict[str, Callable[[], object]]:
    from captum.attr import InputXGradient, IntegratedGradients  # pyright: ignore[reportMissingImports]

    def gradient_x_input() -> list[list[float]]:
        batch = subject.encode(texts)

        def predicted(embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return subject.logits(embeddings, mask).amax(1)  # the logit of what the model says

        found = InputXGradient(predicted).attribute(subject.embed(batch.ids), additional_forward_args=(batch.mask,))
        return found.sum(-1).tolist()

    def integrated_gradients() -> list[list[float]]:
        batch = subject.encode(texts)
        embeddings = subject.embed(batch.ids)
        with torch.no_grad():
            target = subject.logits(embeddings, batch.mask).argmax(1)
        found = IntegratedGradients(subject.logits).attribute(
            embeddings,
            baselines=subject.embed(batch.baseline),
            target=target,
            additional_forward_args=(batch.mask,),
            n_steps=steps,
            internal_batch_size=32,
        )
        return found.sum(-1).tolist()

    return {"gradient_x_input": gradient_x_input, "integrated_gradients": integrated_gradients}


def our_methods(subject: Subject, texts: Sequence[str], steps: int) -> dict[str, Callable[[], object]]:
    explainer = tl.Explainer(subject.model, subject.tokenizer)
    options: dict[str, dict[str, Any]] = {"integrated_gradients": {"steps": steps, "baseline": subject.baseline_id}}

    def method(name: str) -> Callable[[], object]:
        def run() -> list[list[float]]:
            found = explainer.explain(list(texts), name, progress=False, batch_size=16, **options.get(name, {}))
            return [one.scores.tolist() for one in found]

        return run

    return {name: method(name) for name in ("gradient_x_input", "integrated_gradients")}


def ratios(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> list[float]:
    """Ratios of processor times in each round; the order alternates between rounds."""
    values = []
    for turn in range(rounds + 1):
        seconds = {}
        for name, run in [("ours", ours), ("theirs", theirs)][:: 1 if turn % 2 else -1]:
            began = time.process_time()
            run()
            seconds[name] = time.process_time() - began
        if turn:  # the first round warms up
            values.append(seconds["ours"] / seconds["theirs"])
    return sorted(values)


def long_text(subject: Subject, sentences: Sequence[str]) -> str:
    text = ""
    while len(subject.tokenizer(f"{text} {sentences[0]}")["input_ids"]) <= LONG:
        text = f"{text} {sentences[0]}".strip()
        sentences = [*sentences[1:], sentences[0]]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["embedded", "bert-base"], help="or paths of checkpoints")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    sentences = TEXTS.read_text(encoding="utf-8").split("\n")[:-1]
    table = Table("model", "texts", "method", "ours / captum", "from – to")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            model = Path(name).name
            save_model(name, Path(folder) / model)
            subject = load(Path(folder) / model)
            shapes = {
                "one sentence, 20 steps": (sentences[:1], 20, args.rounds),
                "16 sentences, 20 steps": (sentences[:16], 20, max(3, args.rounds // 3)),
                f"{LONG} tokens, 6 steps": ([long_text(subject, sentences)], 6, max(3, args.rounds // 3)),
            }
            for shape, (texts, steps, rounds) in shapes.items():
                theirs = captum_methods(subject, texts, steps)
                for method, run in our_methods(subject, texts, steps).items():
                    found = ratios(run, theirs[method], rounds)
                    numbers = f"{statistics.median(found):.2f}", f"{found[0]:.2f} – {found[-1]:.2f}"
                    table.add_row(model, shape, method, *numbers)
                    print(model, shape, method, *numbers, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
