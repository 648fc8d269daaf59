"""Blocks in k-d order from rows in any order, in three passes.

``scan`` checks that every row is finite, and returns their extent and a sample.
``route`` finds the block of each row, from splitters that the sample gave, and writes
the rows of a piece sorted by block. ``pack`` gathers a block from all pieces and puts
it into compact order. Each is a function of one piece or one block, which may be run
twice, anywhere.
"""

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
from pyg_glif.distributed._ids import check_unique
from pyg_glif.distributed._inputs import Piece, PieceRows, RowFiles
from pyg_glif.distributed._kd_partition import Splitters
from pyg_glif.distributed._store import Record, Store, as_tensor
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


@dataclass(frozen=True, eq=False)
class BuildSource:
    """Input rows, and the distance that embeds them."""

    store: Store
    table: RowFiles
    distance: FairDistance
    key: str
    steps: tuple[int, int]  # every how many rows the two samples take one


class PieceScan(NamedTuple):
    """Extent and samples of a piece."""

    extent: Extent
    rows: Tensor  # [S, D], every ``steps[0]``-th
    sample: Tensor  # [T, D], every ``steps[1]``-th
    position: NDArray[np.int64]  # [T]
    batch: NDArray[np.int64] | None  # [T]


@without_autocast()
def scan(source: BuildSource, piece: Piece) -> PieceScan:
    """Extent and samples of a piece, all rows finite."""
    rows = source.table.read(piece)
    z = _embedded(source, rows, piece)
    position = np.arange(piece.first, piece.first + len(z))
    first, second = (position % step == 0 for step in source.steps)
    batch = None if rows.batch is None else rows.batch[second]
    return PieceScan(
        Extent.of(z),
        z[torch.from_numpy(first)],
        z[torch.from_numpy(second)],
        position[second],
        batch,
    )


@dataclass(frozen=True, eq=False)
class Routing:
    """Assignment of rows to blocks."""

    source: BuildSource
    frame: Frame
    splitters: Splitters
    num_blocks: int
    spacing: float  # of graphs along the coordinate that separates them


@without_autocast()
def route(routing: Routing, task: tuple[int, Piece]) -> dict[str, Any]:
    """Writes the rows of a piece, sorted by block; says where each block starts."""
    number, piece = task
    source = routing.source
    name = f"{number:05d}"
    spill = source.store.child("spill")
    done = spill.record_of(f"{name}.json", source.key)
    if done is not None and all(map(spill.is_sound, done["files"].values())):
        ids = done["ids"]
        if ids is None or source.store.child("ids").is_sound(ids):
            return done
    rows = source.table.read(piece)
    points = routing.frame.points(_embedded(source, rows, piece))
    w = routing.frame.bounds(points)
    position = np.arange(piece.first, piece.first + len(w))
    leaf = routing.splitters.leaf(
        labelled(w.numpy(), rows.batch, routing.spacing), position
    )
    order = np.argsort(leaf, kind="stable")
    take = torch.from_numpy(order)
    arrays: dict[str, Any] = {"rows": points.z[take], "bounds": w[take]}
    arrays |= {"norms": points.sq_norm[take], "place": position[order]}
    if points.y is not points.z:
        arrays["near"] = points.y[take]
    if rows.batch is not None:
        arrays["batch"] = rows.batch[order]
    counts = np.bincount(leaf, minlength=routing.num_blocks)
    record = {
        "key": source.key,
        "starts": np.concatenate([[0], counts.cumsum()]).tolist(),
        "files": {k: spill.save(f"{name}.{k}.npy", a) for k, a in arrays.items()},
        "ids": None if rows.ids is None else _save_ids(source.store, name, rows.ids),
        "first": piece.first,
        "count": len(w),
    }
    spill.write_json(f"{name}.json", record)
    return record


class Packing(NamedTuple):
    """Sorted pieces that ``pack`` gathers blocks from."""

    store: Store
    key: str
    spills: list[dict[str, Any]]


