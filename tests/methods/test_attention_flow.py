"""Maximum flow against another implementation, and what attention_flow makes of it."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as flow_of_scipy

import tokenlight as tl
from tests import models
from tests.rounding import assert_near
from tests.tokenizers_ import explainer_for
from tokenlight.common.progress import on_step
from tokenlight.methods.max_flow import ONE, Network, maximum_flow, to_capacities


def random_weights(layers: int, tokens: int, sharpness: float, causal: bool, seed: int) -> np.ndarray:
    """[layer, query, key] rows of attention and identity, half each."""
    attention = np.random.default_rng(seed).dirichlet(np.full(tokens, 1 / sharpness), size=(layers, tokens))
    weights = (attention + np.eye(tokens)) / 2
    weights = np.tril(weights) if causal else weights
    return weights / weights.sum(-1, keepdims=True)


def by_scipy(capacities: np.ndarray, source: int, sink: int) -> int:
    layers, tokens, _ = capacities.shape
    graph = np.zeros(((layers + 1) * tokens,) * 2, dtype=np.int32)
    for layer, matrix in enumerate(capacities):
        graph[layer * tokens : (layer + 1) * tokens, (layer + 1) * tokens : (layer + 2) * tokens] = matrix
    return flow_of_scipy(csr_array(graph), source, layers * tokens + sink).flow_value


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("layers", "tokens", "sharpness"), [(1, 4, 1), (2, 7, 20), (3, 6, 3), (5, 5, 0.5), (6, 8, 30)])
def test_flows_equal_those_of_scipy(layers, tokens, sharpness, causal):
    weights = random_weights(layers, tokens, sharpness, causal, seed=layers)
    capacities = np.rint(weights * 2**20).astype(np.int64)  # scipy counts in 32 bits
    for source, sink in product(range(tokens), repeat=2):
        assert maximum_flow(capacities, source, sink) == by_scipy(capacities, source, sink)


def test_flow_takes_detours():
    """The shortest paths alone carry 1: node 1 fills node 0 of the next layer first, where node 0 has to go."""
    capacities = np.zeros((3, 2, 2), dtype=np.int64)
    capacities[0, 0] = (1, 1)
    capacities[1] = ((1, 0), (1, 1))
    capacities[2, :, 0] = (1, 1)
    network = Network(capacities, 0, 0)
    assert network.add_blocking_flow(network.distances_to_sink()) == 1
    assert network.distances_to_sink()[0, 0] == 5  # down, down, back up, down, down
    assert maximum_flow(capacities, 0, 0) == by_scipy(capacities, 0, 0) == 2
    assert maximum_flow(capacities, 0, 1) == maximum_flow(capacities, 1, 0) == 0


def test_capacities_are_as_fine_as_double_precision():
    weights = random_weights(4, 6, 3, False, seed=0)
    assert np.abs(to_capacities(weights) / ONE - weights).max() <= 2**-53


def test_flows_from_several_positions_are_mixed():
    model, ids = models.model("bert", "token-classification", torch.float64), models.ids(1, 4)
    alone = [tl.attribute(model, ids, method="attention_flow", target=(place, 1)) for place in range(4)]
    both = tl.attribute(
        model, ids, method="attention_flow", target=lambda out: out.logits[:, 1, 1] * 3 + out.logits[:, 2, 1] * 5
    )
    share = float(torch.linalg.lstsq(torch.stack([alone[1][0], alone[2][0]], 1), both[0]).solution[0])
    assert 0 < share < 1
    assert_near(both, share * alone[1] + (1 - share) * alone[2])


def test_each_flow_is_a_step_that_can_be_counted_or_stopped():
    steps: list[None] = []
    with on_step(lambda: steps.append(None)):
        tl.attribute(models.model("bert"), models.ids(2, 5), method="attention_flow", target=1)
    assert len(steps) == 2 * 5


def test_explain_all_leaves_it_out_unless_it_is_named():
    explainer = explainer_for("bert", "text-classification")
    assert "attention_flow" not in explainer.explain_all("it is a good movie", progress=False)
    assert "attention_flow" in explainer.explain_all("it is a good movie", ["attention_flow"], progress=False)


def test_a_text_of_one_token_has_all_flow():
    model = models.model("gpt2", "text-generation")
    scores = tl.attribute(model, models.ids(2, 1), method="attention_flow", target=7)
    assert torch.equal(scores, torch.ones(2, 1))
