"""Parameters of a fit, with the radius and the decay in use."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_kind,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.fit._inductive import Ties
from pyg_glif.graph import SimilarityGraph, edge_weights, local_weights
from pyg_glif.graph.weights import DECAY
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, Solver
from pyg_glif.typing import Normalization


@dataclass(frozen=True, eq=False)
class FitSettings:
    """Parameters of a fit, with the radius and the decay in use."""

    distance: FairDistance | None
    tau: float  # with k a limit, infinite if there is none
    theta: float | None  # None: local weights from distances to the k-th nearest
    lam: float
    normalization: Normalization
    solver: Solver
    link: Link | None
    progress: bool | None = None
    k: int | None = None
    mutual: bool = False
    decay: float = DECAY  # of local weights
    params: Mapping[str, Any] = field(default_factory=dict)  # as the user set them

    def __post_init__(self) -> None:
        check_scalar("tau", self.tau, minimum=0.0, allow_inf=True)
        if self.theta is not None:
            check_scalar("theta", self.theta, minimum=0.0)
        elif self.k is None:
            raise ValueError("'theta' must be a number without 'k' (got None)")
        check_scalar("lam", self.lam, minimum=0.0)
        check_choice("normalization", self.normalization, (None, "nrw", "density"))
        check_kind("solver", self.solver, Solver)
        if self.k is not None:
            check_count("k", self.k)
        check_choice("mutual", self.mutual, (True, False))
        check_scalar("decay", self.decay, minimum=0.0)
        for name in ("tau", "theta"):
            wanted = self.params.get(name)
            if wanted is not None and float(wanted) != getattr(self, name):
                msg = f"'{name}' must be that of the parameters, {wanted}"
                raise ValueError(f"{msg} (got {getattr(self, name)})")

    @classmethod
    def of(
        cls,
        params: Mapping[str, Any],
        tau: float,
        theta: float | None,
        decay: float = DECAY,
    ) -> "FitSettings":
        """Settings from parameters of a post-processor, a radius and a decay."""
        return cls(
            distance=params["distance"],
            tau=float(tau),
            theta=None if theta is None else float(theta),
            lam=float(params["lam"]),
            normalization=params["normalization"],
            solver=Auto() if params["solver"] is None else params["solver"],
            link=params["link"],
            progress=params.get("progress"),
            k=params["k"],
            mutual=params["mutual"],
            decay=float(decay),
            params=params,
        )

    @property
    def smoother(self) -> Smoother:
        """Strength, Laplacian, link and solver in one object."""
        return Smoother(
            self.lam,
            normalization=self.normalization,
            link=self.link,
            solver=self.solver,
        )

    def search(self, x: Tensor) -> SimilarityGraph:
        """Similarity graph of ``x``, without the coordinates behind it."""
        options: dict[str, Any]
        options = {"distance": self.distance, "progress": self.progress}
        if self.k is None:
            graph = SimilarityGraph.search(x, self.tau, **options)
        else:
            options |= {"mutual": self.mutual, "tau": self.tau}
            graph = SimilarityGraph.nearest(x, self.k, **options)
        return replace(graph, _z=None, _dist=None)

    def weights(self, sq_dist: Tensor, scale: Tensor | None) -> Tensor:
        """Weights of pairs, given the larger scale of each pair."""
        if self.theta is not None:
            return edge_weights(sq_dist, self.theta)
        assert scale is not None
        return local_weights(sq_dist, scale, self.decay)

    def graph_weights(self, graph: SimilarityGraph) -> Tensor:
        """Weights of the edges of a graph."""
        scale = None
        if graph.scale is not None:
            row, col = graph.edge_index
            scale = torch.maximum(graph.scale[row], graph.scale[col])
        return self.weights(graph.sq_dist, scale)

    def ties(
        self, row: Tensor, col: Tensor, sq_dist: Tensor, scale: Tensor | None = None
    ) -> Ties:
        """Pairs with their weights."""
        return Ties(row, col, self.weights(sq_dist, scale).double(), sq_dist)

    def laplacian(self, graph: SimilarityGraph) -> LaplacianOperator:
        """Laplacian of a graph with these settings."""
        return LaplacianOperator.from_sorted(
            graph.edge_index,
            self.graph_weights(graph),
            graph.num_nodes,
            normalization=self.normalization,
        )