@without_autocast()
def pack(packing: Packing, block: int) -> dict[str, Any]:
    """Writes a block in compact order, and returns its record."""
    folder, name = packing.store.child("blocks"), f"{block:05d}"
    done = folder.record_of(f"{name}.json", packing.key)
    if done is not None and all(map(folder.is_sound, done["files"].values())):
        return done
    spill = packing.store.child("spill")

    def gathered(what: str, place: NDArray[np.int64] | None = None) -> Tensor:
        """The rows of the block, in the order of the pieces or each at its place."""
        parts: list[NDArray[Any]] = []
        for piece in packing.spills:
            start, stop = piece["starts"][block : block + 2]
            if stop > start or not parts:
                parts.append(spill.load(piece["files"][what])[start:stop])
        count = sum(map(len, parts))
        out = np.empty((count, *parts[0].shape[1:]), parts[0].dtype)
        ends = np.cumsum([0, *map(len, parts)])
        for part, start, stop in zip(parts, ends[:-1], ends[1:], strict=True):
            out[slice(start, stop) if place is None else place[start:stop]] = part
        return torch.from_numpy(out)

    names = list(packing.spills[0]["files"])
    w = gathered("bounds")
    batch = gathered("batch") if "batch" in names else None
    order, leaf = torch.arange(len(w)), 1
    if len(w):
        order, leaf = in_compact_order(w, batch)
    place = order.argsort().numpy()
    files = {
        what: folder.save(f"{name}.{what}.npy", gathered(what, place)) for what in names
    }
    norms = gathered("norms")
    record = {
        "key": packing.key,
        "count": len(w),
        "leaf": leaf,
        "box": box_of(w).tolist() if len(w) else None,
        "largest": largest_norm(norms) if len(w) else 0.0,
        "graphs": None,
        "files": files,
    }
    if batch is not None and len(w):
        record["graphs"] = [int(batch.min()), int(batch.max())]
    folder.write_json(f"{name}.json", record)
    return record


def labelled(
    w: NDArray[np.float32], batch: NDArray[np.int64] | None, spacing: float
) -> NDArray[np.float32]:
    """Bound coordinates, with one more that separates graphs."""
    if batch is None:
        return w
    label = (batch * spacing).astype(np.float32)
    return np.concatenate([w, label[:, None]], axis=1)


def _embedded(source: BuildSource, rows: PieceRows, piece: Piece) -> Tensor:
    """Coordinates of rows, finite, with at least one column."""
    z = source.distance.embed(as_tensor(rows.values)).detach()
    # A sum is cheap, and finite only if all of them are.
    if not bool(z.sum().isfinite()):
        bad = ~z.isfinite().all(1)
        if bool(bad.any()):
            row = f"row {piece.start + int(bad.int().argmax())}"
            url = source.table.urls[piece.file]
            msg = "'distance' must embed rows as finite numbers"
            raise ValueError(f"{msg} (got {row} of '{url}')")
    return z if z.size(1) else z.new_zeros(len(z), 1)


def _save_ids(store: Store, name: str, ids: NDArray[Any]) -> Record:
    """Writes ids in the order of the rows, texts in UTF-8."""
    if ids.dtype.kind != "i":
        ids = np.array([str(text).encode() for text in ids])
    return store.child("ids").save(f"{name}.npy", ids)


