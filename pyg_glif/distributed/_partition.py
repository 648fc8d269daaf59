"""One part of a smoothing system: some people's rows, and whom they are joined to.

A part runs the solvers as they are. What they ask about all people
(:class:`~pyg_glif._utils.collectives.Collectives`) is answered together with the
other parts; a product first fetches the rows of neighbors that other parts
hold, the halo.
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
from pyg_glif.distributed._store import Scratch
from pyg_glif.graph.weights import edge_weights
from pyg_glif.laplacian import SELF_WEIGHT, LaplacianOperator
from pyg_glif.solvers.system import LARGEST_ENTRY, System
from pyg_glif.typing import Normalization

_EDGES = 1 << 21  # looked at together

#: Row pointers, columns among all people and squared distances of a block.
Shard = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]
#: Is told how many iterations are done, and how to get the point they led to.
Listener = Callable[[int, Callable[[], Tensor]], None]


class Together(Collectives):
    """Sums over the parts that a group holds.

    Args:
        member: This part in its group.
        starts: First person of each part, and the number of people.
        halo: People of others whom people here are joined to, in order.
        listener: Hears of iterations.
    """

    def __init__(
        self,
        member: Communicator,
        starts: NDArray[np.int64],
        halo: NDArray[np.int64],
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
        """People of others whom people here are joined to."""
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

    def seen(self, x: Tensor) -> Tensor:
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

    def folded(self, x: Tensor) -> Tensor:
        """One row with the norms of the columns."""
        return self.norm(x).unsqueeze(0)

    def reached(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Tells the listener."""
        if self._listener is not None:
            self._listener(num_iter, iterate)


@dataclass(frozen=True, eq=False)
class PartPattern(Pattern):
    """Where the entries of some rows are; columns beyond them are the halo."""

    width: int = 0

    def csr(self, value: Tensor) -> Tensor:
        """The rows with these values."""
        size = (self.num_nodes, self.width)
        return csr_tensor(self.rowptr, self.colidx, value, size)


