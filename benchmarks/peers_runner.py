"""One library on one model, in the library's own environment; benchmarks/peers.py starts it and talks to it.

    python benchmarks/peers_runner.py PEER FOLDER

One JSON object a line comes in and one goes out. It needs torch, transformers and the peer, and nothing of ours. What
the libraries have in common (loading, batches, the logit) is in peers_common.py.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from peers_common import BATCH, ROWS, STEPS, Subject, in_batches, load, peak_of, resident

Scores = list[list[float]]
Method = Callable[..., Scores]  # of texts and targets


def tokenlight(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import tokenlight as tl

    subject = load(folder)
    explainer = tl.Explainer(subject.model, subject.tokenizer)
    settings: dict[str, Any] = {"progress": False, "batch_size": BATCH}
    integrated: dict[str, Any] = {"steps": STEPS, "baseline": subject.baseline_id}

    def explained(method: str, **options: Any) -> Method:
        def run(texts: Sequence[str], targets: Sequence[int]) -> Scores:
            found = explainer.explain(list(texts), method, target=list(targets), **settings, **options)
            return [one.scores.tolist() for one in found]

        return run

    def of_probability(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        """For peers that explain the probability; one text at a time, so for agreement only."""

        def one(text: str, target: int) -> list[float]:
            def probability(output: Any) -> Any:
                return output.logits.softmax(-1)[:, target]

            return explainer.explain(
                text, "integrated_gradients", target=probability, **settings, **integrated
            ).scores.tolist()

        return [one(text, target) for text, target in zip(texts, targets, strict=True)]

    found = {name: explained(name) for name in ("gradient_x_input", "attn_lrp")}
    found["integrated_gradients"] = explained("integrated_gradients", **integrated)
    if subject.task == "classes":
        found["integrated_gradients of the probability"] = of_probability
    return subject, found


def captum(folder: Path) -> tuple[Subject, dict[str, Method]]:
    from captum.attr import InputXGradient, IntegratedGradients  # pyright: ignore[reportMissingImports]

    subject = load(folder)

    def gradient_x_input(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        def run(batch: Any, target: Any) -> Any:
            method = InputXGradient(subject.logits)
            rest = (batch.mask,)
            return method.attribute(subject.embed(batch.ids), target=target, additional_forward_args=rest).sum(-1)

        return in_batches(subject, texts, targets, run)

    def integrated_gradients(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        def run(batch: Any, target: Any) -> Any:
            return (
                IntegratedGradients(subject.logits)
                .attribute(
                    subject.embed(batch.ids),
                    baselines=subject.embed(batch.baseline),
                    target=target,
                    additional_forward_args=(batch.mask,),
                    n_steps=STEPS,
                    internal_batch_size=ROWS,
                )
                .sum(-1)
            )

        return in_batches(subject, texts, targets, run)

    return subject, {"gradient_x_input": gradient_x_input, "integrated_gradients": integrated_gradients}


def lxt(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import torch
    from peers_common import stand_in_for_torchvision
    from transformers.models.bert import modeling_bert
    from transformers.models.llama import modeling_llama

    with stand_in_for_torchvision():
        from lxt.efficient import monkey_patch  # pyright: ignore[reportMissingImports]

    kind = json.loads((folder / "config.json").read_text())["model_type"]
    monkey_patch({"bert": modeling_bert, "llama": modeling_llama}[kind])  # before the model is made
    subject = load(folder)

    def attn_lrp(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        def run(batch: Any, target: Any) -> Any:
            embeddings = subject.embed(batch.ids).requires_grad_()
            score = subject.logits(embeddings, batch.mask)[torch.arange(len(target)), target]
            (gradient,) = torch.autograd.grad(score.sum(), embeddings)
            return (embeddings * gradient).sum(-1)

        return in_batches(subject, texts, targets, run)

    return subject, {"attn_lrp": attn_lrp}


def inseq(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import inseq as library  # pyright: ignore[reportMissingImports]

    subject = load(folder)
    if subject.task != "next token":
        raise ValueError("inseq explains generated tokens; it has no text classification")

    def explained(name: str, **options: Any) -> Method:
        wrapped = library.load_model(subject.model, name, tokenizer=str(folder))

        def run(texts: Sequence[str], targets: Sequence[int]) -> Scores:
            settings: dict[str, Any] = {"attributed_fn": "logit", "show_progress": False, "batch_size": BATCH}
            written = {"max_new_tokens": 1, "do_sample": False}  # texts whose next token is given run one at a time
            out = wrapped.attribute(
                list(texts), generation_args=written, include_eos_baseline=True, **settings, **options
            )
            if [one.target[-1].id for one in out.sequence_attributions] != list(targets):
                raise ValueError("inseq wrote another next token than the likeliest one")
            found = [one.target_attributions.sum(-1)[:-1, 0] for one in out.sequence_attributions]
            return [scores.tolist() for scores in found]

        return run

    many = explained("integrated_gradients", n_steps=STEPS, internal_batch_size=ROWS)
    return subject, {"gradient_x_input": explained("input_x_gradient"), "integrated_gradients": many}


def ferret(folder: Path) -> tuple[Subject, dict[str, Method]]:
    from ferret import GradientExplainer, IntegratedGradientExplainer  # pyright: ignore[reportMissingImports]

    subject = load(folder)
    if subject.task != "classes":
        raise ValueError("ferret explains classifiers; it has no next token")

    def explained(kind: Any, **options: Any) -> Method:
        explainer = kind(subject.model, subject.tokenizer, multiply_by_inputs=True)

        def run(texts: Sequence[str], targets: Sequence[int]) -> Scores:
            found = [explainer(text, target, **options) for text, target in zip(texts, targets, strict=True)]
            return [one.scores.tolist() for one in found]

        return run

    many = explained(IntegratedGradientExplainer, call_args={"n_steps": STEPS, "internal_batch_size": ROWS})
    return subject, {"gradient_x_input": explained(GradientExplainer), "integrated_gradients": many}


def transformers_interpret(folder: Path) -> tuple[Subject, dict[str, Method]]:
    from transformers_interpret import SequenceClassificationExplainer  # pyright: ignore[reportMissingImports]

    subject = load(folder)
    if subject.task != "classes":
        raise ValueError("transformers-interpret explains classifiers; it has no next token")
    explainer = SequenceClassificationExplainer(subject.model, subject.tokenizer)

    def run(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        settings = {"n_steps": STEPS, "internal_batch_size": ROWS}
        found = [explainer(text, index=target, **settings) for text, target in zip(texts, targets, strict=True)]
        return [[score for _, score in one] for one in found]

    return subject, {"integrated_gradients of the probability": run}


def shap(folder: Path) -> tuple[Subject, dict[str, Method]]:
    import shap as library  # pyright: ignore[reportMissingImports]
    from transformers import pipeline

    subject = load(folder)
    if subject.task != "classes":
        raise ValueError("compared on classifiers only: for language models SHAP explains a whole generated text")
    pipe = pipeline("text-classification", subject.model, tokenizer=subject.tokenizer, top_k=None, batch_size=ROWS)
    explainer = library.Explainer(pipe)

    def run(texts: Sequence[str], targets: Sequence[int]) -> Scores:
        found = explainer(list(texts), batch_size=ROWS, silent=True)
        return [values[:, target].tolist() for values, target in zip(found.values, targets, strict=True)]

    return subject, {"partition": run}


PEERS: dict[str, tuple[Callable[[Path], tuple[Subject, dict[str, Method]]], str]] = {
    "tokenlight": (tokenlight, "tokenlight"),
    "captum": (captum, "captum"),
    "lxt": (lxt, "lxt"),
    "inseq": (inseq, "inseq"),
    "ferret": (ferret, "ferret-xai"),
    "transformers-interpret": (transformers_interpret, "transformers-interpret"),
    "shap": (shap, "shap"),
}


def answer(subject: Subject, methods: dict[str, Method], request: dict[str, Any]) -> dict[str, Any]:
    texts = request["texts"]
    if request["do"] == "choose":
        return {"targets": subject.choose(texts)}
    targets = request["targets"]
    if request["do"] == "logits":
        return {"logits": subject.plain_logits(texts, targets)}
    method = methods[request["method"]]
    if request["do"] == "memory":
        subject.touch()
        return {"bytes": peak_of(lambda: method(**request["warming"]), lambda: method(texts, targets))}
    cpu, began = time.process_time(), time.perf_counter()
    scores = method(texts, targets)
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "scores": scores}


def in_one_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:300]}"


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")  # libraries print what they like to the standard output
    os.dup2(2, 1)

    def reply(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=replies, flush=True)

    make, package = PEERS[sys.argv[1]]
    try:
        subject, methods = make(Path(sys.argv[2]))
        versions = {name: metadata.version(name) for name in (package, "transformers", "torch")}
        reply({"methods": list(methods), "versions": versions, "resident": resident("VmRSS")})
    except Exception as error:  # whatever a library raises is a result of the benchmark
        traceback.print_exc()
        reply({"error": in_one_line(error)})
        return
    for line in sys.stdin:
        try:
            reply(answer(subject, methods, json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            reply({"error": in_one_line(error)})


if __name__ == "__main__":
    main()
