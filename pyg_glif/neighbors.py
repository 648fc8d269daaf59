"""Neighbor rules: the samples within a radius, or the ``k`` nearest."""

import logging
import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_features,
    check_kind,
    check_scalar,
    check_share,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph import (
    KNNIndex,
    RadiusIndex,
    SimilarityGraph,
    decay_of,
    edge_weights,
    local_weights,
    suggest_tau,
)
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization

_log = logging.getLogger(__name__)


class NeighborPairs(NamedTuple):
    """Pairs of a new row and a known row, sorted by new row, then known row."""

    row: Tensor  # [P], new rows
    col: Tensor  # [P], known rows
    sq_dist: Tensor  # [P], squared distances
    weight: Tensor  # [P], float64


@dataclass(frozen=True, eq=False)
class NeighborIndex:
    """Search for the neighbors of new samples among known ones.

    Args:
        rule (Radius or KNearest): The rule, with numbers in it.
        search (RadiusIndex or KNNIndex): The search behind it.
    """

    rule: "NeighborRule"
    search: RadiusIndex | KNNIndex

    def query(self, x_new: Tensor, progress: bool | None = None) -> NeighborPairs:
        """All pairs of a new sample and a neighbor of it.

        Args:
            x_new (torch.Tensor): Features of the new samples, any number of rows.
            progress (bool, optional): Whether to show a progress bar; :obj:`None`
                shows it on a terminal if it takes seconds. (default: :obj:`None`)
        """
        row, col, sq_dist, *scale = self.search.query(x_new, progress)
        weight = self.rule.weights(sq_dist, *scale).double()
        return NeighborPairs(row, col, sq_dist, weight)


@dataclass(frozen=True)
class Radius:
    r"""Samples within a fair distance of ``tau`` are neighbors.

    .. math::
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau .

    Args:
        tau (float, optional): The radius, in units of the distance.
            (default: chosen by ``coverage`` or else ``target_degree``, see
            :func:`~pyg_glif.suggest_tau`)
        target_degree (float): Neighbors of a sample on average, if there is no
            ``tau``. (default: :obj:`20`)
        coverage (float, optional): In place of ``target_degree``, the share of samples
            that have a neighbor. (default: :obj:`None`)
        theta (float, optional): Decay of the weights. (default: it follows the radius,
            see :func:`~pyg_glif.graph.decay_of`)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> rule = Radius(target_degree=1).resolve(x)
        >>> rule.tau, rule.theta
        (2.0, 0.5)
        >>> rule.graph(x)
        SimilarityGraph(num_nodes=3, num_edges=4, tau=2)
        >>> rule.index(x).query(torch.tensor([[-1.0]])).col
        tensor([0, 1])
    """

    tau: float | None = None
    _: KW_ONLY
    target_degree: float = 20
    coverage: float | None = None
    theta: float | None = None
    distance: FairDistance | None = None

    def __post_init__(self) -> None:
        _check_shared(self)
        check_scalar("target_degree", self.target_degree, above=0.0)
        if self.coverage is not None:
            check_share("coverage", self.coverage)

    def resolve(self, x: Tensor) -> "Radius":
        """The same rule with the radius and the decay that it has on ``x``."""
        tau = self.tau
        if tau is None and self.coverage is None:
            tau = suggest_tau(x, self.target_degree, distance=self.distance)
            _log.info("tau = %.6g, for %g neighbors each", tau, self.target_degree)
        elif tau is None:
            tau = suggest_tau(x, coverage=self.coverage, distance=self.distance)
            share = 100.0 * (self.coverage or 0.0)
            _log.info("tau = %.6g, for a neighbor each of %.4g%%", tau, share)
        theta = float(decay_of(self.theta, tau))
        return replace(self, tau=float(tau), theta=theta)

    def graph(
        self, x: Tensor, *, batch: Tensor | None = None, progress: bool | None = None
    ) -> SimilarityGraph:
        """The similarity graph of ``x``, exact; see :meth:`SimilarityGraph.search`."""
        tau = self.resolve(x).tau
        assert tau is not None
        return SimilarityGraph.search(
            x, tau, distance=self.distance, batch=batch, progress=progress
        )

    def weights(self, sq_dist: Tensor, scale: Tensor | None = None) -> Tensor:
        """Weights of pairs from their squared distances; ``scale`` is not used."""
        theta = self.theta
        if theta is None:
            theta = float(decay_of(None, _number("tau", self.tau)))
        return edge_weights(sq_dist, theta)

    def laplacian(
        self, graph: SimilarityGraph, normalization: Normalization = None
    ) -> LaplacianOperator:
        """The Laplacian of a graph with the weights of this rule."""
        return graph.laplacian(self.theta, normalization)

    def index(self, x: Tensor, *, copy: bool = True) -> NeighborIndex:
        """Search among the rows of ``x``, copied unless ``copy`` is false."""
        rule = self.resolve(x)
        tau = _number("tau", rule.tau)
        search = RadiusIndex(x, tau, distance=self.distance, copy=copy)
        return NeighborIndex(rule, search)


