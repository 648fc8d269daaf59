"""Type aliases shared by the whole package."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from torch import Tensor

#: Form of the graph Laplacian; see :mod:`pyg_glif.laplacian`.
Normalization: TypeAlias = Literal["nrw", "density"] | None

#: A black-box metric from rows ``[A, F]`` and ``[B, F]`` to distances ``[A, B]``.
PairwiseFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]

#: How judgements of several annotators become one weight.
Combine: TypeAlias = Literal["any", "majority", "mean"]
