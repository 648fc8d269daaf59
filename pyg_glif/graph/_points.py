"""Points of a search: exact coordinates and a float32 copy for fast products."""

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_batch,
    check_choice,
    check_count,
    check_features,
    check_finite,
)
from pyg_glif.distances import Euclidean, FairDistance

#: Search strategy: lower bounds on a few coordinates first, none, or by a sample.
Strategy = Literal["auto", "projected", "plain"]


class SearchOptions(TypedDict, total=False):
    """Keywords of a graph search, see :func:`~pyg_glif.fair_radius_graph`."""

    distance: FairDistance | None
    batch: Tensor | None
    strategy: Strategy
    tile_size: int
    memory_budget: int | None
    progress: bool | None


# Squared norms between these neither overflow nor underflow in float32.
_SAFE_SQUARES = (1e-20, 1e20)
_LARGEST_SQUARE = 1e30  # sums and products of a few such squares do not overflow
_SAMPLE_ROWS = 1024


def as_distance(distance: FairDistance | None) -> FairDistance:
    """The given distance, Euclidean for :obj:`None`."""
    if distance is None:
        return Euclidean()
    if not isinstance(distance, FairDistance):
        msg = f"'distance' must be a FairDistance (got {type(distance).__name__})"
        raise TypeError(f"{msg}. Wrap a function in 'CallableDistance'")
    return distance


def check_search_input(
    x: Tensor,
    distance: FairDistance | None,
    batch: Tensor | None,
    strategy: Strategy,
    tile_size: int,
) -> tuple[Tensor, FairDistance, Tensor | None]:
    """Checks the arguments that all graph searches share."""
    x = check_features("x", x, distance).detach()
    check_choice("strategy", strategy, ("auto", "projected", "plain"))
    check_count("tile_size", tile_size)
    if batch is not None:
        batch = check_batch(batch, x.size(0)).to(x.device)
    return x, as_distance(distance), batch


def coordinates(distance: FairDistance, x: Tensor, name: str = "x") -> Tensor:
    """Embedded rows ``[N, D]``, finite, with at least one column."""
    z = distance.embed(x).detach()
    check_finite(f"distance.embed({name})", z)
    # A column of zeros has the same distances as no column, and needs no special case.
    return z if z.size(1) else z.new_zeros(z.size(0), 1)


def product_rounding(num_terms: int) -> float:
    """Bound on the error of a float32 inner product, per product of the norms."""
    # Where torch may round the factors to TF32 or bfloat16, that comes first.
    coarse = {"highest": 0.0, "high": 2.0**-9, "medium": 2.0**-6}
    factors = coarse[torch.get_float32_matmul_precision()]
    return (num_terms + 16) * torch.finfo(torch.float32).eps / 2 + factors


def detached_copy(z: Tensor, x: Tensor) -> Tensor:
    """``z``, copied if it shares memory with ``x``, which the caller may change."""
    shared = z.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return z.clone() if shared else z


@dataclass(frozen=True, eq=False)
class Extent:
    """Bounding box and largest norm of some points; ``|`` joins two."""

    low: Tensor  # [D], smallest coordinates
    high: Tensor  # [D], largest coordinates
    sq_norm: float  # largest squared norm, in float32

    @classmethod
    def of(cls, z: Tensor) -> "Extent":
        """Extent of the rows of ``z``, at least one."""
        low, high = torch.aminmax(z, dim=0)
        parts = (part.float().square().sum(1).max() for part in z.split(256))
        return cls(low, high, max(map(float, parts)))

    def __or__(self, other: "Extent") -> "Extent":
        low = torch.minimum(self.low, other.low)
        high = torch.maximum(self.high, other.high)
        return Extent(low, high, max(self.sq_norm, other.sq_norm))

    def farthest(self, center: Tensor) -> float:
        """The largest difference of a coordinate from that of a center."""
        ends = torch.stack([self.low - center, self.high - center])
        return float(ends.abs().max())


