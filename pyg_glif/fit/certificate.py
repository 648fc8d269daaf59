"""What is certain about a newcomer's output: the values that are handed out."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_glif.fit._inductive import GroundedOperator

# Peers whose outputs are gathered at once (times columns): stays in cache.
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Certificate:
    r"""What holds for each newcomer by the formula of their output.

    With :math:`p = 1` (or the precision of their output, if the fit has them), the
    strength :math:`\mu` and the diagonal :math:`a_i` of their row,

    .. math::
        f_i = \frac{p_i \hat y_i + \mu \sum_j v_{ij} f_j}{p_i + \mu a_i}

    in the coordinates in which outputs are averaged. So of two newcomers with the same
    peers, weights and precision, the gap after is ``own_share`` times the gap before.

    Args:
        own_share (Tensor): :math:`p_i / (p_i + \mu a_i)`, how much of the result is
            their own output: one without peers.
        largest_gap (Tensor): Largest difference, over peers among the fitted people
            and over outputs, between their output and that of the peer after
            smoothing, in the unit of the outputs; zero without peers.
        num_peers (Tensor): Their peers among the fitted people.
        effective_neighbors (Tensor): :math:`(\sum_j |v_{ij}|)^2 / \sum_j v_{ij}^2`, the
            number of peers that their weights amount to: one if a single one has all
            of the weight, zero without peers.

    Shapes:
        - **own_share**, **largest_gap**, **num_peers**, **effective_neighbors:**
          :math:`(M)`

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x, y = torch.tensor([[0.0], [0.2]]), torch.tensor([0.0, 1.0])
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0, lam=1.0).fit(x, y)
        >>> y_new, info = post.transform(x[:1], y[1:], return_info=True)
        >>> info.certificate
        Certificate(num_people=1, own_share=0.333, largest_gap=0.333)
    """

    own_share: Tensor  # [M] float64
    largest_gap: Tensor  # [M] float64
    num_peers: Tensor  # [M] int64
    effective_neighbors: Tensor  # [M] float64

    @property
    def contraction(self) -> Tensor:  # [M]
        """By how much the gap of two newcomers with the same peers shrinks."""
        return self.own_share.reciprocal()

    def __repr__(self) -> str:
        own, gap = (
            float(part.max()) if part.numel() else 0.0
            for part in (self.own_share, self.largest_gap)
        )
        return (
            f"{type(self).__name__}(num_people={self.own_share.numel()}, "
            f"own_share={own:.3g}, largest_gap={gap:.3g})"
        )

    @classmethod
    def join(cls, parts: "list[Certificate]") -> "Certificate":
        """The certificate of several batches of newcomers."""
        names = cls.__dataclass_fields__
        return cls(
            *(torch.cat([getattr(one, name) for one in parts]) for name in names)
        )


def certificate_of(
    lap: GroundedOperator,
    own_share: Tensor,  # [M]
    value: Tensor,  # [M] or [M, C], outputs of newcomers
    y_fair: Tensor,  # [N] or [N, C], outputs of fitted people
) -> Certificate:
    """The certificate of newcomers whose outputs and ties are known."""
    gap = own_share.new_zeros(len(value))
    row, col = lap.ties.row, lap.ties.col
    for i, j in zip(row.split(_CHUNK), col.split(_CHUNK), strict=True):
        apart = (value.index_select(0, i) - y_fair.index_select(0, j)).abs_()
        apart = apart.flatten(1).amax(1) if apart.dim() > 1 else apart
        gap.scatter_reduce_(0, i, apart.to(gap), "amax")
    count = torch.bincount(row, minlength=len(value))
    effective = _effective(row, lap.outer, len(value))
    return Certificate(own_share.cpu(), gap.cpu(), count.cpu(), effective.cpu())


def _effective(row: Tensor, weight: Tensor, num: int) -> Tensor:  # [P], [P] -> [M]
    """Effective number of neighbors of each row."""
    size = weight.double().abs()
    # Relative to the largest of a row: squares of tiny weights would be zero.
    most = size.new_zeros(num).scatter_reduce_(0, row, size, "amax")
    size = size / torch.where(most > 0, most, 1.0)[row]
    total, square = (size.new_zeros(num).index_add_(0, row, s) for s in (size, size**2))
    return torch.where(square > 0, total**2 / torch.where(square > 0, square, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class NearbyBound:
    r"""What another newcomer within a fair distance may get, at worst.

    Args:
        delta (float): The fair distance :math:`\delta`.
        low (Tensor): Smallest output that anybody within :math:`\delta` can get.
        high (Tensor): Largest such output.
        gap (Tensor): Bound on the difference between the newcomer's output and the
            output of anybody within :math:`\delta`.
        dual_gap (Tensor): The same in the coordinates in which outputs are averaged,
            where a link has clamped them.
        num_shared (Tensor): Peers that everybody within :math:`\delta` has as well.
        num_possible (Tensor): Peers that anybody within :math:`\delta` can have.

    Shapes:
        - **low**, **high**, **gap**, **dual_gap:** like the outputs, :math:`(M)` or
          :math:`(M, C)`, float64
        - **num_shared**, **num_possible:** :math:`(M)`
    """

    delta: float
    low: Tensor = field(repr=False)
    high: Tensor = field(repr=False)
    gap: Tensor = field(repr=False)
    dual_gap: Tensor = field(repr=False)
    num_shared: Tensor = field(repr=False)
    num_possible: Tensor = field(repr=False)

    def reordered(self, columns: Tensor) -> "NearbyBound":
        """The same with output columns in another order."""
        names = ("low", "high", "gap", "dual_gap")
        changed = {name: getattr(self, name)[:, columns] for name in names}
        return replace(self, **changed)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    r"""How far one fitted person can move the outputs of fitted people, at most.

    Everything is in the coordinates in which outputs are averaged.

    Args:
        own (Tensor): If this person's output before smoothing changes by
            :math:`\Delta`, nobody's output after, their own included, moves by more
            than ``own`` times :math:`\Delta`.
        own_low (Tensor): Their own output moves by at least ``own_low`` times
            :math:`\Delta`.
        others (Tensor): Nobody else's output moves by more than ``others`` times
            :math:`\Delta`.
        leaving (Tensor, optional): Nobody's output moves by more if this sample leaves;
            :obj:`None` where others' weights change as well: for ``"density"``, for
            balanced groups, and with ``k``, where somebody else becomes one of the
            nearest.

    Shares of balanced groups are taken as given. They depend on the outputs, so that
    for a balanced fit the bounds are about outputs that change while shares do not.

    Shapes:
        - **own**, **own_low**, **others:** :math:`(N)`
        - **leaving:** like the outputs, :math:`(N)` or :math:`(N, C)`
    """

    own: Tensor = field(repr=False)
    own_low: Tensor = field(repr=False)
    others: Tensor = field(repr=False)
    leaving: Tensor | None = field(repr=False)

    def __repr__(self) -> str:
        own = float(self.own.max()) if self.own.numel() else 0.0
        return f"{type(self).__name__}(num_people={self.own.numel()}, own={own:.3g})"
