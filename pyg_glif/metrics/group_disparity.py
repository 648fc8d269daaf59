"""Ratio of the individual unfairness of groups."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_group, check_indices, check_outputs
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.methods.group_balance import Definition, group_energies, group_sizes


def group_disparity(
    y: Tensor,
    edge_index: Any,
    group: Tensor,
    edge_weight: Tensor | None = None,
    *,
    definition: Definition = "members",
) -> Tensor:
    r"""Ratio of the groups' individual unfairness (GDIF; Song et al., KDD 2022).

    .. math::
        \max_{g, h} \frac{E_g}{E_h}, \qquad
        E_g = \frac{1}{m_g} \, \mathrm{tr}(y^\top \mathbf{L}_g y)

    where :math:`\mathbf{L}_g` has the edges inside group :math:`g` and half of every
    edge that leaves it. One is perfect balance; it does not change when all outputs
    are multiplied by a number. :func:`~pyg_glif.methods.smooth_balanced`
    brings it to one.

    Args:
        y (torch.Tensor): Outputs.
        edge_index (torch.Tensor): The similarity graph, both directions of every edge,
            or a :class:`~pyg_glif.laplacian.LaplacianOperator`.
        group (torch.Tensor): A whole number per node.
        edge_weight (torch.Tensor, optional): Similarities. (default: all ones)
        definition (str): Meaning of :math:`m_g`. ``"members"``: nodes. ``"pairs"``:
            edges inside the group and half of those that leave it. ``"guide"``: as in
            GUIDE's published code, which credits an edge that leaves a group to the
            group of its row twice instead of once to each side, and nodes as edges
            with themselves. (default: ``"members"``)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          groups :math:`(N)`, weights :math:`(E)`
        - **output:** a number, at least 1

    Groups without an edge are left out. The value is 1 if all neighbors have equal
    outputs, and :obj:`inf` if that holds for one group only.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> y, group = torch.tensor([0.0, 1.0, 0.0, 2.0]), torch.tensor([0, 0, 1, 1])
        >>> group_disparity(y, edge_index, group)
        tensor(4.)
    """
    dtype = check_outputs("y", y).dtype
    return disparity(*group_shares(y, edge_index, group, edge_weight, definition)).to(
        dtype
    )


def group_shares(
    y: Tensor,
    edge_index: Any,
    group: Tensor,
    edge_weight: Tensor | None,
    definition: Definition,
    num_groups: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # [G] each
    """Energies, sizes and numbers of edges of groups.

    Groups are those that there are, or are numbered below ``num_groups``.
    """
    y = check_outputs("y", y)
    lap = edge_index
    if not isinstance(lap, LaplacianOperator):
        lap = LaplacianOperator(edge_index, edge_weight, len(y))
    group = check_group("group", group, len(y)).to(lap.deg.device)
    if num_groups is None:
        label, group = torch.unique(group, return_inverse=True)
        num_groups = label.numel()
    else:
        check_indices("group", group, num_groups)
    size = group_sizes(lap, group, num_groups, definition)
    edges = torch.bincount(group[lap.pattern.row], minlength=num_groups)
    energy = group_energies(lap, y.reshape(len(y), -1), group, size)
    return energy, size, edges


def disparity(energy: Tensor, size: Tensor, edges: Tensor) -> Tensor:
    """The largest energy over the smallest, among groups with an edge."""
    each = energy[edges > 0] / size[edges > 0]
    if each.numel() == 0 or not bool(each.max() > 0):
        return energy.new_ones(())
    return each.max() / each.min()
