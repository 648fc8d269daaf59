"""Blocks in k-d order from rows in any order, in three passes.

``scan`` checks that every row is finite, and returns their extent and a sample.
``route`` finds the block of each row by splitters of the sample, and writes a piece
sorted by block. ``pack`` gathers a block from all pieces in compact order. Each is a
function of one piece or one block, which may be run twice, anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_count
from pyg_glif.distances import FairDistance
from pyg_glif.distributed._inputs import Piece, PieceRows, RowFiles, check_unique
from pyg_glif.distributed._store import Store, as_tensor, facts_of
from pyg_glif.distributed.engine import Engine
from pyg_glif.graph.blocks import (
    Extent,
    Frame,
    box_of,
    in_compact_order,
    largest_norm,
    sample_step,
)
from pyg_glif.registry import describe

#: Kind of a folder with a dataset, in its manifest.
KIND = "dataset"
_BLOCK_BYTES = 48 << 20
_FEWEST_ROWS, _MOST_ROWS = 256, 1 << 16
_SAMPLE = 1 << 14  # rows that splitters, and estimates later, come from
_PER_BLOCK = 64  # sampled rows, at least, for each block
# Coordinates that cuts are made along: the leading ones and the last.
_AXES = 16
# Spreads positions evenly over [0, 1): duplicates are cut by these.
_GOLDEN = 0.6180339887498949


class PieceScan(NamedTuple):
    """Extent and samples of a piece."""

    extent: Extent
    rows: Tensor  # [S, D], every ``steps[0]``-th
    sample: Tensor  # [T, D], every ``steps[1]``-th
    position: NDArray[np.int64]  # [T]
    batch: NDArray[np.int64] | None  # [T]


class Routing(NamedTuple):
    """Assignment of rows to blocks."""

    frame: Frame
    splitters: "Splitters"
    num_blocks: int
    spacing: float  # of graphs along the coordinate that separates them


@dataclass(frozen=True, eq=False)
class Build:
    """One build: its input, and the passes over it."""

    store: Store
    table: RowFiles
    contents: list[str]  # fingerprints of the files
    distance: FairDistance
    key: str

    def run(self, engine: Engine, block_rows: int | None) -> dict[str, Any]:
        """All passes; returns the manifest, which is written last."""
        count = self.table.num_rows
        if block_rows is None:
            block_rows = _BLOCK_BYTES // (4 * max(1, self.table.width))
            block_rows = min(max(block_rows, _FEWEST_ROWS), _MOST_ROWS)
        check_count("block_rows", block_rows)
        num_blocks = -(-count // block_rows)
        wanted = max(_SAMPLE, _PER_BLOCK * num_blocks)
        steps = (sample_step(count), max(1, count // wanted))
        pieces = list(self.table.pieces(block_rows))
        numbers = range(len(pieces))

        def passed(function: Any, tasks: Sequence[Any], label: str) -> list[Any]:
            results = engine.run(function, tasks, label)
            return [part for _, part in sorted(results, key=lambda pair: pair[0])]

        scans = passed(partial(self.scan, steps, pieces), numbers, "reading rows")
        extent = reduce(or_, (part.extent for part in scans))
        frame = Frame.of(torch.cat([part.rows for part in scans]), extent)
        sample = torch.cat([part.sample for part in scans])
        batch = None
        if scans[0].batch is not None:
            batch = np.concatenate([part.batch for part in scans])
        w = frame.bounds(frame.points(sample)).numpy()
        spacing = 8.0 * max(1.0, float(np.abs(w).max()))
        position = np.concatenate([part.position for part in scans])
        tree = Splitters.of(_labelled(w, batch, spacing), position, num_blocks)
        routing = Routing(frame, tree, num_blocks, spacing)
        spills = passed(partial(self.route, routing, pieces), numbers, "sorting rows")
        if self.table.id is not None:
            check_unique("id", (self.store.load(piece["ids"]) for piece in spills))
        blocks = passed(partial(self.pack, spills), range(num_blocks), "writing blocks")
        return self._finish(frame, sample, batch, spills, blocks)

    @without_autocast()
    def scan(
        self, steps: tuple[int, int], pieces: Sequence[Piece], number: int
    ) -> PieceScan:
        """Extent and samples of a piece, all rows finite."""
        piece = pieces[number]
        rows, z = self._read(piece)
        position = np.arange(piece.first, piece.first + len(z))
        first, second = (position % step == 0 for step in steps)
        batch = None if rows.batch is None else rows.batch[second]
        few, many = (z[torch.from_numpy(mask)] for mask in (first, second))
        return PieceScan(Extent.of(z), few, many, position[second], batch)

    @without_autocast()
    def route(
        self, routing: Routing, pieces: Sequence[Piece], number: int
    ) -> dict[str, Any]:
        """Writes the rows of a piece, sorted by block; returns starts of the blocks."""
        piece, name = pieces[number], f"{number:05d}"
        done = self.store.done(f"spill/{name}", self.key)
        if done is not None:
            return done
        rows, z = self._read(piece)
        points = routing.frame.points(z)
        w = routing.frame.bounds(points)
        position = np.arange(piece.first, piece.first + len(w))
        coords = _labelled(w.numpy(), rows.batch, routing.spacing)
        leaf = routing.splitters.leaf(coords, position)
        order = np.argsort(leaf, kind="stable")
        take = torch.from_numpy(order)
        arrays: dict[str, Any] = {"rows": points.z[take], "bounds": w[take]}
        arrays |= {"norms": points.sq_norm[take], "place": position[order]}
        if points.y is not points.z:
            arrays["near"] = points.y[take]
        if rows.batch is not None:
            arrays["batch"] = rows.batch[order]
        counts = np.bincount(leaf, minlength=routing.num_blocks)
        ids, texts = None, rows.ids
        if texts is not None:
            if texts.dtype.kind != "i":
                texts = np.array([str(text).encode() for text in texts])
            ids = self.store.save(f"ids/{name}.npy", texts)
        starts = np.concatenate([[0], counts.cumsum()]).tolist()
        facts = {"starts": starts, "ids": ids, "first": piece.first}
        return self.store.put(f"spill/{name}", self.key, arrays, **facts)

    @without_autocast()
    def pack(self, spills: list[dict[str, Any]], block: int) -> dict[str, Any]:
        """Writes a block in compact order, and returns its record."""
        name = f"blocks/{block:05d}"
        done = self.store.done(name, self.key)
        if done is not None:
            return done

        def gathered(what: str, place: NDArray[np.int64] | None = None) -> Tensor:
            """The rows of the block, in the order of the pieces or each at a place."""
            parts: list[NDArray[Any]] = []
            for piece in spills:
                start, stop = piece["starts"][block : block + 2]
                if stop > start or not parts:
                    parts.append(self.store.load(piece["files"][what])[start:stop])
            array = np.concatenate(parts)
            if place is None:
                return torch.from_numpy(array)
            out = np.empty_like(array)
            out[place] = array
            return torch.from_numpy(out)

        names = list(spills[0]["files"])
        w = gathered("bounds")
        batch = gathered("batch") if "batch" in names else None
        order, leaf = in_compact_order(w, batch) if len(w) else (torch.arange(0), 1)
        place = order.argsort().numpy()
        graphs = None
        if batch is not None and len(w):
            graphs = [int(batch.min()), int(batch.max())]
        return self.store.put(
            name,
            self.key,
            {what: gathered(what, place) for what in names},
            count=len(w),
            leaf=leaf,
            box=box_of(w).tolist() if len(w) else None,
            largest=largest_norm(gathered("norms")) if len(w) else 0.0,
            graphs=graphs,
        )

    def _read(self, piece: Piece) -> tuple[PieceRows, Tensor]:
        """Rows, and their coordinates: finite, with at least one column."""
        rows = self.table.read(piece)
        z = self.distance.embed(as_tensor(rows.values)).detach()
        # A sum is cheap, and finite only if all of them are.
        if not bool(z.sum().isfinite()):
            bad = ~z.isfinite().all(1)
            if bool(bad.any()):
                row = f"row {piece.start + int(bad.int().argmax())}"
                url = self.table.urls[piece.file]
                msg = "'distance' must embed rows as finite numbers"
                raise ValueError(f"{msg} (got {row} of '{url}')")
        return rows, z if z.size(1) else z.new_zeros(len(z), 1)

    def _finish(
        self,
        frame: Frame,
        sample: Tensor,
        batch: NDArray[np.int64] | None,
        spills: list[dict[str, Any]],
        blocks: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Writes the manifest, and removes intermediate files."""
        store, table = self.store, self.table
        try:
            table.check_contents(self.contents)
        except ValueError:
            for name in ("spill", "blocks"):
                store.clear(name)
            raise
        arrays = {"basis": frame.basis, "center": frame.center, "sample": sample}
        arrays["sample_batch"] = batch  # type: ignore[assignment]
        files: dict[str, Any] = {
            name: None if array is None else store.save(f"frame/{name}.npy", array)
            for name, array in arrays.items()
        }
        files["distance"] = {
            name: store.save(f"frame/distance.{name}.npy", value)
            for name, value in self.distance.state_dict().items()
        }
        try:
            distance = describe(self.distance)
        except TypeError:  # of a class that is not registered: its name only
            kind = type(self.distance).__name__
            distance = {"family": "distance", "kind": kind, "config": {}}
        ids = [{"first": piece["first"], "file": piece["ids"]} for piece in spills]
        content = {
            "num_samples": table.num_rows,
            "num_features": sample.size(1),
            "num_inputs": table.width,
            "dtype": str(sample.dtype).removeprefix("torch."),
            "scale": frame.scale,
            "id": table.id,
            "batch": table.batch,
            "distance": distance,
            "ids": ids if table.id is not None else [],
            "files": files,
            # Empty blocks have no bounding box.
            "blocks": [facts_of(block) for block in blocks if block["count"]],
        }
        manifest = store.finish(KIND, self.key, content)
        store.clear("spill")
        return manifest


