"""Named graphs that every Laplacian and every solver is tried on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tests import oracles


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph with both directions of every edge."""

    edge_index: Tensor
    edge_weight: Tensor  # float64
    num_nodes: int

    def dense(self) -> oracles.Array:
        """The weights as a dense matrix."""
        index, weight = self.edge_index.numpy(), self.edge_weight.numpy()
        return oracles.adjacency(index, weight, self.num_nodes)


def undirected(pairs: np.ndarray, weight: np.ndarray, num_nodes: int) -> Problem:
    """Both directions of every pair."""
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    both = np.concatenate([pairs, pairs[:, ::-1]]).T.copy()
    weights = np.concatenate([weight, weight]).astype(np.float64)
    return Problem(torch.from_numpy(both), torch.from_numpy(weights), num_nodes)


def path(num_nodes: int) -> Problem:
    """A chain, the graph on which information travels slowest."""
    left = np.arange(num_nodes - 1)
    return undirected(np.stack([left, left + 1], 1), np.ones(len(left)), num_nodes)


def star(num_leaves: int) -> Problem:
    """One hub: ``"nrw"`` is indefinite here."""
    leaves = np.arange(1, num_leaves + 1)
    pairs = np.stack([np.zeros_like(leaves), leaves], 1)
    return undirected(pairs, np.ones(num_leaves), num_leaves + 1)


def cliques(count: int, size: int) -> Problem:
    """Separate complete graphs, weights within each the same."""
    i, j = np.triu_indices(size, 1)
    pairs = [np.stack([i, j], 1) + k * size for k in range(count)]
    weight = np.repeat(np.arange(1.0, count + 1), len(i))
    return undirected(np.concatenate(pairs), weight, count * size)


def random_graph(num_nodes: int, share: float, seed: int = 0) -> Problem:
    """Random pairs with weights spread over three decades: uneven degrees."""
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(num_nodes, 1)
    hub = rng.random(num_nodes) ** 3
    keep = rng.random(len(i)) < share * (0.2 + hub[i] + hub[j])
    pairs = np.stack([i, j], 1)[keep]
    return undirected(pairs, 10.0 ** rng.uniform(-3, 0, len(pairs)), num_nodes)


def isolated() -> Problem:
    """Three of five nodes without a neighbour, the first and the last among them."""
    return undirected(np.array([[1, 3]]), np.array([2.0]), 5)


def duplicates() -> Problem:
    """An edge given three times, and self-loops."""
    edges = [[0, 1, 1, 2, 0, 1, 0, 1, 2, 2], [1, 0, 2, 1, 1, 0, 1, 0, 2, 2]]
    weight = [0.5, 0.5, 1.0, 1.0, 0.25, 0.25, 1.0, 1.0, 3.0, 1.0]
    return Problem(torch.tensor(edges), torch.tensor(weight).double(), 3)


def underflowing() -> Problem:
    """Weights of zero and of the smallest float64: nodes cut off in all but name."""
    pairs = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    return undirected(pairs, np.array([1.0, 0.0, 5e-324, 0.0]), 5)


def two_components() -> Problem:
    """A triangle and a chain."""
    pairs = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [5, 6]])
    return undirected(pairs, np.array([1.0, 2.0, 3.0, 1.0, 1.0, 0.1]), 7)


def empty(num_nodes: int = 4) -> Problem:
    """Nodes only."""
    return undirected(np.empty((0, 2)), np.empty(0), num_nodes)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "two nodes": lambda: path(2),
    "path": lambda: path(300),
    "star": lambda: star(20),
    "cliques": lambda: cliques(5, 30),
    "two components": two_components,
    "isolated": isolated,
    "duplicates": duplicates,
    "underflowing": underflowing,
    "uneven degrees": lambda: random_graph(400, 0.1),
    "empty": empty,
}
