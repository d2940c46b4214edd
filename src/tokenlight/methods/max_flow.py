"""Maximum flow through a stack of fully connected layers (Dinic 1970), whole layers of nodes at a time.

Capacities are whole numbers, so sums and differences of them are exact, and the result is that of any other algorithm.
"""

from collections.abc import Iterator

import numpy as np

ONE = 2**52  # a capacity of 1: as fine as double precision, and sums of up to 2,000 ones still fit into 64 bits
DOWN, UP = 1, -1  # along the arcs, or back along arcs that carry flow
UNREACHED = -1


def to_capacities(weights: np.ndarray) -> np.ndarray:
    """Numbers between 0 and 1 as whole numbers."""
    return np.rint(weights.astype(np.float64) * ONE).astype(np.int64)


def maximum_flow(capacities: np.ndarray, source: int, sink: int) -> int:
    """From a node of the first layer to a node of the last one.

    capacities [layer, node, node]: of the arcs from each node of a layer to each node of the next layer.
    """
    network = Network(capacities, source, sink)
    total = 0
    while (distances := network.distances_to_sink())[0, source] != UNREACHED:
        total += network.add_blocking_flow(distances)
    return total


class Network:
    """What every arc can still carry. `down` and `up` are [layer, node, node of the next layer]."""

    def __init__(self, capacities: np.ndarray, source: int, sink: int):
        self.layers: int = len(capacities) + 1
        self.nodes: int = capacities.shape[1]
        self.source: tuple[int, int] = (0, source)
        self.sink: tuple[int, int] = (self.layers - 1, sink)
        self.down: np.ndarray = capacities.copy()
        self.down[0, np.arange(self.nodes) != source] = 0  # other nodes of these two layers lie on no path
        self.down[-1][:, np.arange(self.nodes) != sink] = 0
        self.up: np.ndarray = np.zeros_like(self.down)  # the flow

    def arcs(self, layer: int, way: int) -> np.ndarray:
        """[node, neighbor] what the arcs from a layer to the next or the previous one can still carry."""
        return along(self.down, self.up, layer, way)

    def neighbor_layers(self, layer: int) -> Iterator[tuple[int, int]]:
        """(way, layer) of those that arcs lead to."""
        return ((way, layer + way) for way in (DOWN, UP) if 0 <= layer + way < self.layers)

    def distances_to_sink(self) -> np.ndarray:
        """[layer, node] the fewest arcs to the sink, of nodes that are not further away than the source."""
        distances = np.full((self.layers, self.nodes), UNREACHED)
        distances[self.sink] = distance = 0
        while distances[self.source] == UNREACHED and (distances == distance).any():
            for layer, reached in layers_with(distances == distance):
                for way, other in self.neighbor_layers(layer):
                    new = (self.arcs(other, -way)[:, reached] > 0).any(1) & (distances[other] == UNREACHED)
                    distances[other, new] = distance + 1
            distance += 1
        return distances

    def add_blocking_flow(self, distances: np.ndarray) -> int:
        """Saturate every shortest path from the source to the sink (in waves: Tarjan 1984); the flow that this adds.

        Excess moves one arc closer to the sink at a time. A node that cannot get rid of its excess is blocked: it
        sends the excess back, and gets no more.
        """
        farthest = int(distances[self.source])
        excess, blocked = np.zeros_like(distances), np.zeros(distances.shape, dtype=bool)
        sent = np.zeros_like(self.down), np.zeros_like(self.up)  # in this call, down and up
        excess[self.source] = self.down[0].sum()
        while (excess[(distances > 0) & ~blocked] > 0).any():
            for distance in range(farthest, 0, -1):
                for layer, nodes in layers_with((distances == distance) & (excess > 0) & ~blocked):
                    for way, other in self.neighbor_layers(layer):
                        to = ((distances[other] == distance - 1) & ~blocked[other]).nonzero()[0]
                        moved = fill(self.arcs(layer, way)[np.ix_(nodes, to)], excess[layer, nodes])
                        self.move(excess, sent, (layer, nodes), (other, to), moved)
                blocked |= (distances == distance) & (excess > 0)
            for distance in range(1, farthest):
                for layer, nodes in layers_with((distances == distance) & (excess > 0) & blocked):
                    for way, other in self.neighbor_layers(layer):
                        to = (distances[other] == distance + 1).nonzero()[0]
                        arrived = along(*sent, other, -way)[np.ix_(to, nodes)].T
                        moved = fill(arrived, excess[layer, nodes])
                        self.move(excess, sent, (layer, nodes), (other, to), moved)
        return int(excess[self.sink])

    def move(
        self,
        excess: np.ndarray,
        sent: tuple[np.ndarray, np.ndarray],
        start: tuple[int, np.ndarray],
        end: tuple[int, np.ndarray],
        moved: np.ndarray,
    ) -> None:
        """Move so much excess [node, neighbor] from nodes of a layer to nodes of another one."""
        (layer, nodes), (other, to) = start, end
        way, ahead, back = other - layer, np.ix_(nodes, to), np.ix_(to, nodes)
        self.arcs(layer, way)[ahead] -= moved
        self.arcs(other, -way)[back] += moved.T
        along(*sent, layer, way)[ahead] += moved
        along(*sent, other, -way)[back] -= moved.T
        excess[layer, nodes] -= moved.sum(1)
        excess[other, to] += moved.sum(0)


def along(down: np.ndarray, up: np.ndarray, layer: int, way: int) -> np.ndarray:
    """[node, neighbor] a view of the arcs from a layer to the next or the previous one."""
    return down[layer] if way == DOWN else up[layer - 1].T


def layers_with(chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The layers of chosen nodes [layer, node], and the numbers of these nodes."""
    return ((int(layer), np.flatnonzero(chosen[layer])) for layer in np.flatnonzero(chosen.any(1)))


def fill(limits: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """[node, neighbor] what each node gives to its neighbors, one after the other, up to these limits."""
    limits = limits.clip(0)
    return np.clip(amounts[:, None] - (limits.cumsum(1) - limits), 0, limits)
