"""Arras et al., appendix D: every LRP rule by its formula and as gradient × input of a modified layer.

python -m papers.arras.appendix_d
python -m papers.arras.appendix_d --small

Random numbers in double precision; no model and no data are needed. A row is the largest absolute difference of both.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from papers.arras.facts import PAPER
from papers.tables import RECORDS, Comparison
from tokenlight import rules
from tokenlight.rules.ledger import Ledger
from tokenlight.rules.mode import RuleMode

SCRIPT = "appendix_d"
TEXTS, TOKENS, WIDTH = 2, 3, 7
NORM_EPSILON = 1e-5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the same: the script is small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results") / PAPER.folder)
    parser.add_argument("--record", action="store_true", help="store the numbers for the paper's page in the docs")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    rows = [[name, f"{check():.1e}"] for name, check in CHECKS.items()]
    remark = f"random layers of {WIDTH} units in double precision, {TEXTS} texts of {TOKENS} tokens"
    comparison = Comparison("Arras et al., appendix D", ["rule", "largest difference"], rows, [remark])
    comparison.show()
    folders = [options.output / SCRIPT] + ([Path(__file__).parent / RECORDS] if options.record else [])
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(comparison), indent=1, ensure_ascii=False) + "\n"
        (folder / f"{SCRIPT}-rules.json").write_text(text, encoding="utf-8")


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def signal(*shape: int) -> Tensor:
    return numbers(*(shape or (TEXTS, TOKENS, WIDTH))).requires_grad_()


def propagate(table: rules.RuleTable, layer: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Random relevance at the layer's output, and what gradient × input under the table makes of it at the inputs."""
    with RuleMode(table, Ledger(TEXTS)):
        output = layer(*inputs)
    gradient = numbers(*output.shape)
    gradients = torch.autograd.grad(output, inputs, gradient, materialize_grads=True)
    return output.detach() * gradient, [x.detach() * g for x, g in zip(inputs, gradients, strict=True)]


def distance(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).abs().max())


def check_linear(table: rules.RuleTable, share: Callable[[Tensor, Tensor], Tensor]) -> float:
    """`share` gives from contributions [..., out, in] and bias [out] what part of R_j input i takes."""
    x, weight, bias = signal(), numbers(WIDTH, WIDTH), numbers(WIDTH)
    upper, (lower,) = propagate(table, lambda x: F.linear(x, weight, bias), x)
    shares = share(x.detach()[..., None, :] * weight, bias)
    return distance(lower, (shares * upper[..., None]).sum(-2))


def epsilon_share(epsilon: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Equation 1."""

    def share(contributions: Tensor, bias: Tensor) -> Tensor:
        z = contributions.sum(-1) + bias
        return contributions / (z + epsilon * z.sign())[..., None]

    return share


def alpha_beta_share(alpha: float, beta: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Equation 8 for α = 1, β = 0."""

    def share(contributions: Tensor, bias: Tensor) -> Tensor:
        positive, negative = contributions.clamp_min(0), contributions.clamp_max(0)
        z_positive = positive.sum(-1) + bias.clamp_min(0)
        z_negative = negative.sum(-1) + bias.clamp_max(0)
        shares = alpha * positive / z_positive[..., None], beta * negative / z_negative[..., None]
        return shares[0].nan_to_num(0) - shares[1].nan_to_num(0)  # 0 / 0 counts as 0 (D.2)

    return share


def check_activation(activation: Callable[[Tensor], Tensor]) -> float:
    """Equation 22: relevance is the same below and above."""
    upper, (lower,) = propagate(rules.LRP, activation, signal())
    return distance(lower, upper)


def check_signal_takes_all() -> float:
    """Equations 31 and 32 for attention: value vectors take all relevance, and scores nothing."""
    scores, values = signal(TEXTS, 1, TOKENS, TOKENS), signal(TEXTS, 1, TOKENS, WIDTH)
    attend = lambda scores, values: rules.mix_values(torch.softmax(scores, -1), values)  # noqa: E731
    upper, (of_scores, of_values) = propagate(rules.LRP, attend, scores, values)
    weights = torch.softmax(scores.detach(), -1)
    terms = weights[..., None] * values.detach()[..., None, :, :]  # [..., query, key, dim]
    expected = (terms / terms.sum(-2, keepdim=True) * upper[..., None, :]).sum(-3)
    return max(distance(of_values, expected), distance(of_scores, torch.zeros_like(scores)))


def check_uniform() -> float:
    """Section 2.7: each of two factors takes half of the relevance."""
    a, b = signal(), signal()
    upper, lower = propagate(rules.ATTN_LRP, torch.mul, a, b)
    return max(distance(relevance, upper / 2) for relevance in lower)


def check_norm() -> float:
    """Equation 34: with a constant deviation the norm is linear, and LRP with ε = 0 is the rule of a linear layer."""
    x, weight, bias = signal(), numbers(WIDTH), numbers(WIDTH)
    norm = lambda x: F.layer_norm(x, (WIDTH,), weight, bias, NORM_EPSILON)  # noqa: E731
    upper, (lower,) = propagate(rules.LRP, norm, x)
    deviation = (x.detach().var(-1, correction=0) + NORM_EPSILON).sqrt()[..., None, None]
    matrix = (torch.eye(WIDTH, dtype=torch.float64) - 1 / WIDTH) * weight[:, None] / deviation  # [..., out, in]
    contributions = x.detach()[..., None, :] * matrix
    return distance(lower, (epsilon_share(0)(contributions, bias) * upper[..., None]).sum(-2))


def check_softmax() -> float:
    """Equation 42."""
    x = signal()
    upper, (lower,) = propagate(rules.ATTN_LRP, lambda x: torch.softmax(x, -1), x)
    softmax = torch.softmax(x.detach(), -1)
    return distance(lower, x.detach() * (upper - softmax * upper.sum(-1, keepdim=True)))


CHECKS: Mapping[str, Callable[[], float]] = {
    "LRP-ε, ε = 0 (eq. 1 to 7)": lambda: check_linear(rules.LRP, epsilon_share(0)),
    "LRP-ε, ε = 0.1 (eq. 1)": lambda: check_linear(rules.LRP | rules.epsilon_rules(0.1), epsilon_share(0.1)),
    "LRP-α1β0 (eq. 8 to 17)": lambda: check_linear(rules.ALPHA_BETA, alpha_beta_share(1, 0)),
    "LRP-α2β1": lambda: check_linear(rules.LRP | rules.alpha_beta_rules(2, 1), alpha_beta_share(2, 1)),
    "identity, GELU (eq. 18 to 22)": lambda: check_activation(F.gelu),
    "identity, SiLU (eq. 18 to 22)": lambda: check_activation(F.silu),
    "signal takes all (eq. 23 to 32)": check_signal_takes_all,
    "uniform (section 2.7)": check_uniform,
    "LayerNorm (eq. 33, 34)": check_norm,
    "softmax (eq. 35 to 42)": check_softmax,
}

if __name__ == "__main__":
    main()
