"""Arras et al., section 4.3: how many times as fast is AttnLRP as a modified gradient × input as with explicit rules?

python -m papers.arras.speed --data PATH/TO/lgd_dataset.tsv --device cuda --lxt-python PATH/TO/ENVIRONMENT/bin/python
python -m papers.arras.speed --small

Times attn_lrp and a plain gradient × input on the first 1,000 sentences, one at a time, in single precision; on a CPU,
processor time counts, so that other programs matter less. The explicit rules are those of LXT, which needs older
packages and so an environment of its own:
pip install transformers==4.46.3 git+https://github.com/rachtibat/LRP-eXplains-Transformers
"""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import tokenlight as tl
from papers.arras import lxt_clock
from papers.arras.agreement import agreement_parser, agreement_runs, annotated, data_remarks, load
from papers.arras.facts import MODELS, PAPER, SPEED_SAMPLES, SPEED_UPS
from papers.arras.tokenized import tokenize
from papers.tables import Comparison, finish

SCRIPT = "speed"
Sentence = tuple[list[int], int, int, int]  # token ids, position of the prediction, verb, its other form


def main(arguments: Sequence[str] | None = None) -> None:
    parser = agreement_parser(__doc__, list(SPEED_UPS))
    parser.add_argument("--lxt-python", help="the Python of an environment with lxt; without it LXT is not timed")
    options = parser.parse_args(arguments)
    for run in agreement_runs(options, SCRIPT):
        explainer = load(run, options.precision or "single")
        sentences = make_sentences(explainer, annotated(run, options.spacy))
        explainer.model.requires_grad_(False)
        clock = time.process_time if explainer.model.device.type == "cpu" else time.perf_counter
        plain = time_each(partial(gradient_x_input, explainer.model), sentences, clock)
        ours = time_each(partial(explain, explainer.model), sentences, clock)
        rows = [row("gradient × input", plain, ours), row("attn_lrp", ours, ours)]
        remarks = [f"{len(sentences):,} sentences, one at a time, on {explainer.model.device.type}", *run.differences]
        if options.lxt_python:
            run.folder.mkdir(parents=True, exist_ok=True)
            lxt = time_lxt(options.lxt_python, run.model, sentences, explainer.model.device, run.folder)
            rows.append(row("AttnLRP with LXT's explicit rules", lxt["seconds"], ours))
            theirs, own = torch.tensor(lxt["scores"]), explain(explainer.model, *sentences[0])[0].cpu()
            correlation = torch.corrcoef(torch.stack([theirs, own.to(theirs)]))[0, 1]
            remarks.append(f"correlation of both methods' scores on the first sentence: {correlation:.4f}")
        else:
            remarks.append("LXT was not timed: name its environment with --lxt-python")
        low, high = SPEED_UPS[run.name]
        rows.append(["published: LXT / LRPx", "–", f"{low} to {high}"])
        head = ["", "median, ms", "median ratio to attn_lrp"]
        heading = f"Arras et al., section 4.3, {MODELS[run.name]}"
        comparison = Comparison(heading, head, rows, [*remarks, *data_remarks(run, options.spacy)])
        finish(comparison, PAPER, SCRIPT, run, options.record)


def make_sentences(explainer: tl.Explainer, source: tl.DataSource) -> list[Sentence]:
    """The first sentences in tokens; predicted at the mask, or behind the last token."""
    tokenizer, gap = explainer.tokenizer, explainer.task.gap
    assert gap is not None, "`load` refuses models that predict no word"
    tokenized, _ = tokenize(tokenizer, source, gap)
    positions = [sentence.input_ids.index(tokenizer.mask_token_id) if gap == "inside" else -1 for sentence in tokenized]
    return [
        (sentence.input_ids, position % len(sentence.input_ids), sentence.verb, sentence.other)
        for sentence, position in zip(tokenized[:SPEED_SAMPLES], positions, strict=False)
    ]


def explain(model: Any, ids: list[int], position: int, verb: int, other: int) -> Tensor:
    inputs = torch.tensor([ids], device=model.device)
    target = (position, verb) if model.config.model_type == "bert" else verb
    return tl.attribute(model, inputs, method="attn_lrp", target=target, foil=other)


def gradient_x_input(model: Any, ids: list[int], position: int, verb: int, other: int) -> Tensor:
    embeddings = model.get_input_embeddings()(torch.tensor([ids], device=model.device)).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, position]
    (gradient,) = torch.autograd.grad(logits[verb] - logits[other], embeddings)
    return (embeddings * gradient).sum(-1)


def time_each(call: Callable[..., Tensor], sentences: Sequence[Sentence], clock: Callable[[], float]) -> list[float]:
    call(*sentences[0])  # warms up
    seconds = []
    for sentence in sentences:
        began = clock()
        call(*sentence).sum().item()  # waits for the GPU
        seconds.append(clock() - began)
    return seconds


def time_lxt(python: str, model: str, sentences: Sequence[Sentence], device: torch.device, folder: Path) -> Any:
    path = folder / "sentences.json"
    path.write_text(json.dumps(sentences), encoding="utf-8")
    command = [python, str(lxt_clock.__file__), model, str(path), str(device)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"LXT did not run: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, seconds: Sequence[float], ours: Sequence[float]) -> list[str]:
    ratio = median(elapsed / attn_lrp for elapsed, attn_lrp in zip(seconds, ours, strict=True))
    return [name, f"{1e3 * median(seconds):.2f}", f"{ratio:.2f}"]


if __name__ == "__main__":
    main()