class PartOperator(LaplacianOperator):
    """The rows of a Laplacian that belong to one part.

    Args:
        together: Sums over all parts.
        pattern: Where the entries are.
        weight: Weights ``[E]`` in float64. Without normalisation they are what
            :meth:`system` multiplies in place.
        normalization: Form of the Laplacian.
        batch: Graph numbers of the people here.
        num_people: How many there are in all parts.
        first: Number of the first person here.
        num_parts: How many parts there are.
    """

    def __init__(
        self,
        together: Together,
        pattern: PartPattern,
        weight: Tensor,
        normalization: Normalization,
        batch: Tensor | None,
        num_samples: int,
        first: int,
        num_parts: int,
    ) -> None:
        self.whole: Together = together
        self._num_samples, self._first, self._parts = num_samples, first, num_parts
        self._set(pattern, weight, normalization, batch)

    @property
    def num_nodes(self) -> int:
        """Number of people in all parts."""
        return self._num_samples

    @once
    def longest_row(self) -> int:
        """The largest number of neighbors that anybody has."""
        longest = self.pattern.rowptr.diff().max().long()
        return int(self.whole.max(longest))

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
            return self.whole.sum(deg.sum()) / self._num_samples
        every = torch.cat(self.whole._member.gather_any(self.batch.unique())).unique()
        place = torch.searchsorted(every, self.batch)
        zero = deg.new_zeros(len(every))
        total = self.whole.sum(zero.index_add(0, place, deg))
        count = self.whole.sum(zero.index_add(0, place, torch.ones_like(deg)))
        return (total / count)[place]

    def system(self, lam: float) -> System:
        """The system of a strength; the operator's entries are used up by it."""
        strength = lam * self.lam_scale
        s = 1.0 + strength * self.diagonal
        largest = float(self.whole.max(torch.maximum(s.max(), strength.max())))
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
        low, high = lanczos(lambda q: system.matmul(q) - q, start, self.whole)
        return low / system.lam, high / system.lam

    @once
    def components(self) -> tuple[Tensor, Tensor]:
        """Component of each person here, numbered here, and their sizes anywhere."""
        return self._components[:2]

    @property
    def joined(self) -> Callable[[Tensor], Tensor] | None:
        """Adds up over components of which other parts hold some."""
        if self._parts == 1:
            return None
        here, slot, count = self._components[2:5]

        def add(total: Tensor) -> Tensor:
            shared = total.new_zeros(count, total.size(1))
            shared[slot] = total[here]
            total = total.clone()
            total[here] = self.whole.sum(shared)[slot]
            return total

        return add

    @property
    def num_joined(self) -> int:
        """Number of components with more than one person."""
        found: int = self._components[5]
        return found

    @once
    def _components(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
        """Labels, sizes, shared ones here, their slots, how many, and all joined.

        Components of this part take the smallest number that any neighbor's has,
        until nothing changes anywhere.
        """
        pattern, own = self.pattern, self.pattern.num_nodes
        width = own + self.whole.num_halo
        root = _roots(pattern, width)
        name = torch.full((width,), self._num_samples, dtype=torch.int64)
        dataset = torch.arange(self._first, self._first + own)
        name.scatter_reduce_(0, root[:own], dataset, "amin")
        while True:
            seen = self.whole.seen(name[root[:own]])
            new = name.scatter_reduce(0, root, seen, "amin")
            changed = (new != name).any().long()
            name = new
            if int(self.whole.max(changed)) == 0:
                break
        names, label = torch.unique(name[root[:own]], return_inverse=True)
        size = torch.bincount(label, minlength=len(names))
        touching = name[root[own:]].unique()
        every = torch.cat(self.whole._member.gather_any(touching)).unique()
        here = torch.isin(names, every).nonzero().view(-1)
        slot = torch.searchsorted(every, names[here])
        total = size.new_zeros(len(every))
        total[slot] = size[here]
        total = self.whole.sum(total)
        size[here] = total[slot]
        # Every component is counted where its first person is.
        mine = (names >= self._first) & (names < self._first + own) & (size > 1)
        joined = int(self.whole.sum(mine.sum()))
        return label, size, here, slot, len(every), joined


def _roots(pattern: Pattern, width: int) -> Tensor:  # -> [width]
    """The smallest person, here or in the halo, that each is connected to here.

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
            apart = low < high
            if bool(apart.any()):
                changed = True
                label.scatter_reduce_(0, high[apart], low[apart], "amin")
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
) -> PartOperator:
    """Reads the rows of one part.

    Args:
        member: This part in its group.
        shards: Its blocks, in order; each is read twice.
        starts: First person of each part, and the number of people.
        theta: Decay of the weights.
        normalization: Form of the Laplacian.
        batch: Graph numbers of the people here.
        mapped: Whether edges go to files, and not into memory.
        listener: Hears of iterations.
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
    fits = max(width, num_edges) < 2**31
    index = np.int32 if fits else np.int64
    scratch = Scratch()

    def empty(dtype: Any) -> NDArray[Any]:
        return (
            scratch.array((num_edges,), dtype) if mapped else np.empty(num_edges, dtype)
        )

    rows, cols, weights = empty(index), empty(index), empty(np.float64)
    ptr = np.zeros(own + 1, dtype=index)
    row, at = 0, 0
    for read in shards:
        shard, col, sq = read()
        size, count = len(shard) - 1, len(col)
        local = np.where(
            (col >= first) & (col < stop),
            np.asarray(col, dtype=np.int64) - first,
            own + np.searchsorted(halo, col),
        )
        cols[at : at + count] = local
        rows[at : at + count] = np.repeat(np.arange(row, row + size), np.diff(shard))
        weight = edge_weights(torch.from_numpy(np.array(sq)), theta)
        weights[at : at + count] = weight.numpy()
        ptr[row + 1 : row + size + 1] = shard[1:] + at
        row, at = row + size, at + count
    together = Together(member, starts, halo, listener)
    col_tensor = torch.from_numpy(cols)
    pattern = PartPattern(
        torch.from_numpy(rows),
        col_tensor,
        torch.from_numpy(ptr),
        col_tensor,
        own,
        width,
    )
    return PartOperator(
        together,
        pattern,
        torch.from_numpy(weights),
        normalization,
        batch,
        int(starts[-1]),
        first,
        member.size,
    )
