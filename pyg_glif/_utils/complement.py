r"""Coordinates of the orthogonal complement, free of rounding along the directions.

A projection :math:`\mathbf{x} - \mathbf{Q} \mathbf{Q}^\top \mathbf{x}` has as many
coordinates as :math:`\mathbf{x}`. Where it should be constant, rounding leaves a
residue that depends on what was removed, and a decision tree reads it whatever its
size. So the directions are turned onto as many columns, which are dropped. With the
columns :math:`P` and an orthonormal basis :math:`\mathbf{Q}` whose part
:math:`\mathbf{S} = \mathbf{Q}_P` is symmetric and positive semi-definite (polar
decomposition), the block reflector

.. math::
    \mathbf{H} = \mathbf{I} - \mathbf{U} (\mathbf{I} + \mathbf{S})^{-1} \mathbf{U}^\top,
    \qquad \mathbf{U} = \mathbf{Q} + \mathbf{E}_P,

is symmetric and orthogonal and maps :math:`\mathbf{Q}` to :math:`-\mathbf{E}_P`,
because :math:`\mathbf{U}^\top \mathbf{U} = 2 (\mathbf{I} + \mathbf{S})`. Its other
columns are the coordinates. Distances are those after the projection, a column that no
direction touches stays as it is, and no square matrix is formed.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

# Largest squared sine of the angle between an axis and the span of directions at which
# the axis is taken to be in it: rounding in float64 gives less, a direction that is
# meant to be oblique more.
_ON_AXIS = 1e-14


def orthonormalize(rows: Tensor, rtol: float) -> Tensor:  # [K, F] -> [F, R]
    """Orthonormal columns in float64 that span ``rows``; axes in the span are exact."""
    # Rows of very unequal length would hide the short ones below the tolerance:
    # only their directions matter.
    rows = normalize(rows.double(), eps=torch.finfo(torch.float64).tiny)
    out = _span(rows, rtol)
    on_axis = 1 - out.square().sum(dim=1) <= _ON_AXIS
    num_axes = int(on_axis.sum())
    axes = out.new_zeros(len(out), num_axes)
    axes[on_axis] = torch.eye(num_axes, dtype=out.dtype, device=out.device)
    # The other directions have exact zeros there.
    return torch.cat([axes, _span(out.T.masked_fill(on_axis, 0), 0.5)], dim=1)


def _span(rows: Tensor, rtol: float) -> Tensor:  # [K, F] -> [F, R]
    """Orthonormal columns that span ``rows``, whose lengths are at most one."""
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    directions = directions[values > rtol * values[:1].clamp(min=1)]
    # Columns that no row touches must not get rounding errors of the others.
    out: Tensor = directions.masked_fill(~rows.any(dim=0), 0).T
    return out.contiguous()


def complement(directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Parts of the map to coordinates orthogonal to some directions.

    They are column numbers ``kept`` and matrices ``read`` and ``write`` such that
    ``x[:, kept] - (x @ read) @ write`` has all distances of ``x`` in the orthogonal
    complement. A direction along an axis is the absence of its column from ``kept``.

    Shapes:
        - **directions:** orthonormal columns :math:`(F, R)` of
          :func:`orthonormalize`, in any precision
        - **kept:** :math:`(F - R)`
        - **read:** :math:`(F, T)` with the number :math:`T \le R` of oblique directions
        - **write:** :math:`(T, F - R)`
    """
    basis = directions.double()
    single = (basis != 0).sum(dim=0) == 1
    kept = ~basis[:, single].any(dim=1)
    basis = basis[:, ~single]
    # Any columns would do: the smallest eigenvalue of I + S is at least 1. These leave
    # the others nearest to what they are.
    weight = basis.square().sum(dim=1)
    dropped = weight.sort(descending=True, stable=True).indices[: basis.size(1)]
    kept[dropped] = False
    left, values, right = torch.linalg.svd(basis[dropped])
    basis = basis @ (left @ right).T
    read = basis.index_add(0, dropped, torch.eye(len(dropped)).to(basis))
    symmetric = (left * (1 + values)) @ left.T
    write = torch.linalg.solve(symmetric, basis[kept].T)
    where = kept.nonzero().squeeze(1)
    return where, read.to(directions.dtype), write.to(directions.dtype)
