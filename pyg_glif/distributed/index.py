"""New people beside people in blocks, whose outputs stay as they are."""

from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, Literal, NamedTuple, cast, overload

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
from pyg_glif.laplacian import LaplacianOperator, entries_beside
from pyg_glif.links import Link
from pyg_glif.registry import build as build_kind
from pyg_glif.smoothing import Smoother
from pyg_glif.typing import Normalization

_BLOCKS = 16  # that one task compares newcomers with


class ShardedIndex:
    r"""Corrects newcomers against people in blocks.

    One coordinate update for each newcomer, as
    :meth:`~pyg_glif.GLIFPostProcessor.transform` does it: the outputs of the people
    stay as they are, and newcomers do not see each other.

    Args:
        solution (ShardedSolution): What :func:`~pyg_glif.distributed.smooth` made.
        graph (ShardedGraph, optional): The graph it was made with.
            (default: as the solution says)
        engine (Engine or str, optional): Where the work is done: ``"process"``,
            ``"ray"`` or an engine. (default: Ray if this process is connected to it,
            else this process)

    Example:
        >>> import tempfile, numpy as np, torch
        >>> from pyg_glif.distributed import ShardedDataset, radius_graph, smooth
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/rows.npy", np.array([[0.0], [1.0], [3.0]], "float32"))
        >>> np.save(f"{folder}/y.npy", np.array([0.0, 3.0, 5.0], "float32"))
        >>> people = ShardedDataset.build(f"{folder}/people", f"{folder}/rows.npy")
        >>> graph = radius_graph(people, tau=1.0, out=f"{folder}/graph")
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
        if graph.people.manifest["batch"] is not None:
            msg = "'solution' must be of people in one graph to correct newcomers"
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
        people = self.graph.people.num_people
        return f"{type(self).__name__}(num_people={people}, tau={self.graph.tau:g})"

    @overload
    def correct(
        self,
        x_new: Tensor,
        y_hat_new: Tensor,
        *,
        return_counts: Literal[False] = ...,
        progress: bool | None = ...,
    ) -> Tensor: ...

    @overload
    def correct(
        self,
        x_new: Tensor,
        y_hat_new: Tensor,
        *,
        return_counts: Literal[True],
        progress: bool | None = ...,
    ) -> tuple[Tensor, Tensor]: ...

    @without_autocast()
    def correct(
        self,
        x_new: Tensor,
        y_hat_new: Tensor,
        *,
        return_counts: bool = False,
        progress: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Fair outputs of newcomers.

        Args:
            x_new (torch.Tensor): Their features, as in the people's rows.
            y_hat_new (torch.Tensor): The model's outputs for them.
            return_counts (bool): Whether to return how many neighbors each has, too.
                (default: :obj:`False`)
            progress (bool, optional): Whether to show a progress bar.
                (default: on a terminal)

        Shapes:
            - **input:** features :math:`(M, F)`, outputs :math:`(M)` or :math:`(M, C)`
            - **output:** outputs as before, counts :math:`(M)`
        """
        people, manifest = self.graph.people, self.solution.manifest
        x = check_features("x_new", x_new, people.distance).detach()
        check_same_rows("y_hat_new", y_hat_new, "x_new", x)
        check_finite("y_hat_new", y_hat_new)
        wanted = people.manifest["num_inputs"]
        if x.size(1) != wanted:
            msg = f"'x_new' must have {wanted} features (got {x.size(1)})"
            raise ValueError(msg)
        y = y_hat_new.reshape(len(y_hat_new), -1)
        if y.size(1) != len(self.solution.columns):
            msg = f"'y_hat_new' must have {len(self.solution.columns)} columns"
            raise ValueError(f"{msg} (got {y.size(1)})")
        kind = manifest["link"]
        link: Link | None = None if kind is None else build_kind("link", kind)
        z = people.distance.embed(x.to(people.dtype)).detach()
        check_finite("distance.embed(x_new)", z)
        found = self._found(z if z.size(1) else z.new_zeros(len(z), 1), progress)
        weight = edge_weights(found.sq, manifest["theta"]).double()
        known = _Known(manifest["normalization"], found.deg, found.scaled_deg)
        col = torch.arange(len(found.row))
        none = torch.empty(0, dtype=torch.long)
        inner = (none, none, weight.new_empty(0))
        diagonal, value, _ = entries_beside(
            cast(LaplacianOperator, known), (found.row, col, weight), inner, len(x)
        )
        pull = torch.zeros(y.shape, dtype=torch.float64).index_add(
            0, found.row, value.unsqueeze(1) * found.f.double()
        )
        deg = torch.zeros(len(x), dtype=torch.float64).index_add(0, found.row, weight)
        out = Smoother(manifest["lam"], link=link).update(
            y,
            pull,
            diagonal,
            lam_scale=manifest["solution"]["lam_scale"] or 1.0,
            isolated=deg == 0,
        )
        out = out.reshape(y_hat_new.shape)
        if not return_counts:
            return out
        return out, torch.bincount(found.row, minlength=len(x))

    def _found(self, z: Tensor, progress: bool | None) -> "_Ties":
        """Ties of newcomers to people, sorted by newcomer and person."""
        people, tau = self.graph.people, self.graph.tau
        files = self.solution.manifest["fit"]
        points = people.frame.points(z)
        reach = people.largest + tau * people.frame.scale
        # Beyond that nobody is within the radius, and squares may overflow.
        close = (points.sq_norm.double().sqrt() <= reach * (1.0 + 1e-5)).nonzero()
        close = close.view(-1)
        job = _Job(people, self.solution.store, tau, z[close], files)
        tasks = []
        if len(close):
            left, search = job.left_and_search()
            near = search.reachable(box_of(left.w), people.boxes()).nonzero().view(-1)
            tasks = near.split(_BLOCKS)
        runner = as_engine(self._engine)
        parts = [
            part
            for _, part in runner.run(
                partial(_ties, job),
                [task.tolist() for task in tasks],
                "newcomers",
                progress,
            )
        ]
        parts.append(_none(z, len(self.solution.columns)))
        ties = _Ties(*(torch.cat(part) for part in zip(*parts, strict=True)))
        order = (ties.row * people.num_people + ties.col).argsort()
        ties = _Ties(*(part[order] for part in ties))
        return ties._replace(row=close[ties.row])


