"""One part of a smoothing system: the rows of some samples and their neighbors.

A part runs the solvers as they are. Sums over all samples
(:class:`~pyg_glif._utils.collectives.Collectives`) are taken together with the other
parts. A product first fetches the rows of neighbors that other parts hold, the halo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.collectives import Collectives, once
from pyg_glif._utils.lanczos import lanczos
from pyg_glif._utils.sparse import Pattern, csr_tensor
from pyg_glif.distributed._communicator import Communicator
from pyg_glif.distributed._store import scratch_array
from pyg_glif.graph.weights import edge_weights
from pyg_glif.laplacian import SELF_WEIGHT, LaplacianOperator
from pyg_glif.solvers.system import LARGEST_ENTRY, System
from pyg_glif.typing import Normalization

_EDGES = 1 << 21  # looked at together

#: Row pointers, columns among all samples and squared distances of a block.
Shard = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]
#: Receives the number of iterations, and a function that returns the iterate.
Listener = Callable[[int, Callable[[], Tensor]], None]


class ShardedCollectives(Collectives):
    """Sums over the parts that a group holds."""

    def __init__(
        self,
        member: Communicator,
        starts: NDArray[np.int64],  # [P + 1], first sample of each part
        halo: NDArray[np.int64],  # [H], neighbors in other parts, in order
        listener: Listener | None = None,
    ) -> None:
        self._member, self._listener = member, listener
        first = int(starts[member.rank])
        self._own = int(starts[member.rank + 1]) - first
        self._cuts = np.searchsorted(halo, starts).tolist()
        wanted = [
            torch.from_numpy(halo[a:b])
            for a, b in zip(self._cuts[:-1], self._cuts[1:], strict=True)
        ]
        count = torch.tensor([len(part) for part in wanted])
        asked = torch.stack(member.gather(count))[:, member.rank]
        lists = [torch.empty(int(n), dtype=torch.int64) for n in asked]
        member.exchange(wanted, lists)
        self._sent = [part - first for part in lists]

    @property
    def num_halo(self) -> int:
        """Number of neighbors in other parts."""
        return int(self._cuts[-1])

    @property
    def num_sent(self) -> int:
        """Rows that other parts ask for in a product."""
        return sum(len(part) for part in self._sent)

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all parts, in the order of their numbers."""
        if self._member.size == 1:
            return x
        return self._gathered(x).sum(0)

    def max(self, x: Tensor) -> Tensor:
        """Largest over all parts."""
        return x if self._member.size == 1 else self._gathered(x).amax(0)

    def _gathered(self, x: Tensor) -> Tensor:
        parts = self._member.gather(x.reshape(-1).contiguous())
        return torch.stack(parts).reshape(len(parts), *x.shape)

    def with_halo(self, x: Tensor) -> Tensor:
        """Rows here, then those of the halo, fetched from the parts that hold them."""
        if self._member.size == 1:
            return x
        out = x.new_empty(self._own + self.num_halo, *x.shape[1:])
        out[: self._own] = x
        halo = out[self._own :]
        wanted = [
            halo[a:b] for a, b in zip(self._cuts[:-1], self._cuts[1:], strict=True)
        ]
        self._member.exchange([x[rows] for rows in self._sent], wanted)
        return out

    def norm(self, x: Tensor) -> Tensor:
        """Norm of each column over all parts."""
        local: Tensor = torch.linalg.vector_norm(x, dim=0)
        return local if self._member.size == 1 else self.sum(local.square()).sqrt()

    def report(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Calls the listener."""
        if self._listener is not None:
            self._listener(num_iter, iterate)


@dataclass(frozen=True, eq=False)
class ShardedPattern(Pattern):
    """Where the entries of some rows are; columns beyond them are the halo."""

    width: int = 0

    def csr(self, value: Tensor) -> Tensor:
        """The rows with these values."""
        size = (self.num_nodes, self.width)
        return csr_tensor(self.rowptr, self.colidx, value, size)


class ShardedLaplacian(LaplacianOperator):
    """The rows of a Laplacian that belong to one part.

    Without normalisation, :meth:`system` multiplies the weights in place.
    """

    def __init__(
        self,
        together: ShardedCollectives,
        pattern: ShardedPattern,
        weight: Tensor,  # [E] float64
        normalization: Normalization,
        batch: Tensor | None,  # [N], graph numbers
        num_samples: int,  # of all parts
        first: int,  # sample of this part
        num_parts: int,
    ) -> None:
        self.collectives: ShardedCollectives = together
        self._num_samples, self._first, self._parts = num_samples, first, num_parts
        self._set(pattern, weight, normalization, batch)

    @property
    def num_nodes(self) -> int:
        """Number of samples in all parts."""
        return self._num_samples

    @once
    def longest_row(self) -> int:
        """The largest number of neighbors of a sample."""
        longest = self.pattern.rowptr.diff().max().long()
        return int(self.collectives.max(longest))

    @property
    def _mean_roundings(self) -> int:
        """Additions in the longest chain of an average degree, and its division."""
        if self.batch is None:
            return self._num_samples.bit_length() + self._parts + 2
        return self._num_samples + self._parts + 2

    @once
    def lam_scale(self) -> Tensor:  # 0-d, or [N] for a batch
        """One, or the average degree of each graph with the self-weight counted."""
        if self.normalization is None:
            return torch.ones((), dtype=torch.float64)
        deg = self.deg + SELF_WEIGHT
        if self.batch is None:
            return self.collectives.sum(deg.sum()) / self._num_samples
        every = torch.cat(
            self.collectives._member.gather_any(self.batch.unique())
        ).unique()
        place = torch.searchsorted(every, self.batch)
        zero = deg.new_zeros(len(every))
        total = self.collectives.sum(zero.index_add(0, place, deg))
        count = self.collectives.sum(zero.index_add(0, place, torch.ones_like(deg)))
        return (total / count)[place]

    def system(self, lam: float) -> System:
        """The system of a strength; the operator's entries are used up by it."""
        strength = lam * self.lam_scale
        s = 1.0 + strength * self.diagonal
        largest = float(self.collectives.max(torch.maximum(s.max(), strength.max())))
        if not largest <= LARGEST_ENTRY:
            msg = "'lam' times the largest degree must be at most"
            msg = f"{msg} {LARGEST_ENTRY:g} (got {largest:g})"
            raise ValueError(f"{msg}. Use a smaller 'lam'")
        per_edge = strength if strength.dim() == 0 else strength[self.pattern.row]
        self._system = System(self, s, self.off_diagonal.mul_(per_edge), lam)
        return self._system

    @once
    def scaled_eigenvalue(self) -> tuple[float, float]:
        """Bounds on the smallest eigenvalue of the Laplacian times ``lam_scale``."""
        system = self._system
        if self.is_psd or self.longest_row == 0 or system.lam == 0.0:
            return 0.0, 0.0
        generator = torch.Generator().manual_seed(self._first)
        start = torch.randn(
            len(system.diagonal), 1, generator=generator, dtype=torch.float64
        )
        low, high = lanczos(lambda q: system.matmul(q) - q, start, self.collectives)
        return low / system.lam, high / system.lam

    @once
    def components(self) -> tuple[Tensor, Tensor]:
        """Component of each sample of this part, and sizes over all parts."""
        return self._components[:2]

    @property
    def joined(self) -> Callable[[Tensor], Tensor] | None:
        """Sum over components that other parts share."""
        if self._parts == 1:
            return None
        here, slot, count = self._components[2:5]

        def add(total: Tensor) -> Tensor:
            shared = total.new_zeros(count, total.size(1))
            shared[slot] = total[here]
            total = total.clone()
            total[here] = self.collectives.sum(shared)[slot]
            return total

        return add

    @property
    def num_joined(self) -> int:
        """Number of components with more than one sample."""
        count: int = self._components[5]
        return count

    @once
    def _components(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
        """Labels, sizes, shared ones here, their slots, how many, and all joined.

        Components of this part take the smallest number that any neighbor's has,
        until nothing changes anywhere.
        """
        pattern, own = self.pattern, self.pattern.num_nodes
        width = own + self.collectives.num_halo
        root = _roots(pattern, width)
        name = torch.full((width,), self._num_samples, dtype=torch.int64)
        dataset = torch.arange(self._first, self._first + own)
        name.scatter_reduce_(0, root[:own], dataset, "amin")
        while True:
            seen = self.collectives.with_halo(name[root[:own]])
            new = name.scatter_reduce(0, root, seen, "amin")
            changed = (new != name).any().long()
            name = new
            if int(self.collectives.max(changed)) == 0:
                break
        names, label = torch.unique(name[root[:own]], return_inverse=True)
        size = torch.bincount(label, minlength=len(names))
        touching = name[root[own:]].unique()
        every = torch.cat(self.collectives._member.gather_any(touching)).unique()
        here = torch.isin(names, every).nonzero().view(-1)
        slot = torch.searchsorted(every, names[here])
        total = size.new_zeros(len(every))
        total[slot] = size[here]
        total = self.collectives.sum(total)
        size[here] = total[slot]
        # Every component is counted where its first sample is.
        own_names = (names >= self._first) & (names < self._first + own) & (size > 1)
        joined = int(self.collectives.sum(own_names.sum()))
        return label, size, here, slot, len(every), joined


def _roots(pattern: Pattern, width: int) -> Tensor:  # -> [width]
    """The smallest sample, of this part or the halo, that each is connected to.

    Edges are taken some at a time: there may be more of them than fit twice.
    """
    label = torch.arange(width)
    changed = True
    while changed:
        changed = False
        for start in range(0, pattern.num_edges, _EDGES):
            part = slice(start, start + _EDGES)
            ends = label[pattern.row[part]], label[pattern.col[part]]
            low, high = torch.minimum(*ends), torch.maximum(*ends)
            differ = low < high
            if bool(differ.any()):
                changed = True
                label.scatter_reduce_(0, high[differ], low[differ], "amin")
                while not torch.equal(label, root := label[label]):
                    label = root
    return label


def part_of(
    member: Communicator,
    shards: Sequence[Callable[[], Shard]],
    starts: NDArray[np.int64],
    theta: float,
    normalization: Normalization,
    batch: Tensor | None,
    mapped: bool,
    listener: Listener | None = None,
) -> ShardedLaplacian:
    """Rows of one part from its blocks in order, each of which is read twice.

    Edges go to files if ``mapped``, and not into memory.
    """
    first, stop = int(starts[member.rank]), int(starts[member.rank + 1])
    outside, num_edges = [], 0
    for read in shards:
        _, col, _ = read()
        beyond = (col < first) | (col >= stop)
        outside.append(np.unique(np.asarray(col[beyond], dtype=np.int64)))
        num_edges += len(col)
    halo = np.unique(np.concatenate(outside))
    del outside
    own, width = stop - first, stop - first + len(halo)
    index = np.int32 if max(width, num_edges) < 2**31 else np.int64
    empty = scratch_array if mapped else np.empty
    kinds: tuple[Any, ...] = (index, index, np.float64)
    rows, cols, weights = (empty((num_edges,), kind) for kind in kinds)
    ptr = np.zeros(own + 1, dtype=index)
    row, start = 0, 0
    for read in shards:
        shard, col, sq = read()
        size, count = len(shard) - 1, len(col)
        local = np.where(
            (col >= first) & (col < stop),
            np.asarray(col, dtype=np.int64) - first,
            own + np.searchsorted(halo, col),
        )
        cols[start : start + count] = local
        rows[start : start + count] = np.repeat(
            np.arange(row, row + size), np.diff(shard)
        )
        weight = edge_weights(torch.from_numpy(np.array(sq)), theta)
        weights[start : start + count] = weight.numpy()
        ptr[row + 1 : row + size + 1] = shard[1:] + start
        row, start = row + size, start + count
    together = ShardedCollectives(member, starts, halo, listener)
    row_index, col_index, rowptr = map(torch.from_numpy, (rows, cols, ptr))
    pattern = ShardedPattern(row_index, col_index, rowptr, col_index, own, width)
    weight, count = torch.from_numpy(weights), int(starts[-1])
    return ShardedLaplacian(
        together, pattern, weight, normalization, batch, count, first, member.size
    )
