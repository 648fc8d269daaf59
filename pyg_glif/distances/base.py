"""Base class of fair distances."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pyg_glif._utils.validation import check_comparable, check_finite, check_rows
from pyg_glif.registry import Registered

# Rows and columns of a full tile, for every processor that matrix products know.
_TILE = 16


def row_product(x: Tensor, matrix: Tensor) -> Tensor:  # [N, F], [F, R] -> [N, R]
    """Product in the precision of ``x`` that maps equal rows to equal rows."""
    rows, columns = len(x), matrix.size(1)
    # Products round what is left over beside full tiles by other code than the rest,
    # so that the result of a row would depend on its position among the others.
    x = pad(x, (0, 0, 0, -rows % _TILE))
    matrix = pad(matrix.to(x.dtype), (0, -columns % _TILE))
    return (x @ matrix)[:rows, :columns]


class FairDistance(nn.Module, Registered, ABC):
    r"""Base class of fair distances between samples.

    A fair distance is the Euclidean distance after an embedding
    :math:`\mathbf{z} = \phi(\mathbf{x})`,

    .. math::
        d(\mathbf{x}, \mathbf{x}^{\prime}) =
        \| \phi(\mathbf{x}) - \phi(\mathbf{x}^{\prime}) \|_2 ,

    and a subclass only defines :math:`\phi`, by :meth:`embed`. Calling the
    distance on two sets of rows gives all pairwise distances. They are computed
    from coordinate differences, so identical rows are at distance exactly zero
    and data far from the origin loses no digits. The gradient at coinciding points
    is zero. Second derivatives are not available here;
    :func:`~pyg_glif.graph.edge_sq_dist` has them.

    Shapes:
        - **input:** features :math:`(A, F)` and :math:`(B, F)`
        - **output:** distances :math:`(A, B)`

    Example:
        >>> class Halved(FairDistance):
        ...     def embed(self, x):
        ...         return x / 2
        >>> Halved()(torch.tensor([[0.0]]), torch.tensor([[4.0], [6.0]]))
        tensor([[2., 3.]])
    """

    family: ClassVar[str] = "distance"

    #: Whether :meth:`embed` exists; without it a search has to call the distance.
    is_embedding: ClassVar[bool] = True

    #: Report of the metric learner that fitted this distance, see
    #: :mod:`pyg_glif.metric_learning`; ``None`` if it was not learned. It is not
    #: part of the state dict.
    fit_result: Any = None

    #: Names of the columns of the frame that the distance was learned from, ``None``
    #: if there were none. Frames are then matched by name, in any order of columns.
    #: They are not part of the state dict.
    feature_names: tuple[Any, ...] | None = None

    # Name of a tensor ``[F, R]`` whose rank R a state dict may change.
    _low_rank: ClassVar[str | None] = None

    @property
    def num_features(self) -> int | None:
        """Number of columns the distance expects, ``None`` if any will do."""
        return None

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        r"""Maps features to coordinates whose Euclidean distance is the fair one.

        Args:
            x (torch.Tensor): Features, float32 or float64. The result has their
                precision, whatever the precision of the distance itself.

        Shapes:
            - **input:** features :math:`(N, F)`
            - **output:** coordinates :math:`(N, D)`
        """

    def null_space(self, num_features: int) -> Tensor:
        r"""Directions along which the distance is zero everywhere.

        An embedding need not be linear, and such directions may then differ between
        points: unless a subclass overrides this, there are none.

        Args:
            num_features (int): Number of columns :math:`F` of the features.

        Shapes:
            - **output:** orthonormal columns :math:`(F, R)`, none if :math:`R = 0`
        """
        return torch.zeros(num_features, 0, dtype=torch.float32)

    def to_config(self) -> dict[str, Any]:
        """Plain keywords of the constructor; tensors are in the state dict.

        A class whose constructor needs arguments overrides this, and, unless these
        keywords are enough to build it again, :meth:`from_config`. With
        :func:`pyg_glif.registry.register` it can then be saved with a fit.
        """
        for name, param in inspect.signature(type(self)).parameters.items():
            named = param.kind not in (param.VAR_POSITIONAL, param.VAR_KEYWORD)
            if named and param.default is param.empty:
                msg = f"'{type(self).__name__}' must override 'to_config' to be saved"
                raise TypeError(f"{msg}, because the constructor needs '{name}'")
        return {}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], state: Mapping[str, Tensor] | None = None
    ) -> "FairDistance":
        """The distance of :meth:`to_config`, its tensors those of ``state``."""
        out = cls(**config)
        # Assigned, not copied: a copy would round to the constructor's precision.
        out.load_state_dict(dict(state or {}), assign=True)
        return out

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        r"""All distances between rows of ``x1`` and rows of ``x2``."""
        x1, x2 = self._check_inputs(x1, x2)
        # Together, because a matrix product may round the same row differently in
        # inputs of different height, and then duplicates would not coincide.
        z = self.embed(torch.cat([x1, x2]))
        # Not the default mode: that one expands the square by a matrix product
        # and loses the leading digits of close points and far from the origin.
        return torch.cdist(
            z[: len(x1)], z[len(x1) :], compute_mode="donot_use_mm_for_euclid_dist"
        )

    def _check_inputs(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        """Raises on anything but two sets of comparable, finite rows."""
        y1, y2 = self._rows("x1", x1), self._rows("x2", x2)
        check_finite("x1", y1)
        check_finite("x2", y2)
        if not (isinstance(x1, Tensor) and isinstance(x2, Tensor)):
            # A frame has the precision that its columns need.
            dtype = torch.promote_types(y1.dtype, y2.dtype)
            y1, y2 = y1.to(dtype), y2.to(dtype)
        check_comparable("x2", y2, "x1", y1)
        return y1, y2

    def _rows(self, name: str, x: Any) -> Tensor:
        """Rows of features as the distance expects them."""
        return check_rows(name, x, self.num_features, self.feature_names)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes on the rank of the saved distance before its values are copied."""
        if self._low_rank is not None:
            own = getattr(self, self._low_rank)
            saved = state_dict.get(prefix + self._low_rank)
            if isinstance(saved, Tensor) and len(saved) == len(own):
                own.data = own.data.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
