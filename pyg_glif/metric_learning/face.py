"""Directions in which comparable samples differ."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import (
    check_count,
    check_group,
    check_not_empty,
    check_repeated,
)
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.metric_learning._base import (
    SubspaceFit,
    features,
    labels,
    leading_subspace,
    row_chunks,
)


@dataclass(frozen=True)
class FACE:
    r"""Ignores the main directions in which comparable samples differ.

    Factor analysis of comparable embeddings (`Mukherjee et al., 2020
    <https://arxiv.org/abs/2006.11439>`_). Features are modelled as
    :math:`\mathbf{x} = \mathbf{A} \mathbf{u} + \mathbf{B} \mathbf{v} +
    \boldsymbol{\varepsilon}` with sensitive factors :math:`\mathbf{u}` and relevant
    factors :math:`\mathbf{v}`. Comparable samples share :math:`\mathbf{v}`, so what
    remains after their mean is removed lies along :math:`\mathbf{A}`:

    .. math::
        \mathbf{C} = \frac{1}{N - G} \sum_{g=1}^{G} \sum_{i \in g}
        (\mathbf{x}_i - \bar{\mathbf{x}}_g) (\mathbf{x}_i - \bar{\mathbf{x}}_g)^{\top},
        \qquad
        d(\mathbf{x}, \mathbf{x}^{\prime}) = \big\| (\mathbf{I} -
        \mathbf{Q}_K \mathbf{Q}_K^{\top}) (\mathbf{x} - \mathbf{x}^{\prime}) \big\|

    where the columns of :math:`\mathbf{Q}_K` are the eigenvectors of the :math:`K`
    largest eigenvalues of :math:`\mathbf{C}`.

    Args:
        num_factors (int, optional): Number :math:`K` of directions to ignore, at
            most the rank of :math:`\mathbf{C}`. (default: :obj:`25`)
        chunk_size (int, optional): Rows read at a time; it bounds memory and does
            not change the result. (default: :obj:`1024`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)

    Shapes:
        - **x:** features :math:`(N, F)`
        - **group:** :math:`(N)`

    A group of one row says nothing and is left out of all sums. One pass over
    the rows accumulates an :math:`F \times F` matrix in float64; groups need not be
    sorted and may be of any size. ``fit_result`` of the distance is a
    :class:`SubspaceFit`. The same subspace as inFairness'
    ``SVDSensitiveSubspaceDistance`` finds on a list of groups.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [4.0, 0.1], [0.0, 7.0], [2.0, 7.0], [9, 9]])
        >>> group = torch.tensor([0, 0, 1, 1, 2])  # the last group has one row
        >>> distance = FACE(num_factors=1).fit(x, group)
        >>> distance.basis.abs().round(decimals=2)
        tensor([[1.0000, 0.0200]])
        >>> distance.fit_result
        SubspaceFit(rank=1, num_rows=4, num_groups=2, num_single=1)
    """

    num_factors: int = 25
    chunk_size: int = 1024
    # Display is no part of the learner.
    progress: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("num_factors", self.num_factors)
        check_count("chunk_size", self.chunk_size)

    def fit(self, x: Any, group: Any) -> SensitiveSubspace:
        r"""Returns the distance that ignores variation within groups.

        Args:
            x (torch.Tensor or array): Features :math:`(N, F)`.
            group (torch.Tensor or array): Whole number per row, the same for comparable
                samples; any numbers, in any order. An array may also hold text.
        """
        names, x = column_names("x", x), features("x", x)
        check_not_empty("x", x)
        group = check_group("group", labels("group", group), len(x))
        order, label, num_groups = _comparable_rows(group.to(x.device))
        check_repeated("group", num_groups, len(x))
        moment = _scatter_within(x, order, label, self.chunk_size, self.progress)
        moment /= len(order) - num_groups
        distance, variances = leading_subspace(
            moment,
            self.num_factors,
            name="num_factors",
            data="the variation within groups",
            dtype=x.dtype,
        )
        distance.fit_result = SubspaceFit(
            variances, self.num_factors, len(order), num_groups, len(x) - len(order)
        )
        distance.feature_names = names
        return distance


def _comparable_rows(group: Tensor) -> tuple[Tensor, Tensor, int]:
    """Rows sorted by group, their sorted labels, the number of groups."""
    _, label, count = group.unique(return_inverse=True, return_counts=True)
    label, order = label.sort(stable=True)
    keep = count[label] > 1
    return order[keep], label[keep], int((count > 1).sum())


def _scatter_within(  # [N, F], [M], [M] -> [F, F]
    x: Tensor, order: Tensor, label: Tensor, chunk_size: int, progress: bool | None
) -> Tensor:
    """Sum of the rows' outer products about the mean of their group."""
    out = x.new_zeros(x.size(1), x.size(1), dtype=torch.float64)
    last: tuple[int, int, Tensor] | None = None  # label, count and mean of a part
    with Progress(len(order), "FACE", progress) as bar:
        for rows in row_chunks(len(order), chunk_size):
            block = x[order[rows]].double()
            labels, inverse, count = label[rows].unique_consecutive(
                return_inverse=True, return_counts=True
            )
            mean = block.new_zeros(len(labels), x.size(1))
            mean.index_add_(0, inverse, block).div_(count[:, None])
            block -= mean[inverse]
            out.addmm_(block.T, block)
            # A group cut in two by the chunk: the scatter about the common mean is
            # that of the parts about theirs, plus this term between the parts.
            if last is not None and last[0] == int(labels[0]):
                num, other = last[1], int(count[0])
                gap = mean[0] - last[2]
                out.addr_(gap, gap, alpha=num * other / (num + other))
                mean[0] -= gap * (num / (num + other))
                count[0] += num
            last = int(labels[-1]), int(count[-1]), mean[-1]
            bar.update(len(block))
    return out