class Building:
    """One run: all passes over all pieces."""

    def __init__(
        self,
        store: Store,
        table: RowFiles,
        contents: list[str],
        distance: FairDistance,
        key: str,
        engine: Engine,
    ) -> None:
        self._store, self._table, self._distance = store, table, distance
        self._contents = contents
        self._key, self._engine = key, engine

    def run(self, block_rows: int | None) -> dict[str, Any]:
        """All passes; returns the manifest, which is written last."""
        count = self._table.num_rows
        if block_rows is None:
            block_rows = _BLOCK_BYTES // (4 * max(1, self._table.width))
            block_rows = min(max(block_rows, _FEWEST_ROWS), _MOST_ROWS)
        check_count("block_rows", block_rows)
        num_blocks = -(-count // block_rows)
        wanted = max(_SAMPLE, _PER_BLOCK * num_blocks)
        steps = (sample_step(count), max(1, count // wanted))
        source = BuildSource(self._store, self._table, self._distance, self._key, steps)
        pieces = list(self._table.pieces(block_rows))
        scans = self._scans(source, pieces)
        rows = torch.cat([part.rows for part in scans])
        extent = reduce(or_, (part.extent for part in scans))
        frame = Frame.of(rows, extent)
        sample = torch.cat([part.sample for part in scans])
        batch = None
        if scans[0].batch is not None:
            parts = [part.batch for part in scans if part.batch is not None]
            batch = np.concatenate(parts)
        w = frame.bounds(frame.points(sample)).numpy()
        spacing = 8.0 * max(1.0, float(np.abs(w).max()))
        position = np.concatenate([part.position for part in scans])
        tree = Splitters.of(labelled(w, batch, spacing), position, num_blocks)
        routing = Routing(source, frame, tree, num_blocks, spacing)
        routed = self._engine.run(
            partial(route, routing), list(enumerate(pieces)), "sorting rows"
        )
        spills = [r for _, r in sorted(routed, key=lambda pair: pair[0][0])]
        if self._table.id is not None:
            self._check_ids(spills)
        packing = Packing(self._store, self._key, spills)
        packed = self._engine.run(
            partial(pack, packing), list(range(num_blocks)), "writing blocks"
        )
        blocks = [r for _, r in sorted(packed, key=lambda pair: pair[0])]
        return self._finish(frame, sample, batch, spills, blocks)

    def _scans(self, source: BuildSource, pieces: list[Piece]) -> list[PieceScan]:
        """Extents and samples of all pieces, in their order."""
        scanned = self._engine.run(partial(scan, source), pieces, "reading rows")
        return [part for _, part in sorted(scanned, key=lambda pair: pair[0].first)]

    def _check_ids(self, spills: list[dict[str, Any]]) -> None:
        """Raises if two samples have one id."""
        folder = self._store.child("ids")
        check_unique("id", (folder.load(piece["ids"]) for piece in spills))

    def _finish(
        self,
        frame: Frame,
        sample: Tensor,
        batch: NDArray[np.int64] | None,
        spills: list[dict[str, Any]],
        blocks: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Writes the manifest, and removes intermediate files."""
        store = self._store
        try:
            self._table.check_contents(self._contents)
        except ValueError:
            for name in ("spill", "blocks"):
                store.child(name).clear()
            raise
        state = self._distance.state_dict()
        centre = frame.centre
        files = {
            "basis": store.save("frame/basis.npy", frame.basis),
            "centre": None,
            "sample": store.save("frame/sample.npy", sample),
            "sample_batch": None,
            "distance": {
                name: store.save(f"frame/distance.{name}.npy", value)
                for name, value in state.items()
            },
        }
        if centre is not None:
            files["centre"] = store.save("frame/centre.npy", centre)
        if batch is not None:
            files["sample_batch"] = store.save("frame/sample_batch.npy", batch)
        # Empty blocks have no bounding box.
        blocks = [
            {name: value for name, value in block.items() if name != "key"}
            for block in blocks
            if block["count"]
        ]
        ids = [{"first": piece["first"], "file": piece["ids"]} for piece in spills]
        content = {
            "num_samples": self._table.num_rows,
            "num_features": sample.size(1),
            "num_inputs": self._table.width,
            "input_dtype": self._table.dtype,
            "dtype": str(sample.dtype).removeprefix("torch."),
            "scale": frame.scale,
            "id": self._table.id,
            "batch": self._table.batch,
            "distance": described(self._distance),
            "ids": ids if self._table.id is not None else [],
            "files": files,
            "blocks": blocks,
        }
        manifest = store.finish(KIND, self._key, content)
        store.child("spill").clear()
        return manifest


def described(distance: FairDistance) -> dict[str, Any] | None:
    """The distance as plain data; one that is not registered has its name only."""
    try:
        return describe(distance)
    except TypeError:
        return {"family": "distance", "kind": type(distance).__name__, "config": {}}
