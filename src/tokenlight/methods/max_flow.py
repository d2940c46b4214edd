"""Maximum flow through a stack of fully connected layers (Dinic 1970), whole layers of nodes at a time.

Capacities are whole numbers, so sums and differences of them are exact, and the result is that of any other algorithm.
"""

from collections.abc import Iterator

import numpy as np

ONE = 2**52  # a capacity of 1: as fine as double precision, and sums of up to 2,000 ones still fit into 64 bits
DOWN, UP = 1, -1  # along the arcs, or in the reverse direction of arcs that carry flow
UNREACHED = -1


def to_capacities(weights: np.ndarray) -> np.ndarray:
    """Weights between 0 and 1 as whole numbers, in units of 1 / ONE."""
    return np.rint(weights.astype(np.float64) * ONE).astype(np.int64)


def maximum_flow(capacities: np.ndarray, source: int, sink: int) -> int:
    """The maximum flow from a node of the first layer to a node of the last one.

    capacities [layer, node, node] are those of the arcs from each node of a layer to each node of the next layer.
    """
    network = Network(capacities, source, sink)
    total = 0
    while (distances := network.distances_to_sink())[0, source] != UNREACHED:
        total += network.add_blocking_flow(distances)
    return total


class Network:
    """Residual capacities of all arcs: `down` and `up` are [layer, node, node of the next layer]."""

    def __init__(self, capacities: np.ndarray, source: int, sink: int):
        self.layers: int = len(capacities) + 1
        self.nodes: int = capacities.shape[1]
        self.source: tuple[int, int] = (0, source)
        self.sink: tuple[int, int] = (self.layers - 1, sink)
        self.down: np.ndarray = capacities.copy()
        self.down[0, np.arange(self.nodes) != source] = 0  # other nodes of these two layers lie on no path
        self.down[-1][:, np.arange(self.nodes) != sink] = 0
        self.up: np.ndarray = np.zeros_like(self.down)  # the flow

    def arcs(self, layer: int, direction: int) -> np.ndarray:
        """Residual capacities [node, neighbor] of the arcs from a layer to the next or the previous one; a view."""
        return along(self.down, self.up, layer, direction)

    def neighbor_layers(self, layer: int) -> Iterator[tuple[int, int]]:
        """The layers before and after a layer, as pairs (direction, layer)."""
        return ((direction, layer + direction) for direction in (DOWN, UP) if 0 <= layer + direction < self.layers)

    def distances_to_sink(self) -> np.ndarray:
        """The least number of arcs to the sink [layer, node], for nodes that are no farther away than the source."""
        distances = np.full((self.layers, self.nodes), UNREACHED)
        distances[self.sink] = distance = 0
        while distances[self.source] == UNREACHED and (distances == distance).any():
            for layer, reached in layers_with(distances == distance):
                for direction, other in self.neighbor_layers(layer):
                    new = (self.arcs(other, -direction)[:, reached] > 0).any(1) & (distances[other] == UNREACHED)
                    distances[other, new] = distance + 1
            distance += 1
        return distances

    def add_blocking_flow(self, distances: np.ndarray) -> int:
        """Saturate all shortest paths from the source to the sink by the wave method (Tarjan 1984); returns added flow.

        Excess is moved closer to the sink one arc at a time. A node whose excess cannot be moved is blocked: its excess
        is moved back, and it receives no more.
        """
        farthest = int(distances[self.source])
        excess, blocked = np.zeros_like(distances), np.zeros(distances.shape, dtype=bool)
        sent = np.zeros_like(self.down), np.zeros_like(self.up)  # flow added by this call, down and up
        excess[self.source] = self.down[0].sum()
        while (excess[(distances > 0) & ~blocked] > 0).any():
            for distance in range(farthest, 0, -1):
                for layer, nodes in layers_with((distances == distance) & (excess > 0) & ~blocked):
                    for direction, other in self.neighbor_layers(layer):
                        neighbors = ((distances[other] == distance - 1) & ~blocked[other]).nonzero()[0]
                        moved = distribute(self.arcs(layer, direction)[np.ix_(nodes, neighbors)], excess[layer, nodes])
                        self.move(excess, sent, (layer, nodes), (other, neighbors), moved)
                blocked |= (distances == distance) & (excess > 0)
            for distance in range(1, farthest):
                for layer, nodes in layers_with((distances == distance) & (excess > 0) & blocked):
                    for direction, other in self.neighbor_layers(layer):
                        neighbors = (distances[other] == distance + 1).nonzero()[0]
                        arrived = along(*sent, other, -direction)[np.ix_(neighbors, nodes)].T
                        moved = distribute(arrived, excess[layer, nodes])
                        self.move(excess, sent, (layer, nodes), (other, neighbors), moved)
        return int(excess[self.sink])

    def move(
        self,
        excess: np.ndarray,
        sent: tuple[np.ndarray, np.ndarray],
        start: tuple[int, np.ndarray],
        end: tuple[int, np.ndarray],
        moved: np.ndarray,
    ) -> None:
        """Move the excess `moved` [node, neighbor] from nodes of a layer to nodes of another one."""
        (layer, nodes), (other, neighbors) = start, end
        direction, forward_arcs, backward_arcs = other - layer, np.ix_(nodes, neighbors), np.ix_(neighbors, nodes)
        self.arcs(layer, direction)[forward_arcs] -= moved
        self.arcs(other, -direction)[backward_arcs] += moved.T
        along(*sent, layer, direction)[forward_arcs] += moved
        along(*sent, other, -direction)[backward_arcs] -= moved.T
        excess[layer, nodes] -= moved.sum(1)
        excess[other, neighbors] += moved.sum(0)


def along(down: np.ndarray, up: np.ndarray, layer: int, direction: int) -> np.ndarray:
    """The values [node, neighbor] of the arcs from a layer to the next or the previous one; a view."""
    return down[layer] if direction == DOWN else up[layer - 1].T


def layers_with(chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Layers with chosen nodes, and the numbers of these nodes; `chosen` is [layer, node]."""
    return ((int(layer), np.flatnonzero(chosen[layer])) for layer in np.flatnonzero(chosen.any(1)))


def distribute(limits: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """Each node's amount [node] given to its neighbors in order, up to the limits [node, neighbor]."""
    limits = limits.clip(0)
    return np.clip(amounts[:, None] - (limits.cumsum(1) - limits), 0, limits)
