"""Directions of a set of sensitive vectors."""

from dataclasses import dataclass
from typing import Any

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.validation import check_count, check_not_empty
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.metric_learning._base import (
    SubspaceFit,
    column_means,
    features,
    leading_subspace,
    scatter_matrix,
)


@dataclass(frozen=True)
class SensitiveSVD:
    r"""Ignores the main directions of vectors that should not matter.

    The metric of the sentiment experiment (`Yurochkin et al., 2020
    <https://arxiv.org/abs/1907.00020>`_):

    .. math::
        \mathbf{V} = \mathbf{U} \mathbf{S} \mathbf{Q}^{\top}, \qquad
        d(\mathbf{x}, \mathbf{x}^{\prime}) = \big\| (\mathbf{I} -
        \mathbf{Q}_K \mathbf{Q}_K^{\top}) (\mathbf{x} - \mathbf{x}^{\prime}) \big\|

    with the first :math:`K` right singular vectors :math:`\mathbf{Q}_K`. The rows of
    :math:`\mathbf{V}` may be embeddings of first names: whatever tells names apart
    must not count. If the rows come in groups of comparable samples, use
    :class:`FACE`.

    Args:
        num_components (int, optional): Number :math:`K` of directions to ignore, at
            most the rank of the vectors. (default: :obj:`50`)
        center (bool, optional): If :obj:`True`, the mean of the vectors is removed
            first: directions then describe how the vectors differ *from each
            other*. By default they also describe how they differ from the origin,
            as in the sentiment experiment and inFairness. (default: :obj:`False`)
        chunk_size (int, optional): Rows read at a time; it bounds memory and does
            not change the result. (default: :obj:`1024`)

    Shapes:
        - **v:** sensitive vectors :math:`(N, F)`

    One pass over the vectors accumulates an :math:`F \times F` matrix in float64.
    Directions with a singular value below a millionth of the largest one count as
    absent. ``fit_result`` of the distance is a :class:`SubspaceFit`.

    Example:
        >>> import torch
        >>> names = torch.tensor([[3.0, 0.0, 0.0], [4.0, 0.1, 0.0]])
        >>> distance = SensitiveSVD(num_components=1).fit(names)
        >>> distance
        SensitiveSubspace(num_features=3, rank=1)
        >>> x = torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0]])
        >>> distance(x, x).round(decimals=2)
        tensor([[0.0000, 1.0100],
                [1.0100, 0.0000]])
        >>> round(distance.fit_result.explained_ratio, 3)
        1.0
    """

    num_components: int = 50
    center: bool = False
    chunk_size: int = 1024

    def __post_init__(self) -> None:
        check_count("num_components", self.num_components)
        check_count("chunk_size", self.chunk_size)

    def fit(self, v: Any) -> SensitiveSubspace:
        r"""Returns the distance that ignores the main directions of ``v``.

        Args:
            v (torch.Tensor or array): Sensitive vectors :math:`(N, F)`, one per row.
        """
        names, v = column_names("v", v), features("v", v)
        check_not_empty("v", v)
        mean = column_means(v, self.chunk_size) if self.center else None
        moment = scatter_matrix(v, self.chunk_size, mean) / len(v)
        distance, variances = leading_subspace(
            moment,
            self.num_components,
            name="num_components",
            data="'v'",
            dtype=v.dtype,
        )
        distance.fit_result = SubspaceFit(
            variances, self.num_components, len(v), mean=mean
        )
        distance.feature_names = names
        return distance