class _Ties(NamedTuple):
    """Pairs of a newcomer and a person."""

    row: Tensor  # [P], newcomer
    col: Tensor  # [P], person in k-d order
    sq: Tensor  # [P], squared distance
    deg: Tensor  # [P], degree of the person
    scaled_deg: Tensor  # [P], the same after normalisation, if it is needed
    f: Tensor  # [P, C], the person's output


def _none(z: Tensor, num_columns: int) -> _Ties:
    """No ties."""
    empty = torch.empty(0, dtype=torch.long)
    nothing = torch.empty(0, dtype=torch.float64)
    f = torch.empty(0, num_columns, dtype=torch.float64)
    return _Ties(empty, empty, z.new_empty(0), nothing, nothing, f)


@dataclass(frozen=True)
class _Known:
    """Degrees of the people at the ends of ties."""

    normalization: Normalization
    deg: Tensor
    scaled_deg: Tensor


@dataclass(frozen=True, eq=False)
class _Job:
    """What all tasks have in common."""

    people: ShardedDataset
    store: Store
    tau: float
    z: Tensor  # [M, D]
    files: list[dict[str, Any]]

    def left_and_search(self) -> tuple[Block, BlockSearch]:
        """Newcomers as a block, and the search for their neighbors."""
        frame = self.people.frame
        points = frame.points(self.z)
        largest = max(self.people.largest, largest_norm(points.sq_norm))
        width = width_for(frame, self.people.sample()[0], self.tau)
        w = frame.bounds(points)
        return Block(w, 1, None, lambda: points), BlockSearch(
            frame, self.tau, largest, width
        )


@without_autocast()
def _ties(job: _Job, blocks: list[int]) -> _Ties:
    """Ties to the people of some blocks."""
    whole, search = job.left_and_search()
    # Neighbors together, so that boxes of tiles are small.
    order, _ = in_compact_order(whole.w, None)
    points = job.people.frame.points(job.z[order])
    left = Block(whole.w[order], 1, None, lambda: points)
    fit = job.store.child("fit")
    width = fit.load(job.files[0]["f"]).shape[1]
    parts = [_none(job.z, width)]
    for block in blocks:
        files, start = job.files[block], int(job.people.starts[block])
        for i, j, sq in search.across(left, job.people.block(block)):
            deg = fit.tensor(files["deg"])[j]
            scaled = deg
            if "scaled_deg" in files:
                scaled = fit.tensor(files["scaled_deg"])[j]
            f = fit.tensor(files["f"])[j].double()
            parts.append(_Ties(order[i], j + start, sq, deg, scaled, f))
    return _Ties(*(torch.cat(part) for part in zip(*parts, strict=True)))
