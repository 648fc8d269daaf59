"""Inductive updates of new samples against a dataset in blocks."""

from dataclasses import dataclass
from functools import partial
from os import PathLike
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_features, check_finite, check_same_rows
from pyg_glif.distributed._store import Store
from pyg_glif.distributed.engine import Engine, as_engine
from pyg_glif.distributed.graph import ShardedGraph
from pyg_glif.distributed.sharded_dataset import ShardedDataset
from pyg_glif.distributed.smoothing import ShardedSolution
from pyg_glif.graph.blocks import (
    Block,
    BlockSearch,
    box_of,
    in_compact_order,
    largest_norm,
    width_for,
)
from pyg_glif.graph.weights import edge_weights
from pyg_glif.laplacian import entries_beside
from pyg_glif.links import Link
from pyg_glif.registry import build as build_kind
from pyg_glif.smoothing import Smoother

_BLOCKS = 16  # that one task compares new samples with


class ShardedIndex:
    r"""Corrects new samples against a dataset in blocks.

    The inductive step of :meth:`~pyg_glif.GLIFPostProcessor.transform`: fitted outputs
    stay as they are, and new samples have no edges to each other.

    Args:
        solution (ShardedSolution): Result of :func:`~pyg_glif.distributed.smooth`.
        graph (ShardedGraph, optional): The graph it was made with.
            (default: as the solution says)
        engine (Engine or str, optional): ``"process"``, ``"ray"`` or an engine.
            (default: Ray if this process is connected to it, else this process)

    Example:
        >>> import tempfile, numpy as np, torch
        >>> from pyg_glif.distributed import ShardedDataset, radius_graph, smooth
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/rows.npy", np.array([[0.0], [1.0], [3.0]], "float32"))
        >>> np.save(f"{folder}/y.npy", np.array([0.0, 3.0, 5.0], "float32"))
        >>> dataset = ShardedDataset.build(f"{folder}/data", f"{folder}/rows.npy")
        >>> graph = radius_graph(dataset, tau=1.0, out=f"{folder}/graph")
        >>> fair = smooth(graph, f"{folder}/y.npy", theta=0.0, out=f"{folder}/fair")
        >>> ShardedIndex(fair).correct(torch.tensor([[4.0]]), torch.tensor([1.0]))
        tensor([3.])
    """

    def __init__(
        self,
        solution: ShardedSolution,
        graph: ShardedGraph | None = None,
        *,
        engine: Engine | str | None = None,
    ) -> None:
        manifest = solution.manifest
        graph = ShardedGraph.open(manifest["graph"]) if graph is None else graph
        if graph.contents != manifest["graph_contents"]:
            msg = "'graph' must be the one that 'solution' was made with"
            raise ValueError(f"{msg} (got another)")
        if graph.dataset.manifest["batch"] is not None:
            msg = "'solution' must be of one graph to correct new samples"
            raise ValueError(f"{msg} (got a batch of graphs)")
        self.solution, self.graph, self._engine = solution, graph, engine

    @classmethod
    def open(
        cls, path: str | PathLike[str], *, engine: Engine | str | None = None
    ) -> "ShardedIndex":
        """The index of a folder that :func:`~pyg_glif.distributed.smooth` wrote.

        Args:
            path (str or PathLike): The folder, or a URL that fsspec knows.
            engine (Engine or str, optional): As above.
        """
        return cls(ShardedSolution.open(path), engine=engine)

    def __repr__(self) -> str:
        count = self.graph.dataset.num_samples
        return f"{type(self).__name__}(num_samples={count}, tau={self.graph.tau:g})"

    @without_autocast()
    def correct(self, x_new: Tensor, y_hat_new: Tensor) -> Tensor:
        """Fair outputs of new samples.

        Args:
            x_new (torch.Tensor): Their features, in the columns of the dataset.
            y_hat_new (torch.Tensor): The model's outputs for them.

        Shapes:
            - **input:** features :math:`(M, F)`, outputs :math:`(M)` or :math:`(M, C)`
            - **output:** outputs as before
        """
        manifest = self.solution.manifest
        z = self._embedded(x_new)
        check_same_rows("y_hat_new", y_hat_new, "x_new", z)
        check_finite("y_hat_new", y_hat_new)
        y = y_hat_new.reshape(len(y_hat_new), -1)
        if y.size(1) != len(self.solution.columns):
            msg = f"'y_hat_new' must have {len(self.solution.columns)} columns"
            raise ValueError(f"{msg} (got {y.size(1)})")
        spec = manifest["link"]
        link: Link | None = None if spec is None else build_kind("link", spec)
        edges = self._edges(z)
        weight = edge_weights(edges.sq, manifest["theta"]).double()
        # Degrees of the samples at the ends of edges are all that is read of it.
        known: Any = SimpleNamespace(
            normalization=manifest["normalization"],
            deg=edges.deg,
            scaled_deg=edges.scaled_deg,
        )
        col = torch.arange(len(edges.row))
        none = torch.empty(0, dtype=torch.long)
        inner = (none, none, weight.new_empty(0))
        diagonal, value, _ = entries_beside(
            known, (edges.row, col, weight), inner, len(z)
        )
        pull = torch.zeros(y.shape, dtype=torch.float64).index_add(
            0, edges.row, value.unsqueeze(1) * edges.f.double()
        )
        deg = torch.zeros(len(z), dtype=torch.float64).index_add(0, edges.row, weight)
        out = Smoother(manifest["lam"], link=link).update(
            y,
            pull,
            diagonal,
            lam_scale=manifest["solution"]["lam_scale"] or 1.0,
            isolated=deg == 0,
        )
        return out.reshape(y_hat_new.shape)

    @without_autocast()
    def num_neighbors(self, x_new: Tensor) -> Tensor:
        """Number of neighbors of each new sample in the dataset.

        Args:
            x_new (torch.Tensor): Their features, in the columns of the dataset.

        Shapes:
            - **input:** features :math:`(M, F)`
            - **output:** counts :math:`(M)`
        """
        z = self._embedded(x_new)
        return torch.bincount(self._edges(z).row, minlength=len(z))

    def _embedded(self, x_new: Tensor) -> Tensor:  # [M, F] -> [M, D]
        """Coordinates of new samples, finite, with at least one column."""
        dataset = self.graph.dataset
        x = check_features("x_new", x_new, dataset.distance).detach()
        num_inputs = dataset.manifest["num_inputs"]
        if x.size(1) != num_inputs:
            msg = f"'x_new' must have {num_inputs} features (got {x.size(1)})"
            raise ValueError(msg)
        z = dataset.distance.embed(x.to(dataset.dtype)).detach()
        check_finite("distance.embed(x_new)", z)
        return z if z.size(1) else z.new_zeros(len(z), 1)

    def _edges(self, z: Tensor) -> "_Edges":
        """Edges of new samples to the dataset, sorted by row and column."""
        dataset, tau = self.graph.dataset, self.graph.tau
        files = self.solution.manifest["fit"]
        points = dataset.frame.points(z)
        reach = dataset.largest + tau * dataset.frame.scale
        # Points beyond that have no neighbors, and their squares may overflow.
        close = (points.sq_norm.double().sqrt() <= reach * (1.0 + 1e-5)).nonzero()
        close = close.view(-1)
        job = _QueryJob(dataset, self.solution.store, tau, z[close], files)
        tasks = []
        if len(close):
            left, search = job.left_and_search()
            mask = search.reachable(box_of(left.w), dataset.boxes())
            tasks = mask.nonzero().view(-1).split(_BLOCKS)
        lists = [task.tolist() for task in tasks]
        done = as_engine(self._engine).run(partial(_search, job), lists, "new samples")
        parts = [_none(z, len(self.solution.columns)), *(part for _, part in done)]
        edges = _Edges(*(torch.cat(part) for part in zip(*parts, strict=True)))
        order = (edges.row * dataset.num_samples + edges.col).argsort()
        edges = _Edges(*(part[order] for part in edges))
        return edges._replace(row=close[edges.row])


