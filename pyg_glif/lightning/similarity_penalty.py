"""The Laplacian penalty over rows with similar features."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from pyg_glif._utils.runtime import Snapshot
from pyg_glif._utils.validation import (
    check_choice,
    check_kind,
    check_scalar,
    full_precision,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph import SimilarityGraph, decay_of
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.nn import LaplacianLoss
from pyg_glif.typing import Normalization


class SimilarityPenalty(nn.Module):
    r"""Laplacian penalty on the disagreement of rows with similar features.

    .. math::
        \lambda \, c \, \mathrm{tr}(\mathbf{F}^{\top} \mathbf{L} \mathbf{F}), \qquad
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau

    A term for :class:`FairClassifier`: :class:`~pyg_glif.nn.LaplacianLoss`, whose
    ``reduction`` settles :math:`c`, on the graph of the rows. The graph is searched
    anew whenever the rows change. All is computed in single precision, or in double if
    the outputs are, also under autocast.

    Args:
        lam (float): Weight :math:`\lambda \ge 0`. (default: :obj:`1.0`)
        tau (float, optional): Radius of the similarity graph, in units of the
            distance. :obj:`None` takes the edges of a ``Data``, of that graph which
            ``name`` of :class:`FairClassifier` says. (default: :obj:`None`)
        distance (FairDistance, optional): Similarity of rows. It is not trained.
            (default: Euclidean)
        theta (float, optional): Decay of the weights. (default: it follows ``tau``, see
            :func:`~pyg_glif.graph.decay_of`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        reduction (str): ``"sum"``, ``"mean"`` or, with a ``normalization``,
            ``"consistent"``. (default: ``"mean"``)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N, C)`, edges
          :math:`(2, E)`, weights :math:`(E)`
        - **output:** :math:`()`

    Example:
        >>> penalty = SimilarityPenalty(lam=0.5, tau=1.0, theta=0.0)
        >>> x = torch.tensor([[0.0], [1.0], [9.0]])
        >>> penalty(x, torch.tensor([[0.0], [3.0], [4.0]]))
        tensor(1.5000)
    """

    def __init__(
        self,
        lam: float = 1.0,
        *,
        tau: float | None = None,
        distance: FairDistance | None = None,
        theta: float | None = None,
        normalization: Normalization = None,
        reduction: Literal["sum", "mean", "consistent"] = "mean",
    ) -> None:
        super().__init__()
        self.lam = check_scalar("lam", lam, minimum=0.0)
        if tau is not None:
            check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        self.tau = tau
        if distance is not None:
            check_kind("distance", distance, FairDistance)
        self.distance = distance
        if theta is not None:
            theta = check_scalar("theta", theta, minimum=0.0)
        elif tau is not None:
            theta = float(decay_of(None, tau))
        self.theta = theta
        if reduction == "consistent":
            check_choice("normalization", normalization, ("nrw", "density"))
        decay = self.theta if reduction == "consistent" else None
        self.loss = LaplacianLoss(normalization, reduction, decay)
        self._last: tuple[Snapshot, LaplacianOperator] | None = None
        #: Edges of all graphs so far; without any, the penalty has been zero.
        self.num_edges_seen = 0

    def forward(
        self,
        x: Tensor,
        logits: Tensor,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """The penalty of ``logits``; the edges count only if ``tau`` is ``None``."""
        # Neighbors must not depend on the precision of the model.
        with torch.autocast(x.device.type, enabled=False):
            lap = self._laplacian(x, edge_index, edge_weight)
            penalty: Tensor = self.loss(full_precision(logits), lap)
        return self.lam * penalty

    def _laplacian(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None
    ) -> LaplacianOperator:
        """The Laplacian, kept from the last call if the tensors are the same."""
        inputs = (x,) if self.tau is not None else (x, edge_index, edge_weight)
        if self._last is None or not self._last[0].matches(inputs):
            form = self.loss.normalization
            if self.tau is not None:
                graph = SimilarityGraph.search(
                    full_precision(x), self.tau, distance=self.distance, progress=False
                )
                lap = graph.laplacian(self.theta, form)
            elif edge_index is not None:
                lap = LaplacianOperator(
                    edge_index, edge_weight, len(x), normalization=form
                )
            else:
                msg = "'tau' must be given if rows come without a graph (got None)"
                raise ValueError(f"{msg}. Or pass batches that are a Data with edges")
            self._last = Snapshot(inputs), lap
            self.num_edges_seen += lap.num_edges
        return self._last[1]

    def extra_repr(self) -> str:
        """Settings in the printed form."""
        return f"lam={self.lam:g}, tau={self.tau}, theta={self.theta}"