@dataclass(frozen=True)
class Points:
    """Embedded points ``z`` and a float32 copy ``y`` close to the origin.

    ``y = (z - center) * scale`` up to rounding, so distances of ``y`` are those of
    ``z`` times ``scale``. ``y`` rules pairs out, ``z`` decides.
    """

    z: Tensor  # [N, D], float32 or float64
    y: Tensor  # [N, D], float32; z itself where that is good enough
    sq_norm: Tensor  # [N], float32, of y
    center: Tensor | None  # [D], float64; None where y is z
    scale: float
    batch: Tensor | None  # [N], int64

    @property
    def num_nodes(self) -> int:
        """Number of points."""
        return self.z.size(0)

    @property
    def num_features(self) -> int:
        """Number of coordinates."""
        return self.z.size(1)

    @property
    def rounding(self) -> float:
        """Bound on the error of a squared distance from ``y``, per squared norm.

        A float32 inner product of D terms is off by at most D eps times the
        product of the norms; the rest covers the norms and the rounding of y.
        """
        return product_rounding(self.num_features)

    def error(self, norms: Tensor) -> Tensor:
        """Bound on the error of squared distances from ``y``, from sums of norms.

        Products of very small numbers are lost altogether, hence the constant.
        """
        tiny = 4 * self.num_features * torch.finfo(torch.float32).tiny
        return norms * self.rounding + tiny

    def bound(self, tau: float) -> float:
        """Squared radius in the unit of ``y``; infinite on overflow."""
        reach = tau * self.scale
        return reach * reach

    def rough_distances(self, rows: Tensor, cols: Tensor) -> Tensor:  # -> [A, B]
        """Distances by a matrix product: good enough to count with."""
        mode = "use_mm_for_euclid_dist"
        dist = torch.cdist(self.y[rows], self.y[cols], compute_mode=mode)
        return dist if self.scale == 1.0 else dist.double().div_(self.scale)

    @classmethod
    def from_embedding(cls, z: Tensor, batch: Tensor | None) -> "Points":
        """Points of ``z``, which is copied only if float32 would lose too much."""
        center, scale = placement(z[:: sample_step(len(z))], Extent.of(z))
        y = moved_to(z, center, scale)
        return cls(z, y, sq_norms(y), center, scale, batch)

    def like(self, z: Tensor) -> "Points | None":
        """Other points with this center and scale; :obj:`None` if float32 overflows."""
        y = moved_to(z, self.center, self.scale)
        out = Points(z, y, sq_norms(y), self.center, self.scale, None)
        fits = float(out.sq_norm.max()) < _LARGEST_SQUARE  # not so for NaN either
        return out if fits else None

    def together_with(self, z: Tensor) -> tuple["Points", "Points"]:
        """These points and others, with a center and scale that suit both."""
        both = Points.from_embedding(torch.cat([self.z, z]), None)
        return both.only(slice(0, len(self.z))), both.only(slice(len(self.z), None))

    def only(self, rows: slice | Tensor) -> "Points":
        """Subset of the points, without graph numbers."""
        z, y, sq_norm = self.z[rows], self.y[rows], self.sq_norm[rows]
        return Points(z, y, sq_norm, self.center, self.scale, None)


def sample_step(num_nodes: int) -> int:
    """Stride of the sample of rows from which all points are placed."""
    return max(1, num_nodes // _SAMPLE_ROWS)


def placement(
    rows: Tensor, extent: Extent
) -> tuple[Tensor | None, float]:  # rows: [S, D] -> center [D] float64, scale
    """Center and scale that suit float32; a center of :obj:`None` means no change.

    ``rows`` are every ``sample_step``-th point, the extent is that of all points.
    """
    sample = rows.double()
    # Any center is valid, so that of a sample will do.
    center = sample.mean(0)
    spread = float((sample - center).square().sum(1).mean())
    central = float(sample.square().sum(1).mean()) <= 4.0 * spread
    usual = rows.dtype == torch.float32 and central and _SAFE_SQUARES[0] < spread
    if usual and extent.sq_norm < _SAFE_SQUARES[1]:
        return None, 1.0
    # Far from the origin, norms are large beside distances, and their difference
    # loses digits.
    largest = extent.farthest(center.to(rows.dtype))
    if not math.isfinite(largest):
        limit = torch.finfo(rows.dtype).max
        raise ValueError(f"'x' must span less than {limit:g} in each coordinate")
    # A power of two, so that scaling is exact; at most 2**1000 in size.
    exponent = math.frexp(largest)[1] if largest else 0
    safe = _SAFE_SQUARES[0] < largest * largest / 2 < _SAFE_SQUARES[1]
    return center, 1.0 if safe else 2.0 ** -max(-1000, min(1000, exponent))


def moved_to(z: Tensor, center: Tensor | None, scale: float) -> Tensor:
    """Points in float32 relative to a center; unchanged without one."""
    if center is None:
        return z
    y = z - center.to(z.dtype)
    return (y.double() * scale).float() if scale != 1.0 else y.float()


def sq_norms(y: Tensor) -> Tensor:  # [N, D] -> [N]
    """Squared norms, a block at a time."""
    return torch.cat([part.square().sum(1) for part in y.split(256)])