class _Edges(NamedTuple):
    """Edges from new samples to samples of the dataset."""

    row: Tensor  # [P], new sample
    col: Tensor  # [P], sample in k-d order
    sq: Tensor  # [P], squared distance
    deg: Tensor  # [P], degree of the sample
    scaled_deg: Tensor  # [P], the same after normalisation, if it is needed
    f: Tensor  # [P, C], output of the sample


def _none(z: Tensor, num_columns: int) -> _Edges:
    """No edges."""
    empty = torch.empty(0, dtype=torch.long)
    nothing = torch.empty(0, dtype=torch.float64)
    f = torch.empty(0, num_columns, dtype=torch.float64)
    return _Edges(empty, empty, z.new_empty(0), nothing, nothing, f)


@dataclass(frozen=True, eq=False)
class _QueryJob:
    """Data that all tasks share."""

    dataset: ShardedDataset
    store: Store
    tau: float
    z: Tensor  # [M, D]
    files: list[dict[str, Any]]

    def left_and_search(self) -> tuple[Block, BlockSearch]:
        """New samples as a block, and the search for their neighbors."""
        frame = self.dataset.frame
        points = frame.points(self.z)
        largest = max(self.dataset.largest, largest_norm(points.sq_norm))
        width = width_for(frame, self.dataset.sample()[0], self.tau)
        w = frame.bounds(points)
        return Block(w, 1, None, lambda: points), BlockSearch(
            frame, self.tau, largest, width
        )


@without_autocast()
def _search(job: _QueryJob, blocks: list[int]) -> _Edges:
    """Edges to the samples of some blocks."""
    whole, search = job.left_and_search()
    # Neighbors together, so that boxes of tiles are small.
    order, _ = in_compact_order(whole.w, None)
    points = job.dataset.frame.points(job.z[order])
    left = Block(whole.w[order], 1, None, lambda: points)
    tensor = job.store.tensor
    width = tensor(job.files[0]["f"]).size(1)
    parts = [_none(job.z, width)]
    for block in blocks:
        files, start = job.files[block], int(job.dataset.starts[block])
        for i, j, sq in search.across(left, job.dataset.block(block)):
            deg = tensor(files["deg"])[j]
            scaled = tensor(files.get("scaled_deg", files["deg"]))[j]
            f = tensor(files["f"])[j].double()
            parts.append(_Edges(order[i], j + start, sq, deg, scaled, f))
    return _Edges(*(torch.cat(part) for part in zip(*parts, strict=True)))
