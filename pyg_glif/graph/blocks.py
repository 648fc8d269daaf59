"""Radius search over blocks of samples, few of which are in memory at a time.

All blocks share one frame: center and scale of the float32 points, and the directions
of their bound coordinates. A block has its points in compact order. Pairs of two
blocks are ruled out on stored bound coordinates; the points themselves are read only
if candidates are left. Candidates are decided as in the search on one machine.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor

from pyg_glif.graph._decide import decide
from pyg_glif.graph._estimates import PairSample, choose_width, sample_pairs
from pyg_glif.graph._points import (
    Extent,
    Points,
    Strategy,
    as_distance,
    moved_to,
    placement,
    product_rounding,
    sample_step,
    sq_norms,
)
from pyg_glif.graph._pruning import (
    LEAF_SIZE,
    Reach,
    Screen,
    Tile,
    bound_coordinates,
    bound_errors,
    box_coordinates,
    compact_order,
    principal_basis,
    sq_box_gap,
    widened,
)
from pyg_glif.graph._search import Pairs, PointSearch, finish

__all__ = [
    "Block",
    "BlockSearch",
    "Extent",
    "Frame",
    "PairSample",
    "Strategy",
    "as_distance",
    "box_of",
    "in_compact_order",
    "largest_norm",
    "sample_of",
    "sample_step",
    "width_for",
]

_TILE = 256
#: Directions of the bound coordinates that are stored.
DIRECTIONS = 64


@dataclass(frozen=True, eq=False)
class Frame:
    """Center, scale and directions that all blocks share."""

    center: Tensor | None  # [D] float64
    scale: float
    basis: Tensor  # [D, M] float32

    @classmethod
    def of(cls, rows: Tensor, extent: Extent) -> "Frame":
        """Frame from every ``sample_step``-th point and the extent of all."""
        center, scale = placement(rows, extent)
        points = cls(center, scale, rows.new_empty(0)).points(rows)
        basis = principal_basis(points, min(DIRECTIONS, rows.size(1)))
        return cls(center, scale, basis)

    def points(
        self,
        z: Tensor,
        batch: Tensor | None = None,
        y: Tensor | None = None,
        sq_norm: Tensor | None = None,
    ) -> Points:
        """Points in the frame; ``y`` and ``sq_norm`` if they are known."""
        if y is None:
            y = moved_to(z, self.center, self.scale)
        sq_norm = sq_norms(y) if sq_norm is None else sq_norm
        return Points(z, y, sq_norm, self.center, self.scale, batch)

    def bounds(self, points: Points) -> Tensor:  # [N, M + 1]
        """Bound coordinates."""
        return bound_coordinates(points, self.basis)[0]


@dataclass(frozen=True, eq=False)
class Block:
    """Samples in compact order, whose points are read on first use."""

    w: Tensor  # [N, M + 1], bound coordinates
    leaf: int  # length of a run of nearby points
    batch: Tensor | None  # [N]
    read: Callable[[], Points]

    @cached_property
    def points(self) -> Points:
        """The points, read once."""
        return self.read()


class BlockSearch:
    """Finds pairs within a radius, in a block and between two.

    Args:
        frame: Frame of the blocks.
        tau: The radius, in the unit of ``z``.
        largest: A norm that no point of any block exceeds, in the unit of ``y``.
        width: Number of directions to rule pairs out with; :obj:`None` for none.
    """

    def __init__(
        self, frame: Frame, tau: float, largest: float, width: int | None
    ) -> None:
        rounding = product_rounding(frame.basis.size(0))
        factor, moved = bound_errors(frame.basis, largest, rounding)
        # Directions beyond the width are joined with the rest in float32.
        moved += DIRECTIONS * torch.finfo(torch.float32).eps * largest
        self._reach = Reach(tau * frame.scale, largest, factor, moved)
        self._tau, self._width = tau, width

    def reachable(
        self, box: Tensor, others: Tensor
    ) -> Tensor:  # [2, B], [K, 2, B] -> [K]
        """Mask of the boxes that may hold samples within the radius of a box."""
        low, high = others.double().unbind(1)
        gap = sq_box_gap(low, high, *box.double())
        reach = self._reach.radius(self._reach.largest, self._reach.moved)
        return gap <= widened(gap.new_tensor(reach**2))

    def within(self, block: Block, every: int = 1) -> Iterator[Pairs]:
        """Pairs of a block, each once; of one in ``every`` tiles, to estimate the cost.

        Without a width all tiles are searched, whatever ``every`` is.
        """
        if self._width is None:
            yield from self._plain(block).pairs(progress=False)
            return
        screen = self._screen(block)
        tiles = _some(screen.own_tiles(), every)
        yield from self._decided(block, block, screen, tiles)

    def across(self, left: Block, right: Block) -> Iterator[Pairs]:
        """Pairs of one point of ``left`` and one of ``right``."""
        if self._width is None:
            yield from self._plain(right).pairs(left.points, progress=False)
            return
        screen = self._screen(right)
        tiles = screen.stored_tiles(self._bounds(left))
        yield from self._decided(left, right, screen, tiles)

    def _decided(
        self, left: Block, right: Block, screen: Screen, tiles: Iterator[Tile]
    ) -> Iterator[Pairs]:
        """Pairs within the radius, among the candidates of tiles of ``left``."""
        for tile in tiles:
            for r, j in screen.candidates(tile):
                # Points may have to be read from disk, so not without candidates.
                if len(r):
                    a, b = left.points, right.points
                    for measured in finish(a, b, tile, [(r, j)]):
                        yield decide(a, b, *measured, self._tau)

    def share_left(self, block: Block, every: int = 1) -> float:
        """Share of pairs of a block that boxes leave, from one in ``every`` tiles."""
        if self._width is None:
            return 1.0
        screen = self._screen(block)
        tiles = _some(screen.own_tiles(), every)
        return statistics.fmean(screen.share_left(tile) for tile in tiles)

    def _plain(self, block: Block) -> PointSearch:
        """The search among the points of a block without directions."""
        return PointSearch(block.points, self._tau, None, _TILE)

    def _screen(self, block: Block) -> Screen:
        """The screen of a block."""
        return Screen.stored(self._bounds(block), block.leaf, self._reach, _TILE)

    def _bounds(self, block: Block) -> Tensor:
        """Bound coordinates in use, with graphs separated."""
        return self._reach.labelled(narrowed(block.w, self._width), block.batch)


def _some(tiles: Iterator[Tile], every: int) -> Iterator[Tile]:
    """One in ``every`` tiles, evenly spaced."""
    return islice(tiles, every // 2, None, every)


def narrowed(w: Tensor, width: int | None) -> Tensor:  # [N, M + 1] -> [N, width + 1]
    """Bound coordinates of fewer directions; the others join the last column."""
    if width is None or width >= w.size(1) - 1:
        return w
    rest = w[:, width:].square().sum(1, keepdim=True).sqrt_()
    return torch.cat([w[:, :width], rest], dim=1)


def box_of(w: Tensor) -> Tensor:  # [N, M + 1] -> [2, B]
    """Smallest and largest box coordinates."""
    return torch.stack(torch.aminmax(box_coordinates(w), dim=0))


def in_compact_order(w: Tensor, batch: Tensor | None) -> tuple[Tensor, int]:
    """Permutation into runs of nearby points of one graph, and their length."""
    if batch is not None:
        # Beyond any distance within a graph, so that cuts are between graphs.
        spacing = 8.0 * float(w.abs().max().clamp_(min=1.0))
        w = torch.cat([w, (batch.to(w.dtype) * spacing).unsqueeze(1)], dim=1)
    return compact_order(w, LEAF_SIZE)


def width_for(
    frame: Frame, rows: Tensor, tau: float, strategy: Strategy = "auto"
) -> int | None:
    """Number of directions of the cheapest search, from a sample of rows."""
    if strategy == "plain" or (strategy == "auto" and len(rows) < 2):
        return None
    points = frame.points(rows)
    return choose_width(points, tau * frame.scale, frame.basis, strategy)


def sample_of(
    frame: Frame, rows: Tensor, batch: Tensor | None, num_samples: int
) -> PairSample:
    """Distances of sampled pairs, standing for those of all samples."""
    block = frame.points(rows).rough_distances
    sample = sample_pairs(len(rows), block, batch, (512, 1 << 14), device=rows.device)
    if num_samples <= len(rows):
        return sample
    return replace(sample, num_pairs=num_samples * (num_samples - 1))


def largest_norm(sq_norm: Tensor) -> float:  # [N] -> 0-d
    """Largest norm, rounded up."""
    return math.sqrt(float(sq_norm.max())) * (1.0 + 1e-6)
