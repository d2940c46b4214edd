"""ALTI, figure 3: how alike the directions of vectors are, layer by layer.

python -m papers.alti.figure3 --sample 500
python -m papers.alti.figure3 --small

Solid: the mean cosine similarity of two tokens' attention-block outputs. Dashed: of the vectors that two tokens send
to the same position. Both are means over all pairs of a sentence's tokens, and then over sentences. `--released` draws
the states between layers as the solid line, as the authors' code does.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

import tokenlight as tl
from papers.alti.facts import MODELS, PAPER
from papers.alti.runs import alti_parser, describe, load
from papers.alti.small import SMALL
from papers.figures import finish_figure
from papers.options import choose_runs
from papers.tables import Comparison, finish
from tokenlight.data.reading_examples import read_examples
from tokenlight.explain.jobs import Job
from tokenlight.methods import Attribution, find_method
from tokenlight.methods.contributions import Layer
from tokenlight.methods.decomposition import mix
from tokenlight.record.folding import Fold
from tokenlight.record.trace import Trace
from tokenlight.views.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPT = "figure3"
NAMES = tuple(f"{model}-sst2" for model in MODELS)
SMALL_RUNS = {"bert-sst2": SMALL["bert-sst2"]} | {
    f"{model}-sst2": SMALL[f"{model}-yelp"] for model in ("roberta", "distilbert")
}


def between_outputs(layer: Layer) -> Tensor:
    """cos(y_j, y_k) [token, token]"""
    directions = normalize(layer.output, dim=-1)
    return directions @ directions.T


def between_vectors(layer: Layer) -> Tensor:
    """Mean over positions i of cos(T_i(x_j), T_i(x_k)) [token, token]"""
    sent = torch.einsum("hij,hjd->ijd", layer.attention * layer.scale[:, None], layer.vectors)
    own = torch.arange(len(sent))
    sent[own, own] += layer.residual
    directions = normalize(sent, dim=-1)
    return torch.einsum("ijd,ikd->jk", directions, directions) / len(sent)


def cosines(trace: Trace, *, of: str = "outputs", position: int = 0) -> Fold[Attribution]:
    """The matrices of each layer as the map "contributions"."""
    return (yield from mix(trace, between_outputs if of == "outputs" else between_vectors, True, position))


def mean_of_pairs(matrices: Tensor) -> Tensor:
    """[layer] the mean over pairs of different tokens, from [layer, token, token]."""
    tokens = matrices.shape[-1]
    return (matrices.sum((1, 2)) - matrices.diagonal(dim1=1, dim2=2).sum(1)) / (tokens * (tokens - 1))


def states_between_layers(explainer: tl.Explainer, text: str) -> Tensor:
    """[layer + 1, token, token] cosines of the first block's input and of every block's output."""
    device = explainer.inner.device
    inputs: dict[str, Any] = dict(explainer.tokenizer(text, return_tensors="pt", truncation=True).to(device))
    if explainer.inner.config.model_type == "distilbert":
        inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        states = explainer.inner(**inputs, output_hidden_states=True).hidden_states
    directions = normalize(torch.cat(states).cpu(), dim=-1)
    return directions @ directions.mT


def measure(explainer: tl.Explainer, texts: Sequence[str], released: bool) -> dict[str, list[float]]:
    """Both lines of one model."""
    job = replace(find_method("alti"), name="cosines", function=cosines)  # reads the same signals
    jobs = {of: Job(job, {"of": of}) for of in ("outputs", "vectors")}
    explained = explainer.explain_jobs(list(texts), jobs)
    lines = {of: [mean_of_pairs(e.maps["contributions"]) for e in found] for of, found in explained.items()}
    if released:
        lines["outputs"] = [mean_of_pairs(states_between_layers(explainer, text)) for text in texts]
    return {of: torch.stack(means).mean(0).tolist() for of, means in lines.items()}


def draw(found: dict[str, dict[str, list[float]]]) -> "Figure":
    figure = new_figure(6, 3.4)
    axes = figure.subplots()
    for number, (model, lines) in enumerate(found.items()):
        for of, dashes in (("outputs", "solid"), ("vectors", "dashed")):
            places = [layer + (len(lines[of]) == len(lines["vectors"])) for layer in range(len(lines[of]))]
            axes.plot(places, lines[of], color=f"C{number}", linestyle=dashes, marker="o", label=f"{model}, {of}")
    axes.set(xlabel="layer", ylabel="mean cosine similarity", ylim=(None, 1))
    axes.legend(fontsize=7)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = alti_parser(__doc__, NAMES).parse_args(arguments)
    found, runs = {}, list(choose_runs(options, SCRIPT, SMALL_RUNS))
    for run in runs:
        model = MODELS[run.name.partition("-")[0]]
        texts = [str(row.text) for row in read_examples(run.source, None) if isinstance(row, tl.Example)]
        lines = found[model] = measure(load(run), texts, options.released)
        rows = [[of, *(f"{value:.3f}" for value in line)] for of, line in lines.items()]
        longest = max(map(len, lines.values()))
        head = ["cosine similarity of", *(str(layer + 1) for layer in range(longest))]
        padded = [row + [""] * (len(head) - len(row)) for row in rows]
        remarks = [f"{len(texts)} texts", *run.differences]
        comparison = Comparison(f"ALTI, figure 3, {describe(run)}, by layer", head, padded, remarks)
        finish(comparison, PAPER, SCRIPT, run, options.record)
    together = replace(runs[0], name="models", folder=options.output / SCRIPT)
    finish_figure(draw(found), PAPER, SCRIPT, together, options.record)


if __name__ == "__main__":
    main()
