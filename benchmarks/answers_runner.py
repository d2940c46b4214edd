"""Answers explained token by token by one library, in the library's own environment; benchmarks/answers.py starts it.

    python benchmarks/answers_runner.py PEER FOLDER

One JSON object a line comes in and one goes out, as in peers_runner.py. It needs torch, transformers and the peer.
Scores are a matrix: a row for each token of the answer, a column for every token that it tells about.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from peers_common import ROWS, Subject, load

Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """A prompt and an answer, as texts and as tokens."""

    prompt: str
    answer: str
    prompt_ids: list[int]
    answer_ids: list[int]
    steps: int  # of integrated gradients

    def before(self, step: int) -> torch.Tensor:
        """[1, token]: the input from which the model predicts this token of the answer."""
        return torch.tensor([self.prompt_ids + self.answer_ids[:step]])


Method = Callable[[Case], Matrix]


def tokenlight(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import tokenlight as tl

    subject = load(folder)
    explainer = tl.Explainer(subject.model, subject.tokenizer)

    def matrix(method: str, number: Any) -> Method:
        def run(case: Case) -> Matrix:
            options: dict[str, Any] = (
                {"steps": case.steps, "baseline": subject.baseline_id} if "integrated" in method else {}
            )
            ids = tuple(case.answer_ids)
            found = explainer.explain_answer(case.prompt, ids, method, quantity=number, progress=False, **options)
            assert found.prompt_length == len(case.prompt_ids), "the prompt was tokenized differently"
            return [row[: found.prompt_length + step].tolist() for step, row in enumerate(found.matrix)]

        return run

    def whole(method: str) -> Method:
        def run(case: Case) -> Matrix:
            target: Any = tuple(case.answer_ids)
            return [explainer.explain(case.prompt, method, target=target, progress=False).scores.tolist()]

        return run

    def by_hand(case: Case) -> Matrix:
        """The lower bound: one forward and one backward pass over prompt and answer, without any library."""
        ids = torch.tensor([case.prompt_ids + case.answer_ids])
        embeddings = subject.embed(ids).requires_grad_()
        logits = subject.model(inputs_embeds=embeddings, use_cache=False).logits[0, len(case.prompt_ids) - 1 : -1]
        score = logits.gather(1, torch.tensor(case.answer_ids)[:, None]).sum()
        (gradient,) = torch.autograd.grad(score, embeddings)
        return [(embeddings * gradient).sum(-1)[0, : len(case.prompt_ids)].tolist()]

    found = {
        f"{method}, {number}": matrix(method, number)
        for method in ("gradient_x_input", "attn_lrp", "integrated_gradients")
        for number in ("logit", "log_probability")
    }
    found |= {f"{method}, whole answer": whole(method) for method in ("gradient_x_input", "attn_lrp")}
    return subject, {**found, "by hand": by_hand}


def captum(folder: Path) -> tuple[Subject, dict[str, Method]]:
    from captum.attr import (  # pyright: ignore[reportMissingImports]
        IntegratedGradients,
        LayerGradientXActivation,
        LLMGradientAttribution,
        TextTokenInput,
    )

    subject = load(folder)

    def gradient_x_input(case: Case) -> Matrix:
        """captum's class for answers: scores of the log-probability, for the prompt's tokens only."""
        method = LayerGradientXActivation(subject.model, subject.model.get_input_embeddings())
        given = TextTokenInput(case.prompt, subject.tokenizer)
        found = LLMGradientAttribution(method, subject.tokenizer).attribute(given, torch.tensor(case.answer_ids))
        return found.token_attr.tolist()

    def integrated_gradients(case: Case) -> Matrix:
        """Step by step by hand, because captum's class for answers does not change the answer's tokens."""

        def log_probability(embeddings: Any) -> Any:
            return subject.model(inputs_embeds=embeddings, use_cache=False).logits[:, -1].log_softmax(-1)

        def row(step: int) -> list[float]:
            ids = case.before(step)
            start = subject.embed(torch.full_like(ids, subject.baseline_id))
            settings: dict[str, Any] = {
                "target": case.answer_ids[step],
                "n_steps": case.steps,
                "internal_batch_size": ROWS,
            }
            found = IntegratedGradients(log_probability).attribute(subject.embed(ids), baselines=start, **settings)
            return found.sum(-1)[0].tolist()

        return [row(step) for step in range(len(case.answer_ids))]

    methods = {"gradient_x_input": gradient_x_input, "integrated_gradients": integrated_gradients}
    return subject, {f"{name}, log_probability": method for name, method in methods.items()}


def inseq(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import inseq as library  # pyright: ignore[reportMissingImports]

    subject = load(folder)

    def explained(name: str) -> Method:
        wrapped = library.load_model(subject.model, name, tokenizer=str(folder))

        def run(case: Case) -> Matrix:
            options: dict[str, Any] = {"attributed_fn": "logit", "include_eos_baseline": True, "show_progress": False}
            if name == "integrated_gradients":
                options |= {"n_steps": case.steps, "internal_batch_size": ROWS}
            out = wrapped.attribute(case.prompt, case.prompt + case.answer, **options)
            found = out.sequence_attributions[0]
            assert [one.id for one in found.target] == case.prompt_ids + case.answer_ids, "it read other tokens"
            scores = found.target_attributions.sum(-1).T  # [step, token]
            return [row[: len(case.prompt_ids) + step].tolist() for step, row in enumerate(scores)]

        return run

    names = {"gradient_x_input": "input_x_gradient", "integrated_gradients": "integrated_gradients"}
    return subject, {f"{ours}, logit": explained(theirs) for ours, theirs in names.items()}


PEERS: dict[str, Callable[[Path], tuple[Subject, dict[str, Method]]]] = {
    "tokenlight": tokenlight,
    "captum": captum,
    "inseq": inseq,
}


def answer(methods: dict[str, Method], request: dict[str, Any]) -> dict[str, Any]:
    method, case = methods[request["method"]], Case(**request["case"])
    began = time.process_time()
    scores = method(case)
    return {"cpu": time.process_time() - began, "scores": scores}


def serve(methods: dict[str, Method], lines: Iterable[str], reply: Callable[[dict[str, Any]], None]) -> None:
    for line in lines:
        try:
            reply(answer(methods, json.loads(line)))
        except Exception as error:  # whatever a library raises is a result of the benchmark
            traceback.print_exc()
            reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")  # libraries print what they like to the standard output
    os.dup2(2, 1)

    def reply(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=replies, flush=True)

    name = sys.argv[1]
    try:
        _, methods = PEERS[name](Path(sys.argv[2]))
    except Exception as error:
        traceback.print_exc()
        reply({"error": f"{type(error).__name__}: {error}"})
        return
    versions = {package: metadata.version(package) for package in (name, "transformers", "torch")}
    reply({"methods": list(methods), "versions": versions})
    serve(methods, sys.stdin, reply)


if __name__ == "__main__":
    main()