@dataclass(frozen=True)
class KNearest:
    r"""The ``k`` nearest samples are neighbors, and those they are nearest to.

    Weights follow the distance to the ``k``-th nearest,
    :func:`~pyg_glif.graph.local_weights`, unless ``theta`` is given.

    Args:
        k (int): Number of nearest samples.
        mutual (bool): Whether both must be among the nearest of the other.
            (default: :obj:`False`)
        tau (float, optional): Largest distance of neighbors. (default: no limit)
        theta (float, optional): Decay of the weights, the same for all samples.
            (default: by the distance to the ``k``-th nearest)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> KNearest(1).graph(x)
        SimilarityGraph(num_nodes=3, num_edges=4, k=1)
        >>> KNearest(1).index(x).query(torch.tensor([[9.0]])).col
        tensor([2])
    """

    k: int
    _: KW_ONLY
    mutual: bool = False
    tau: float | None = None
    theta: float | None = None
    distance: FairDistance | None = None

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_choice("mutual", self.mutual, (True, False))
        _check_shared(self)

    def resolve(self, x: Tensor) -> "KNearest":
        """The same rule with the limit in it, checked against the rows of ``x``."""
        check_count("k", self.k, below=len(check_features("x", x, self.distance)))
        return replace(self, tau=math.inf if self.tau is None else float(self.tau))

    def graph(
        self, x: Tensor, *, batch: Tensor | None = None, progress: bool | None = None
    ) -> SimilarityGraph:
        """The similarity graph of ``x``, exact; see :meth:`SimilarityGraph.nearest`."""
        return SimilarityGraph.nearest(
            x,
            self.k,
            distance=self.distance,
            batch=batch,
            mutual=self.mutual,
            tau=self.tau,
            progress=progress,
        )

    def weights(self, sq_dist: Tensor, scale: Tensor | None = None) -> Tensor:
        """Weights of pairs from squared distances and the larger scale of each pair."""
        if self.theta is not None:
            return edge_weights(sq_dist, self.theta)
        if scale is None:
            raise ValueError("'scale' must be given if 'theta' is not (got None)")
        return local_weights(sq_dist, scale)

    def laplacian(
        self, graph: SimilarityGraph, normalization: Normalization = None
    ) -> LaplacianOperator:
        """The Laplacian of a graph with the weights of this rule."""
        return graph.laplacian(self.theta, normalization)

    def index(
        self, x: Tensor, *, scale: Tensor | None = None, copy: bool = True
    ) -> NeighborIndex:
        """Search among the rows of ``x``, copied unless ``copy`` is false.

        ``scale``, as the graph of ``x`` has it, saves a search.
        """
        search = KNNIndex(
            x,
            self.k,
            distance=self.distance,
            mutual=self.mutual,
            tau=self.tau,
            scale=scale,
            copy=copy,
        )
        return NeighborIndex(self, search)


NeighborRule = Radius | KNearest


def _check_shared(rule: NeighborRule) -> None:
    """Raises on parameters of any rule that no data can make right."""
    if rule.tau is not None:
        check_scalar("tau", rule.tau, minimum=0.0, allow_inf=True)
    if rule.theta is not None:
        check_scalar("theta", rule.theta, minimum=0.0)
    if rule.distance is not None:
        check_kind("distance", rule.distance, FairDistance)


def _number(name: str, value: float | None) -> float:
    """The value; raises where the rule has not been resolved."""
    if value is None:
        msg = f"'{name}' must be a number (got None)"
        raise ValueError(f"{msg}. Call 'resolve' with the samples first")
    return value
