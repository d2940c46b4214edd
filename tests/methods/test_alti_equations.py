"""The equations of Ferrando et al. 2022 (ALTI) written down as they stand in the paper, in double precision.

Everything is read from the weights of an eager BERT, one token pair at a time; nothing of the package takes part.
"""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenlight as tl
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.runs.method_specs import MethodSpec

TEXT = "it is a good movie"
HEADS = 4


@cache
def explainer() -> tl.Explainer:
    found = explainer_for("bert")
    return tl.Explainer(copy.deepcopy(found.model).double(), found.tokenizer)


@cache
def eager() -> Any:
    model = copy.deepcopy(explainer().model)
    model.set_attn_implementation("eager")
    return model


def token_ids() -> Tensor:
    return explainer().tokenizer(TEXT, return_tensors="pt")["input_ids"]


@cache
def layers() -> list[dict[str, Tensor]]:
    """For every layer: x and A, the block's output, and the input of its second norm; texts' axis dropped."""
    model, norm_inputs = eager(), []
    handles = [
        block.output.LayerNorm.register_forward_pre_hook(lambda _, args: norm_inputs.append(args[0][0]))
        for block in model.bert.encoder.layer
    ]
    with torch.no_grad():
        output = model(token_ids(), output_attentions=True, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    states = [state[0] for state in output.hidden_states]
    return [
        {"x": states[i], "A": output.attentions[i][0], "out": states[i + 1], "before_LN2": norm_inputs[i]}
        for i in range(len(norm_inputs))
    ]


def linear_part(norm: Any, u: Tensor) -> Tensor:
    """Appendix A: L u, the matrix that subtracts the mean, times the diagonal of γ."""
    n = len(u)
    center = torch.full((n, n), -1 / n, dtype=u.dtype) + torch.eye(n, dtype=u.dtype)
    return torch.diag(norm.weight) @ center @ u


def deviation(norm: Any, u: Tensor) -> Tensor:
    return (u.var(correction=0) + norm.eps).sqrt()


def vectors_of(number: int) -> tuple[list[list[Tensor]], list[Tensor]]:
    """T_i(x_j) behind eq. 6 for all i, j, and y_i of eq. 1."""
    layer, block = layers()[number], eager().bert.encoder.layer[number]
    x, A = layer["x"], layer["A"]
    value, out, norm = block.attention.self.value, block.attention.output.dense, block.attention.output.LayerNorm
    size = value.weight.shape[0] // HEADS
    tokens = len(x)

    def sent(i: int, j: int) -> Tensor:
        """Σ_h W_O^h A^h_ij W_V^h x_j, with the values' bias (the paper's footnote 4)."""
        total = torch.zeros_like(x[0])
        for h in range(HEADS):
            rows = slice(h * size, (h + 1) * size)
            total = total + out.weight[:, rows] @ (A[h, i, j] * (value.weight[rows] @ x[j] + value.bias[rows]))
        return total

    vectors, outputs = [], []
    for i in range(tokens):
        whole = sum((sent(i, j) for j in range(tokens)), torch.zeros_like(x[0])) + out.bias + x[i]  # x̂_i + x_i
        sigma = deviation(norm, whole)
        row = [linear_part(norm, sent(i, j) + (x[i] if i == j else 0)) / sigma for j in range(tokens)]
        y = norm(whole)
        rest = linear_part(norm, out.bias) / sigma + norm.bias
        assert_near(torch.stack(row).sum(0) + rest, y)  # eq. 6
        vectors.append(row)
        outputs.append(y)
    return vectors, outputs


def behind_second_norm(number: int) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Section 5.4: the vectors behind the block's second norm, taken as linear, and the block's real output."""
    layer, norm = layers()[number], eager().bert.encoder.layer[number].output.LayerNorm
    vectors, _ = vectors_of(number)
    changed = [
        [linear_part(norm, vector) / deviation(norm, layer["before_LN2"][i]) for vector in row]
        for i, row in enumerate(vectors)
    ]
    return changed, list(layer["out"])


def alti_matrix(vectors: list[list[Tensor]], outputs: list[Tensor], p: int) -> Tensor:
    """Eq. 9 and 10."""
    rows = []
    for row, y in zip(vectors, outputs, strict=True):
        d = [(y - vector).norm(p) for vector in row]
        near = torch.stack([torch.clamp(-distance + y.norm(p), min=0) for distance in d])
        rows.append(near / near.sum())
    return torch.stack(rows)


def lengths(vectors: list[list[Tensor]]) -> Tensor:
    """Eq. 7."""
    return torch.stack([torch.stack([vector.norm(2) for vector in row]) for row in vectors])


def layer_matrices(name: str) -> list[Tensor]:
    found = []
    for number, layer in enumerate(layers()):
        with torch.no_grad():
            if name == "rollout":
                attention = layer["A"].mean(0)
                found.append(0.5 * attention + 0.5 * torch.eye(len(attention), dtype=attention.dtype))  # section 2.2
            elif name == "globenc":
                found.append(lengths(behind_second_norm(number)[0]))
            elif name == "norms":
                found.append(lengths(vectors_of(number)[0]) / lengths(vectors_of(number)[0]).sum(1, keepdim=True))
            elif name == "alti, LN2":
                found.append(alti_matrix(*behind_second_norm(number), 1))
            else:
                found.append(alti_matrix(*vectors_of(number), 2 if name == "alti, l2" else 1))
    return found


SPECS = {
    "rollout": "rollout:layers=True",
    "norms": "value_norms:layers=True",
    "globenc": "globenc:layers=True",
    "alti": "alti:layers=True",
    "alti, l2": "alti:norm=l2,layers=True",
    "alti, LN2": "alti:second_norm=True,layers=True",
}


@pytest.mark.parametrize("name", SPECS)
def test_matrices_and_their_products_are_those_of_the_equations(name):
    expected = layer_matrices(name)
    spec = MethodSpec.parse(SPECS[name])
    e = explainer().explain(TEXT, spec.name, **spec.options)
    assert_near(e.maps["contributions"], torch.stack(expected))
    first, second = expected
    tokens = range(len(first))
    products = torch.stack(
        [
            torch.stack([sum((second[i, k] * first[k, j] for k in tokens), first.new_zeros(())) for j in tokens])
            for i in tokens
        ]
    )  # section 2.2: all paths from j to i
    assert_near(e.maps["mixing"], torch.stack([first, products]))  # R^1 and R^2 of eq. 8 and 11
    assert_near(e.scores, products[0])  # the row of [CLS]


@pytest.mark.parametrize("method", ["rollout", "alti"])
def test_layer_maps_do_not_depend_on_the_number_of_parts_of_a_target(method):
    """Start and end of an answer read the same matrices."""
    reader = explainer_for("bert", "question-answering")
    e = reader.explain(("is it good ?", TEXT), method, layers=True)
    for name in ("contributions", "mixing"):
        assert_near(e.maps[name].sum(-1), 1)


def test_rows_of_padding_are_empty_and_the_maps_are_trimmed():
    texts = [TEXT, "it is a good movie and they are not bad at all"]
    together = explainer().explain(texts, "rollout", layers=True)
    for e in together:
        alone = explainer().explain(e.text, "rollout", layers=True)
        assert_near(e.maps["mixing"], alone.maps["mixing"])
    assert "mixing" not in explainer().explain(TEXT, "rollout").maps


# --- The gradient methods of section 4.3 --------------------------------------------------------------------------


def word_embeddings(ids: Tensor) -> Tensor:
    with torch.no_grad():
        return eager().get_input_embeddings()(ids)


def gradient(embeddings: Tensor) -> Tensor:
    """∇f at these embeddings [token, dim], f the logit of the class that the text gets."""
    label = int(eager()(token_ids()).logits[0].argmax())
    point = embeddings.detach().clone().requires_grad_()
    return torch.autograd.grad(eager()(inputs_embeds=point).logits[0, label], point)[0][0]


def integrated() -> Tensor:
    """Eq. 16 [token, dim]: 100 steps from [MASK] at every token but [CLS] and [SEP]."""
    ids, m = token_ids(), 100
    masked = ids.clone()
    masked[0, 1:-1] = explainer().tokenizer.mask_token_id
    X, B = word_embeddings(ids), word_embeddings(masked)
    total = torch.zeros_like(X[0])
    for c in range(1, m + 1):
        total += gradient(B + c / m * (X - B))
    return (X - B)[0] * total / m


def mean_of_sizes(products: Tensor) -> Tensor:
    """Eq. 15."""
    return torch.stack([sum((value.abs() for value in row), row.new_zeros(())) / len(row) for row in products])


def l2(vectors: Tensor) -> Tensor:
    """Eq. 14."""
    return torch.stack([row.square().sum().sqrt() for row in vectors])


IG = "integrated_gradients:steps=100,quadrature=riemann,baseline=mask"
TABLE_2 = {
    "gradient_l2": lambda: l2(gradient(word_embeddings(token_ids()))),
    f"{IG},reduce=l2": lambda: l2(integrated()),
    f"{IG},reduce=mean_abs": lambda: mean_of_sizes(integrated()),
    "gradient_x_input:reduce=l2": lambda: l2(gradient(word_embeddings(token_ids())) * word_embeddings(token_ids())[0]),
    "gradient_x_input:reduce=mean_abs": lambda: mean_of_sizes(
        gradient(word_embeddings(token_ids())) * word_embeddings(token_ids())[0]
    ),
}  # rollout, globenc and alti are above


@pytest.mark.parametrize("written", TABLE_2)
def test_the_gradient_methods_of_table_2(written):
    spec = MethodSpec.parse(written)
    assert_near(explainer().explain(TEXT, spec.name, **spec.options).scores, TABLE_2[written]())