def _labelled(
    w: NDArray[np.float32], batch: NDArray[np.int64] | None, spacing: float
) -> NDArray[np.float32]:
    """Bound coordinates, with one more that separates graphs."""
    if batch is None:
        return w
    label = (batch * spacing).astype(np.float32)
    return np.concatenate([w, label[:, None]], axis=1)


@dataclass(frozen=True)
class Splitters:
    """A k-d tree over a sample; leaves are numbered from left to right.

    Samples on a cut go left or right by a number of their own, so that no number of
    duplicates makes a leaf too large.
    """

    axis: NDArray[np.int64]  # [nodes], -1 at a leaf
    value: NDArray[np.float64]  # [nodes]
    tie: NDArray[np.float64]  # [nodes]
    child: NDArray[np.int64]  # [nodes, 2]; at a leaf its number

    @classmethod
    def of(
        cls, w: NDArray[np.float32], position: NDArray[np.int64], num_leaves: int
    ) -> "Splitters":
        """The tree of bound coordinates ``w`` of samples at some positions."""
        coords, tie = _coords(w), _ties(position)
        nodes: list[tuple[int, float, float, int, int]] = []
        leaves = 0

        def grow(rows: NDArray[np.int64], count: int) -> int:
            nonlocal leaves
            node = len(nodes)
            nodes.append((-1, 0.0, 0.0, 0, 0))
            if count == 1 or len(rows) < 2:
                nodes[node] = (-1, 0.0, 0.0, leaves, leaves + count)
                leaves += count
                return node
            axis = int(coords[rows].var(0).argmax())
            rows = rows[np.lexsort((tie[rows], coords[rows, axis]))]
            left = (count + 1) // 2
            cut = min(max(1, len(rows) * left // count), len(rows) - 1)
            value, last = coords[rows[cut - 1], axis], tie[rows[cut - 1]]
            low = grow(rows[:cut], left)
            high = grow(rows[cut:], count - left)
            nodes[node] = (axis, float(value), float(last), low, high)
            return node

        grow(np.arange(len(w)), num_leaves)
        columns = list(zip(*nodes, strict=True))
        child = np.array([columns[3], columns[4]], dtype=np.int64).T
        return cls(
            np.array(columns[0], dtype=np.int64),
            np.array(columns[1]),
            np.array(columns[2]),
            child,
        )

    def leaf(
        self, w: NDArray[np.float32], position: NDArray[np.int64]
    ) -> NDArray[np.int64]:  # [N, M + 1], [N] -> [N]
        """The leaf of each sample."""
        coords, tie = _coords(w), _ties(position)
        out = np.empty(len(w), dtype=np.int64)
        waiting = [(0, np.arange(len(w)))]
        while waiting:
            node, rows = waiting.pop()
            if self.axis[node] < 0:
                first, stop = self.child[node]
                # A leaf of the sample may stand for several: they share its samples.
                share = (tie[rows] * (stop - first)).astype(np.int64)
                out[rows] = first + share
                continue
            key = coords[rows, self.axis[node]].astype(np.float64)
            equal = (key == self.value[node]) & (tie[rows] <= self.tie[node])
            left = (key < self.value[node]) | equal
            waiting.append((int(self.child[node, 0]), rows[left]))
            waiting.append((int(self.child[node, 1]), rows[~left]))
        return out


def _ties(position: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number from 0 to 1 for each position, evenly spread."""
    return np.mod(position.astype(np.float64) * _GOLDEN, 1.0)


def _coords(w: NDArray[np.float32]) -> NDArray[np.float32]:
    """The coordinates that cuts are made along."""
    return np.concatenate([w[:, : min(_AXES, w.shape[1] - 1)], w[:, -1:]], axis=1)
