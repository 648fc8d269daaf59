"""The similarity graph that training penalises."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._validate import check_attribute
from pyg_glif.distances import FairDistance
from pyg_glif.graph import edge_weights, fair_radius_graph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization


class Similarity:
    """Laplacians by radius over rows, or of the graph that a data set brings."""

    def __init__(
        self,
        tau: float | None,
        distance: FairDistance | None,
        theta: float,
        normalization: Normalization,
    ) -> None:
        self._tau = tau
        self._distance = distance
        self._theta = theta
        self._normalization = normalization
        self._last: tuple[tuple[Any, ...], LaplacianOperator] | None = None

    def of_rows(self, x: Tensor) -> LaplacianOperator:  # [N, F]
        """All pairs of rows within ``tau``."""
        if self._tau is None:
            msg = "'tau' must be given unless the graph is that of the data (got None)"
            raise ValueError(f"{msg}. Pass 'graph=\"full\"' to take that one")
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # half precision: more
        edges, sq_dist = fair_radius_graph(
            x, self._tau, distance=self._distance, progress=False
        )
        weight = edge_weights(sq_dist, self._theta)
        return self._laplacian(edges, weight, len(x))

    def of_data(self, data: Any) -> LaplacianOperator:
        """The same over a whole data set, or its own graph; kept between calls."""
        if self._tau is None:
            check_attribute("data", data.keys(), "edge_index")
        keys = ("x", "edge_index", "edge_weight")
        parts = [getattr(data, key, None) for key in keys]
        source = tuple((part, _version(part)) for part in parts)
        if self._last is None or not _same(self._last[0], source):
            if self._tau is None:
                lap = self._laplacian(parts[1], parts[2], len(data.x))
            else:
                lap = self.of_rows(data.x)
            self._last = source, lap
        return self._last[1]

    def _laplacian(
        self, edges: Any, weight: Tensor | None, num_nodes: int
    ) -> LaplacianOperator:
        return LaplacianOperator(
            edges, weight, num_nodes, normalization=self._normalization
        )


def _version(value: Any) -> int:
    """How often a tensor has been written to, as far as torch knows."""
    if not isinstance(value, Tensor) or value.is_inference():
        return 0
    return value._version


def _same(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Whether these are the very same tensors, with nothing written to them since."""
    pairs = zip(old, new, strict=True)
    return all(a[0] is b[0] and a[1] == b[1] for a, b in pairs)
