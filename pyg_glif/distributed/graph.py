"""The exact similarity graph of a dataset in blocks."""

from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.runtime import available_memory, without_autocast
from pyg_glif._utils.validation import check_choice, check_scalar
from pyg_glif.distributed._search import SearchJob, TaskCount
from pyg_glif.distributed._store import FORMAT, Store, contents_of
from pyg_glif.distributed.engine import Engine, as_engine
from pyg_glif.distributed.sharded_dataset import ShardedDataset
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.graph.blocks import Strategy, sample_of, width_for

_KIND = "edges"
_BUDGET_SHARE = 0.8
# Per directed edge: while a block's edges are sorted, and on disk with half a pair.
_BYTES_IN_MEMORY, _BYTES_ON_DISK = 48, 16


class ShardedGraph:
    """Edges of a dataset in blocks, as CSR shards: one for each block of rows.

    Made by :func:`radius_graph`, opened by :meth:`open`.

    Args:
        store (Store): The folder.
        manifest (dict): Its manifest.
        dataset (ShardedDataset): The nodes.
        tasks (TaskCount, optional): Tasks of the search that made it.
    """

    def __init__(
        self,
        store: Store,
        manifest: dict[str, Any],
        dataset: ShardedDataset,
        tasks: TaskCount | None = None,
    ) -> None:
        self.store, self.manifest = store, manifest
        self.dataset = dataset
        self.tasks = TaskCount(0, 0) if tasks is None else tasks

    @classmethod
    def open(
        cls, path: str | PathLike[str], dataset: ShardedDataset | None = None
    ) -> "ShardedGraph":
        """Opens what :func:`radius_graph` made.

        Args:
            path (str or PathLike): The folder, or a URL that fsspec knows.
            dataset (ShardedDataset, optional): The nodes.
                (default: the one that the manifest names)
        """
        store = Store(path)
        manifest = store.manifest(_KIND)
        if dataset is None:
            dataset = ShardedDataset.open(manifest["dataset"])
        if dataset.contents != manifest["dataset_contents"]:
            msg = f"'{store.url}' must be the graph of this dataset"
            raise ValueError(f"{msg} (got one of another). Call 'radius_graph' again")
        return cls(store, manifest, dataset)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_samples={self.dataset.num_samples}, "
            f"num_edges={self.num_edges}, tau={self.tau:g})"
        )

    @cached_property
    def contents(self) -> str:
        """Fingerprint of the graph and its dataset, by the SHA-256 of their files."""
        return contents_of(self.manifest)

    @property
    def tau(self) -> float:
        """The radius."""
        return float(self.manifest["tau"])

    @property
    def num_edges(self) -> int:
        """Number of edges, both directions counted."""
        return sum(block["num_edges"] for block in self.manifest["blocks"])

    def shard(self, block: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Row pointers, columns in k-d order and squared distances of a block."""
        files = self.manifest["blocks"][block]["files"]
        ptr, col, sq = (self.store.load(files[name]) for name in ("ptr", "col", "sq"))
        return ptr, col, sq

    def to_edges(self) -> tuple[Tensor, Tensor]:
        """All edges in memory, in the order of the input.

        Returns:
            ``edge_index`` and ``sq_dist`` as :func:`~pyg_glif.fair_radius_graph` has
            them, sorted by row and column.
        """
        dataset = self.dataset
        place = np.empty(dataset.num_samples, dtype=np.int64)
        for block, start in enumerate(dataset.starts[:-1]):
            part = dataset.place(block)
            place[start : start + len(part)] = part
        rows, cols, sqs = [], [], []
        for block, start in enumerate(dataset.starts[:-1]):
            ptr, col, sq = self.shard(block)
            rows.append(np.repeat(place[start : start + len(ptr) - 1], np.diff(ptr)))
            cols.append(place[col])
            sqs.append(sq)
        row, col, sq = (np.concatenate(part) for part in (rows, cols, sqs))
        order = np.lexsort((col, row))
        edges = torch.from_numpy(np.stack([row[order], col[order]]))
        return edges, torch.from_numpy(sq[order])


@without_autocast()
def radius_graph(
    dataset: ShardedDataset,
    tau: float,
    *,
    out: str | PathLike[str],
    strategy: Strategy = "auto",
    memory_budget: int | None = None,
    engine: Engine | str | None = None,
    address: str | None = None,
) -> ShardedGraph:
    r"""Finds all pairs of samples within fair distance ``tau``, exactly, by blocks.

    The edges are those of :func:`~pyg_glif.fair_radius_graph`: the same rule decides
    in the same place of the code. A call that was stopped goes on where it was, files
    that were damaged are made anew.

    Args:
        dataset (ShardedDataset): The samples.
        tau (float): Radius in units of the distance (not squared).
        out (str or PathLike): The folder to write, or a URL that fsspec knows.
        strategy (str, optional): As in :func:`~pyg_glif.fair_radius_graph`.
            (default: ``"auto"``)
        memory_budget (int, optional): Bytes that all workers of this machine may take
            together. (default: four fifths of what is free here)
        engine (Engine or str, optional): ``"process"``, ``"ray"`` or an engine.
            (default: Ray if this process is connected to it, else this process)
        address (str, optional): Of a Ray cluster, for ``engine="ray"``.

    Example:
        >>> import tempfile, numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/rows.npy", np.array([[0.0], [1.0], [3.0]], "float32"))
        >>> dataset = ShardedDataset.build(f"{folder}/data", f"{folder}/rows.npy")
        >>> graph = radius_graph(dataset, tau=1.0, out=f"{folder}/graph")
        >>> graph.to_edges()
        (tensor([[0, 1],
                [1, 0]]), tensor([1., 1.]))
    """
    tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
    check_choice("strategy", strategy, ("auto", "projected", "plain"))
    runner, store = as_engine(engine, address), Store(out)
    store.check_out(_KIND, dataset.store.url)
    rows, batch = dataset.sample()
    width = width_for(dataset.frame, rows, tau, strategy)
    # Squared distances of another width may differ in their last digit.
    settings = {"dataset": dataset.contents, "search": [tau, width], "format": FORMAT}
    key = _fingerprints.of_plain(settings)
    done = store.finished(key, dataset=dataset.store.url)
    if done is not None:
        return ShardedGraph(store, done, dataset)
    sample = sample_of(dataset.frame, rows, batch, dataset.num_samples)
    _check_room(dataset, sample, tau, store, runner.num_workers, memory_budget)
    job = SearchJob(dataset, store, key, tau, width)
    blocks, count = job.run(runner)
    content = {
        "dataset": dataset.store.url,
        "dataset_contents": dataset.contents,
        "tau": tau,
        "blocks": blocks,
    }
    manifest = store.finish(_KIND, key, content)
    store.clear("work")
    return ShardedGraph(store, manifest, dataset, count)


def _check_room(
    dataset: ShardedDataset,
    sample: Any,
    tau: float,
    store: Store,
    num_workers: int,
    budget: int | None,
) -> None:
    """Raises if the edges that a sample makes likely would not fit."""
    expected = sample.most_edges(tau)
    largest = max(block["count"] for block in dataset.manifest["blocks"])
    blocks = 2 * num_workers * largest
    workspace = blocks * 4 * dataset.num_features + num_workers * 2**26
    share = num_workers * largest / dataset.num_samples
    needed = expected * min(1.0, share) * _BYTES_IN_MEMORY + workspace
    if budget is None:
        budget = int(_BUDGET_SHARE * available_memory(torch.device("cpu")))
    free = store.free_space()
    fits = max(0.0, budget - workspace) / _BYTES_IN_MEMORY / min(1.0, share)
    memory = f"with the workspace of {num_workers} workers ('memory_budget' is"
    # Bytes, their limit, edges that fit, and words.
    rooms = [(needed, budget, fits, memory, "GiB)")]
    if free is not None:
        disk, words = expected * _BYTES_ON_DISK, f"GiB are free in '{store.url}')"
        rooms.append((disk, free, free / _BYTES_ON_DISK, "on disk (", words))
    for size, limit, most, before, after in rooms:
        if size <= limit:
            continue
        radius, gib = sample.radius(0.8 * most), 2.0**30
        remedy = f"About tau={radius:.4g} would fit" if radius else "No radius would"
        raise MemoryBudgetError(
            f"'tau' = {tau:g} gives up to {expected:.3g} edges, which take "
            f"{size / gib:.3g} GiB {before} {limit / gib:.3g} {after}. {remedy}"
        )
