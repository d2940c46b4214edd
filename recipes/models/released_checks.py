"""What the recipes with released weights share: methods on real texts, and checks of what they give."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tokenlight as tl

METHODS: dict[str, dict[str, Any]] = {
    "gradient_x_input": {"read": "blocks"},  # at the embeddings it is 0 where a norm stands right behind them
    "attn_lrp": {},
    "lrp": {},
    "raw_attention": {},
    "rollout": {},
    "attcat": {},
    "transformer_attribution": {},
    "globenc": {},
    "alti": {},
    "alti_logit": {},
}


def folder_of(package: str) -> Path | None:
    """Of an installed package, which is not imported: it may need packages that we do not."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest number."""
    return float((actual - expected).abs().max() / expected.abs().max())


def relative_residual(e: tl.Explanation) -> float | None:
    """The residual as a share of everything that was added up, if the method says what that is."""
    if "residual" not in e.extras:
        return None
    parts = [abs(share) for name, share in e.extras.items() if name != "residual"]
    return abs(e.extras["residual"]) / (float(e.scores.abs().sum()) + sum(parts))


def plain_gradient_x_input(explainer: tl.Explainer, text: Any, e: tl.Explanation) -> Tensor:
    """[token, dim] by autograd on the model that transformers loads, at its word embeddings, for the same target."""
    model, leaves = explainer.model, []
    batch = explainer.collate(explainer.encode([text]))

    def note(module: Any, args: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[0].clone()

    hook = model.get_input_embeddings().register_forward_hook(note)
    logits = model(**batch.inputs()).logits[0]
    hook.remove()
    (index,) = e.indices
    (gradient,) = torch.autograd.grad(logits[..., index] if e.position is None else logits[e.position, index], leaves)
    return (gradient * leaves[0]).detach()[0]


def explain_and_check(folder: Path, texts: Sequence[Any]) -> None:
    """Every method on every text: alone, beside the others, and with blocks that run again; as a table in Markdown."""
    explainer = tl.load(folder)
    rows = {}
    for method, options in METHODS.items():
        alone = [explainer.explain(text, method, progress=False, **options) for text in texts]
        together = explainer.explain(list(texts), method, progress=False, **options)
        again = explainer.explain(list(texts), method, progress=False, low_memory=True, **options)
        residuals = [share for e in alone if (share := relative_residual(e)) is not None]
        numbers = [max(residuals)] if residuals else [None]
        numbers += [
            max(relative_difference(b.scores, a.scores) for a, b in zip(first, second, strict=True))
            for first, second in ((alone, together), (together, again))
        ]
        rows[method] = " | ".join("" if x is None else f"{x:.0e}" for x in numbers), strongest(alone[0])
    gradients = []
    for text in texts:
        e = explainer.explain(text, "gradient_x_input", reduce="l2", progress=False)
        gradients.append(relative_difference(e.scores, plain_gradient_x_input(explainer, text, e).norm(dim=-1)))
    print(f"gradient x input beside plain autograd: at most {max(gradients):.0e} apart")
    print(
        "\n| method | residual | batch = single | low memory | strongest in the first text |\n|---|---:|---:|---:|---|"
    )
    for method, (numbers, tokens) in rows.items():
        print(f"| `{method}` | {numbers} | {tokens} |")


def strongest(e: tl.Explanation) -> str:
    scores = torch.where(e.special, -torch.inf, e.scores)
    return ", ".join(e.tokens[i].strip("▁") for i in scores.topk(min(3, len(scores))).indices.tolist())
