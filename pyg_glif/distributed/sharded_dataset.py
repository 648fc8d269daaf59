"""A dataset in blocks on disk, in an order that keeps neighbors together."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.validation import check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.distributed._build import KIND, Build
from pyg_glif.distributed._inputs import RowFiles, as_files
from pyg_glif.distributed._store import FORMAT, Store, contents_of, files_of
from pyg_glif.distributed.engine import Engine, as_engine
from pyg_glif.graph.blocks import Block, Frame, PairSample, as_distance, sample_of
from pyg_glif.registry import build as build_kind, describe

_FEWEST_PAIRS = 8  # of the sample within a radius, to tell a degree from


class ShardedDataset:
    """A dataset in blocks on disk, in k-d order: as large as the disk.

    Made by :meth:`build`, opened by :meth:`open`. Every file is checked against
    the SHA-256 in the manifest before it is used.

    Example:
        >>> import tempfile, numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> rows = np.random.default_rng(0).normal(size=(500, 8)).astype("float32")
        >>> ShardedDataset.build(f"{folder}/data", rows)
        ShardedDataset(num_samples=500, num_features=8, num_blocks=1)
    """

    def __init__(self, store: Store, manifest: dict[str, Any]) -> None:
        self.store, self.manifest = store, manifest

    @classmethod
    def open(cls, path: str | PathLike[str]) -> "ShardedDataset":
        """Opens what :meth:`build` made.

        Args:
            path (str or PathLike): The folder, or a URL that fsspec knows.
        """
        store = Store(path)
        return cls(store, store.manifest(KIND))

    @classmethod
    def build(
        cls,
        out: str | PathLike[str],
        rows: Any,
        *,
        features: str | Sequence[str] | None = None,
        id: str | None = None,
        batch: str | None = None,
        distance: FairDistance | None = None,
        block_rows: int | None = None,
        engine: Engine | str | None = None,
        address: str | None = None,
    ) -> "ShardedDataset":
        r"""Puts rows into blocks in k-d order.

        Rows are read twice and written twice; memory holds a block for each worker.
        Results of an earlier call with the same contents of files, distance and
        settings are used again, also parts of them; not with a distance of a class
        that is not registered (:func:`pyg_glif.registry.register`).

        Args:
            out (str or PathLike): The folder to write, or a URL that fsspec knows.
                Workers on other machines must reach it too.
            rows (str, sequence of str or array-like): Parquet files, or ``.npy`` files
                with a matrix each; ``*`` stands for any name. A matrix in memory is
                written to such a file in ``out`` first. Every call reads them once to
                tell whether they are those of before.
            features (str or sequence of str, optional): Columns of the distance, or
                one column of lists. (default: all numbers)
            id (str, optional): Column of unique ids, whole numbers or texts.
                (default: the position of a row)
            batch (str, optional): Column with graph numbers; no edge joins two.
            distance (FairDistance, optional): A distance with an embedding.
                (default: Euclidean)
            block_rows (int, optional): Samples in a block, about.
                (default: 48 MiB of coordinates)
            engine (Engine or str, optional): ``"process"``, ``"ray"`` or an engine.
                (default: Ray if this process is connected to it, else this process)
            address (str, optional): Of a Ray cluster, for ``engine="ray"``.
        """
        runner, store = as_engine(engine, address), Store(out)
        rows = as_files("rows", rows, store, KIND)
        table = RowFiles.open("rows", rows, features, id, batch)
        distance = as_distance(distance)
        if not distance.is_embedding:
            msg = "'distance' must have an embedding to search blocks"
            raise TypeError(f"{msg} (got {type(distance).__name__})")
        if table.num_rows == 0:
            raise ValueError("'rows' must hold at least one row (got none)")
        contents = table.contents()
        settings = {
            "inputs": contents,
            "columns": [table.columns, id, batch],
            "distance": _fingerprint(distance),
            "block_rows": block_rows,
            "format": FORMAT,
        }
        key = _fingerprints.of_plain(settings)
        manifest = store.finished(key)
        if manifest is not None:
            return cls(store, manifest)
        build = Build(store, table, contents, distance, key)
        return cls(store, build.run(runner, block_rows))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_samples={self.num_samples}, "
            f"num_features={self.num_features}, num_blocks={self.num_blocks})"
        )

    @cached_property
    def contents(self) -> str:
        """A fingerprint of all that the folder holds, by the SHA-256 of its files."""
        return contents_of(self.manifest)

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return int(self.manifest["num_samples"])

    @property
    def num_features(self) -> int:
        """Number of coordinates."""
        return int(self.manifest["num_features"])

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.manifest["blocks"])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the coordinates."""
        return torch.float64 if self.manifest["dtype"] == "float64" else torch.float32

    @cached_property
    def starts(self) -> NDArray[np.int64]:  # [num_blocks + 1]
        """Number of the first sample of each block, in k-d order."""
        counts = [block["count"] for block in self.manifest["blocks"]]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def frame(self) -> Frame:
        """Center, scale and directions that all blocks share."""
        files = self.manifest["files"]
        center = files["center"]
        return Frame(
            None if center is None else self.store.tensor(center).clone(),
            self.manifest["scale"],
            self.store.tensor(files["basis"]).clone(),
        )

    @property
    def largest(self) -> float:
        """Bound on the norms of all points, in the frame."""
        return max(float(block["largest"]) for block in self.manifest["blocks"])

    @cached_property
    def distance(self) -> FairDistance:
        """The distance whose coordinates these are."""
        record = self.manifest["distance"]
        state = {
            name: self.store.tensor(file).clone()
            for name, file in self.manifest["files"]["distance"].items()
        }
        try:
            distance: FairDistance = build_kind("distance", record, state=state)
        except LookupError as error:
            msg = "'distance' must be of a registered class to be opened"
            raise ValueError(f"{msg} (got {record['kind']})") from error
        return distance

    def sample(self) -> tuple[Tensor, Tensor | None]:
        """Coordinates and graph numbers of some samples, evenly over the input."""
        files = self.manifest["files"]
        batch = files["sample_batch"]
        rows = self.store.tensor(files["sample"])
        return rows, None if batch is None else self.store.tensor(batch)

    def suggest_tau(self, degree: float) -> float:
        """Radius at which samples have about ``degree`` neighbors, from some of them.

        Args:
            degree (float): Neighbors each, on average.
        """
        check_scalar("degree", degree, above=0.0)
        rows, batch = self.sample()
        pairs = sample_of(self.frame, rows, batch, self.num_samples)
        return radius_for_degree(pairs, degree, self.num_samples)

    def boxes(self) -> Tensor:  # [num_blocks, 2, B]
        """Boxes around the blocks, in bound coordinates."""
        return torch.tensor([block["box"] for block in self.manifest["blocks"]])

    def block(self, number: int) -> Block:
        """A block, of which bound coordinates are read at once, points on demand."""
        record, tensor = self.manifest["blocks"][number], self.store.tensor
        files, batch = record["files"], self.batch(number)

        def read() -> Any:
            rows, norms = tensor(files["rows"]), tensor(files["norms"])
            near = tensor(files["near"]) if "near" in files else rows
            return self.frame.points(rows, batch, near, norms)

        return Block(tensor(files["bounds"]), record["leaf"], batch, read)

    def place(self, number: int) -> NDArray[np.int64]:
        """Positions in the input of the samples of a block."""
        return self.store.load(self.manifest["blocks"][number]["files"]["place"])

    def batch(self, number: int) -> Tensor | None:
        """Graph numbers of the samples of a block."""
        file = self.manifest["blocks"][number]["files"].get("batch")
        return None if file is None else self.store.tensor(file)

    @property
    def id_column(self) -> str | None:
        """Name of the column with ids, if there is one."""
        name: str | None = self.manifest["id"]
        return name

    def ids(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Ids in the order of the input, some at a time, and where they start."""
        for part in self.manifest["ids"]:
            yield part["first"], self.store.load(part["file"])

    def check(self) -> None:
        """Raises :class:`~pyg_glif.errors.DamagedFileError` if a file is damaged."""
        for record in files_of(self.manifest):
            self.store.check(record)


def radius_for_degree(pairs: PairSample, degree: float, num_samples: int) -> float:
    """Radius at which samples have ``degree`` neighbors, from sampled pairs."""
    rank = pairs.rank(degree * num_samples)
    if rank < _FEWEST_PAIRS:
        msg = "'tau' must be given where a sample has too few pairs that near"
        raise ValueError(f"{msg} (got {rank} for degree {degree:g})")
    return pairs.radius(degree * num_samples)


def _fingerprint(distance: FairDistance) -> list[Any]:
    """Fingerprint of a distance."""
    try:
        spec: Any = describe(distance)
    except TypeError:
        spec = uuid4().hex  # user code: the same name may be another distance
    return [spec, _fingerprints.of_tensors(distance.state_dict())]
