"""Layer that smooths node signals."""

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse, is_torch_sparse_tensor, spmm, to_edge_index

from pyg_glif._utils.sparse import csr_tensor
from pyg_glif._utils.validation import (
    check_batch,
    check_choice,
    check_count,
    check_edges,
    check_floating,
    check_length,
    check_rank,
    check_scalar,
    full_precision,
)
from pyg_glif.functional import glif_smooth, glif_solve
from pyg_glif.laplacian import LaplacianOperator, as_laplacian, message_entries
from pyg_glif.links import Link, dual_of, outputs_of
from pyg_glif.methods import smooth_balanced
from pyg_glif.nn._graph_cache import GraphCache, mean_of_directions, source_of
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, CoordinateDescent, Solution, Solver, SolveStatus
from pyg_glif.solvers.base import Attempt
from pyg_glif.solvers.system import System
from pyg_glif.typing import Normalization


class GLIFConv(MessagePassing):  # type: ignore[misc]
    r"""Smooths node signals over a similarity graph.

    .. math::
        \mathbf{F} = (\mathbf{I} + \lambda \mathbf{L})^{-1} \mathbf{X}

    This is `GLIF <https://arxiv.org/abs/2110.13796>`_ as a layer. Put it behind any
    network whose outputs should treat similar nodes alike. For ``normalization=None``
    and ``"density"`` every output is an average of inputs. For ``"nrw"`` and
    ``"density"`` :math:`\lambda` is multiplied by the average degree.

    Args:
        lam (float, optional): Smoothing strength :math:`\lambda \ge 0`. Zero returns
            the input. (default: :obj:`1.0`)
        normalization (str, optional): Form of :math:`\mathbf{L}`: :obj:`None`,
            :obj:`"nrw"` or :obj:`"density"`. (default: :obj:`None`)
        solver (Solver, optional): How the system is solved. (default: :obj:`Auto()`)
        link (Link, optional): Output space in which to average; see
            :mod:`pyg_glif.links`. (default: :obj:`None`, averages as they are)
        learn_lam (bool, optional): If :obj:`True`, :math:`\lambda` is a parameter,
            stored as its logarithm and therefore always positive.
            (default: :obj:`False`)
        cached (bool, optional): If :obj:`True`, the graph is checked and sorted once
            and kept until another graph is passed, or a tensor of it is modified
            (torch counts modifications; one through a NumPy array that shares the
            memory goes unseen). Weights that need a gradient are never cached.
            (default: :obj:`False`)
        balance (bool, optional): If :obj:`True`, ``forward`` is given ``groups``, and
            the strength is shared out so that all of them are treated equally alike,
            see :func:`~pyg_glif.methods.smooth_balanced`. (default: :obj:`False`)
        num_steps (int, optional): Number :math:`K` of steps of eq. 3.7 of the paper, in
            which all nodes move at the same time: :math:`K` calls of ``propagate``.
            (default: :obj:`None`, the exact solution)
        accelerated (bool, optional): If :obj:`True`, the steps are those of Chebyshev's
            semi-iteration, of which about the square root of the number is needed.
            Outputs on the way are then not averages of inputs. Not for ``"nrw"``, whose
            spectrum has no such bound. (default: :obj:`False`)
        **kwargs (optional): Arguments of
            :class:`~torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:** signals :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch, groups and standard deviations :math:`(N)`
        - **output:** signals like the input

    **Exact or in steps.** The exact solution is for outputs that are used: it is
    certified, and its gradients cost one more solve. Steps are for layers inside a
    network: nothing about the graph is checked, each is one ``propagate`` in the type
    of ``x``, gradients come from unrolling, and the layer can be traced
    (:func:`torch.compile` with ``fullgraph=True``, :func:`torch.export.export`).
    :meth:`error_bound` bounds what steps leave undone before they are taken,
    :meth:`solve` afterwards. With ``normalization=None``, :math:`K` plain steps on
    edges sampled over :math:`K` hops, all neighbors taken, are the steps on the whole
    graph.

    **New nodes.** A pair ``(f, x)`` of signals, with edges from rows of ``f`` to rows
    of ``x``, takes the inductive step: nodes of ``f`` are smoothed already and keep
    their signals. It is one ``propagate`` in either mode, and for
    ``normalization=None`` only.

    ``edge_index`` may also be an ``EdgeIndex``, a ``torch.sparse`` matrix, a
    ``torch_sparse.SparseTensor`` or a :class:`~pyg_glif.laplacian.LaplacianOperator`.
    The exact solution needs both directions of every edge. An edge mask of PyG's
    :class:`~torch_geometric.explain.Explainer` scales the weights (for the exact
    solution by the mean of the two directions) if it is a mask of these edges; in a
    network with two graphs the mask of the other one does not change them. Gradients
    reach ``x``, ``edge_weight`` and ``lam``; steps over a ``torch.sparse`` matrix pass
    none to its values. The exact solution raises
    :class:`~pyg_glif.errors.ConvergenceError` if ``solver`` gives up, and is a break in
    the graph under :func:`torch.compile`; ``fullgraph=True`` and
    :func:`torch.export.export` fail on it.

    Example:
        >>> edge_index, weight = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
        >>> GLIFConv(lam=1.0)(torch.tensor([[0.0], [3.0]]), edge_index, weight)
        tensor([[1.],
                [2.]])
        >>> GLIFConv(num_steps=2)(torch.tensor([[0.0], [3.0]]), edge_index, weight)
        tensor([[0.7500],
                [2.2500]])
    """

    def __init__(
        self,
        lam: float = 1.0,
        normalization: Normalization = None,
        solver: Solver | None = None,
        link: Link | None = None,
        learn_lam: bool = False,
        cached: bool = False,
        balance: bool = False,
        num_steps: int | None = None,
        accelerated: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(aggr="add", **kwargs)
        self.initial_lam = check_scalar(
            "lam", lam, minimum=0.0, above=0.0 if learn_lam else None
        )
        Smoother(lam, normalization=normalization, link=link, solver=solver)
        self.normalization, self.link = normalization, link
        self.num_steps, self.accelerated = num_steps, accelerated
        if num_steps is not None:
            check_count("num_steps", num_steps)
            others = {"solver": solver, "cached": cached, "balance": balance}
            for name, value in others.items():
                if value:
                    msg = f"'{name}' must be left out with 'num_steps' (got {value})"
                    raise ValueError(f"{msg}. It belongs to the exact solution")
        if accelerated:
            check_choice("normalization", normalization, (None, "density"))
            if num_steps is None:
                msg = "'accelerated' must be False without 'num_steps' (got True)"
                raise ValueError(f"{msg}. Give the number of steps")
        self.solver = Auto() if solver is None else solver
        self.cached, self.balance = cached, balance
        self.log_lam = torch.nn.Parameter(torch.empty(())) if learn_lam else None
        self._cache: GraphCache | None = None
        self.reset_parameters()

    @property
    def lam(self) -> float | Tensor:
        """The current strength, a number, or a tensor if it is learned."""
        return self.initial_lam if self.log_lam is None else self.log_lam.exp()

    def reset_parameters(self) -> None:
        """Returns to the initial ``lam`` and forgets the cached graph."""
        super().reset_parameters()
        self._cache = None
        if self.log_lam is not None:
            torch.nn.init.constant_(self.log_lam, math.log(self.initial_lam))

    def __getstate__(self) -> dict[str, Any]:
        """What copies and saved layers hold: the layer, not the graph it has seen."""
        # 'nn.Module' has no '__getstate__' of its own before Python 3.11.
        return {**self.__dict__, "_cache": None, "_masked_edges": None}

    def __setattr__(self, name: str, value: Any) -> None:
        """Notes the edges that an explainer masks, with the mask it sets."""
        if name == "_loop_mask":
            # 'set_masks' of PyG hands one mask to every layer of a network, whichever
            # graph that works on. It has the edges, and leaves no reference to them.
            self._masked_edges = sys._getframe(1).f_locals.get("edge_index")
        super().__setattr__(name, value)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        groups: Tensor | None = None,
        y_std: Tensor | None = None,
    ) -> Tensor:
        """Smooths ``x`` over the graph, or over each graph of a batch.

        ``y_std`` are standard deviations of the signals, as in
        :func:`~pyg_glif.glif_smooth`; ``groups`` are for ``balance=True``. Both are for
        the exact solution.
        """
        if isinstance(x, Tensor) and self.num_steps is None:
            out: Tensor = self._exact(x, edge_index, edge_weight, batch, groups, y_std)
            return out
        for name, value in (("groups", groups), ("y_std", y_std)):
            if value is not None:
                raise ValueError(f"'{name}' must be None but for the exact solution")
        if not isinstance(x, Tensor):
            if batch is not None:
                raise ValueError("'batch' must be None for a pair of signals")
            return self._inductive(x[0], x[1], edge_index, edge_weight)
        rows = self._rows(x, edge_index, edge_weight, batch)
        return self._outputs(self._steps(self._dual(x), rows), x, rows)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """The signal of a neighbor times the entry of the Laplacian."""
        return edge_weight.view(-1, 1) * x_j

    def message_and_aggregate(self, adj_t: Any, x: Tensor) -> Tensor:
        """The sum of messages as one sparse product."""
        out: Tensor = spmm(adj_t, x, reduce="sum")
        return out

    # PyG prints the annotations of this method, and knows no unions with '|'.
    def explain_message(self, inputs: Tensor, dim_size: Any) -> Tensor:
        """Messages as they are: a mask has scaled their weights, and so the degrees."""
        return inputs

    @torch.no_grad()
    def solve(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Solution:
        """The outputs with status, residual and a bound on their error.

        After steps the status is ``EPOCHS_DONE``, and the bound that of the residual,
        rounding included; ``INDEFINITE`` with an infinite bound, and a warning, if
        ``"nrw"`` leaves the objective without a minimum. No gradients.
        """
        if self.balance:
            raise ValueError("'balance' must be False. Use 'smooth_balanced'")
        options: dict[str, Any] = {"lam": self.lam, "normalization": self.normalization}
        if self.num_steps is None:
            options |= {"link": self.link, "solver": self.solver, "batch": batch}
            return glif_solve(x, edge_index, edge_weight, **options)
        eta = self._dual(x)
        rows = self._rows(x, edge_index, edge_weight, batch)
        value = self._steps(eta, rows)
        solver = _StepsTaken(epochs=self.num_steps, value=value.double(), throw=False)
        lap = as_laplacian(edge_index, edge_weight, self.normalization, batch, x=x)
        solution = Smoother(solver=solver, **options).solve_dual(lap, eta)
        return replace(solution, value=self._outputs(value, x, rows))

    @torch.no_grad()
    def error_bound(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:  # [C]
        r"""Bound on the error of any output after the steps, before one is taken.

        It is :math:`\rho^K (\max x - \min x)` for plain steps and
        :math:`\|x - \bar x\| / (\sqrt{1 - \rho}\, T_K(1 / \rho))` for accelerated
        ones, column by column, with Chebyshev's polynomial :math:`T_K`; rounding comes
        on top. For ``"nrw"`` there is none. With a link it holds in dual coordinates.
        """
        check_choice("normalization", self.normalization, (None, "density"))
        if self.num_steps is None:
            msg = "'num_steps' must be given for a bound on steps (got None)"
            raise ValueError(f"{msg}. 'solve' has the bound of the exact solution")
        y = self._dual(x).double()
        pull = self._rows(x, edge_index, edge_weight, batch).pull.double()
        if y.numel() == 0:
            return y.new_zeros(y.size(1))
        rho = (pull / (1.0 + pull)).max()
        bound: Tensor = rho.pow(self.num_steps) * (y.amax(0) - y.amin(0))
        if self.accelerated:
            growth = torch.cosh(self.num_steps * torch.acosh(1.0 / rho))
            norm = torch.linalg.vector_norm(y - y.mean(0), dim=0)
            bound = norm / ((1.0 - rho).sqrt() * growth)
        return bound

    # The solver branches on values (has it converged?), which cannot be traced: a
    # compiled network calls it as it is.
    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def _exact(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        groups: Tensor | None,
        y_std: Tensor | None,
    ) -> Tensor:
        """The solution of the system."""
        if not isinstance(edge_index, LaplacianOperator):
            edge_index = self._laplacian(x, edge_index, edge_weight, batch)
            edge_weight = batch = None
        options: dict[str, Any] = {
            "lam": self.lam,
            "normalization": self.normalization,
            "link": self.link,
            "solver": self.solver,
            "batch": batch,
        }
        if not self.balance:
            return glif_smooth(x, edge_index, edge_weight, y_std=y_std, **options)
        if groups is None:
            raise ValueError("'groups' must be given for balance=True (got None)")
        if y_std is not None:
            raise ValueError("'y_std' must be None with balance=True")
        options["groups"] = groups
        return smooth_balanced(x, edge_index, edge_weight, **options).value

    def _steps(self, y: Tensor, rows: "_Rows") -> Tensor:  # [N, C]
        """Signals after all steps, in dual coordinates."""
        own = (1.0 + rows.pull).reciprocal().unsqueeze(1)
        base, gain = own * y, own * rows.strength.reshape(-1, 1)
        last, f, omega = y, y, torch.ones_like(own[:1])
        for step in range(self.num_steps or 0):
            sums = self.propagate(rows.graph, x=f, edge_weight=rows.value)
            new = torch.addcmul(base, gain, sums)
            if self.accelerated and step:
                quarter = rows.squared_rate / 4.0
                omega = (1.0 - (2.0 if step == 1 else omega) * quarter).reciprocal()
                new = torch.lerp(last, new, omega)
            last, f = f, new
        return f

    def _inductive(
        self, f: Tensor, x: Tensor, edge_index: Any, edge_weight: Tensor | None
    ) -> Tensor:
        """New nodes beside nodes that keep their signals."""
        check_choice("normalization", self.normalization, (None,))
        if f.shape[1:] != x.shape[1:]:
            shapes = f"{tuple(f.shape)} and {tuple(x.shape)}"
            raise ValueError(f"'x' must be two signals of equal width (got {shapes})")
        rows = self._rows(x, edge_index, edge_weight, None, bipartite=True)
        known, eta, size = self._dual(f), self._dual(x), (f.size(0), x.size(0))
        sums = self.propagate(rows.graph, x=known, edge_weight=rows.value, size=size)
        eta = torch.addcmul(eta, rows.strength, sums)
        return self._outputs(eta / (1.0 + rows.pull).unsqueeze(1), x, rows)

    def _rows(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        bipartite: bool = False,
    ) -> "_Rows":
        """The graph as messages to rows of ``x`` pass along it."""
        dtype, num_nodes = full_precision(x).dtype, x.size(0)
        if isinstance(edge_index, LaplacianOperator):
            lap = as_laplacian(edge_index, edge_weight, self.normalization, batch, x=x)
            edge_index = torch.stack([lap.pattern.col, lap.pattern.row])
            edge_weight, batch = lap.weight, lap.batch
        if batch is not None and not torch.compiler.is_compiling():
            batch = check_batch(batch, num_nodes)
        if is_torch_sparse_tensor(edge_index):
            edge_index = edge_index.to_sparse_csr()
        source, target, weight = self._messages(edge_index, edge_weight, dtype)
        if not bipartite:
            weight = torch.where(source == target, 0.0, weight)  # as everywhere
        diagonal, value, scale = message_entries(
            target, source, weight, num_nodes, self.normalization, batch
        )
        lam = self.lam
        strength = (lam.to(dtype) if isinstance(lam, Tensor) else lam) * scale
        pull = strength * diagonal
        value, strength, pull = (part.to(x.dtype) for part in (value, strength, pull))
        rate = (pull / (1.0 + pull)).square()
        if self.accelerated and batch is not None:  # the slowest node of each graph
            most = torch.zeros_like(rate).scatter_reduce(0, batch, rate, "amax")
            rate = most[batch].unsqueeze(1)
        elif self.accelerated:
            rate = rate.max() if num_nodes else rate.sum()
        if not is_sparse(edge_index):
            return _Rows(edge_index, value, strength, pull, rate)
        if is_torch_sparse_tensor(edge_index):
            ptr, col = edge_index.crow_indices(), edge_index.col_indices()
            matrix = csr_tensor(ptr, col, value, tuple(edge_index.shape))
        else:
            matrix = edge_index.set_value(value, layout="coo")
        return _Rows(matrix, None, strength, pull, rate)

    def _messages(
        self, edge_index: Any, edge_weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:  # [E] each
        """Source, target and weight of every message, masked if that is wanted."""
        if is_sparse(edge_index):
            if edge_weight is not None:
                msg = "'edge_weight' must be None when 'edge_index' is a sparse matrix"
                raise ValueError(f"{msg}. Its values are the weights")
            (target, source), edge_weight = to_edge_index(edge_index)
        else:
            edges = check_edges(torch.as_tensor(edge_index))
            source, target = edges[0], edges[1]
            if self.flow == "target_to_source":
                source, target = target, source
            if edge_weight is not None:
                check_length("edge_weight", edge_weight, source.numel(), "edge")
            mask = self._mask(edge_index) if self.explain else None
            if mask is not None:
                edge_weight = mask if edge_weight is None else mask * edge_weight
        if edge_weight is None:
            edge_weight = torch.ones_like(source, dtype=dtype)
        return source, target, edge_weight.to(dtype)

    def _dual(self, x: Tensor) -> Tensor:  # [N] or [N, C] -> [N, C]
        """Coordinates in which signals are averaged, as a block of columns."""
        check_rank("x", x, 1, 2)
        check_floating("x", full_precision(x))
        eta = x if self.link is None else dual_of(self.link, full_precision(x))
        return eta.to(x.dtype).reshape(x.size(0), math.prod(x.shape[1:]))

    def _outputs(self, eta: Tensor, x: Tensor, rows: "_Rows") -> Tensor:
        """Signals like the input; those without a neighbor to the last digit."""
        eta = eta.reshape(x.shape)
        if self.link is None:
            return eta
        full = full_precision(x)
        isolated = rows.pull.detach() == 0.0
        return outputs_of(self.link, eta.to(full.dtype), full, isolated).to(x.dtype)

    def _laplacian(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
    ) -> LaplacianOperator:
        """The Laplacian of the graph, from the cache if the graph is unchanged."""
        mask = self._mask(edge_index) if self.explain else None
        if mask is not None:
            mask = mean_of_directions(mask, torch.as_tensor(edge_index))
            edge_weight = mask if edge_weight is None else mask * edge_weight
        source = source_of(edge_index, edge_weight, batch) if self.cached else None
        if source and self._cache and self._cache.is_of(source, x.size(0)):
            return self._cache.lap
        # What is cached in inference mode should still serve in training.
        with torch.inference_mode(False) if source else nullcontext():
            lap = LaplacianOperator(
                edge_index,
                edge_weight,
                normalization=self.normalization,
                num_nodes=x.size(0),
                batch=batch,
            )
            _ = lap.lam_scale  # lazy, and wanted by the gradient of 'lam'
        self._cache = GraphCache(lap, source) if source else None
        return lap

    def _mask(self, edge_index: Any) -> Tensor | None:  # [E]
        """The mask of :class:`torch_geometric.explain.Explainer` for these edges.

        There is none for a sparse matrix, and none if other edges are masked, on which
        the rest of the network passes messages.
        """
        mask: Tensor = self._edge_mask
        if is_sparse(edge_index) or edge_index.shape != (2, len(mask)):
            return None
        edges = torch.as_tensor(edge_index)
        masked = edges if self._masked_edges is None else self._masked_edges
        if edges is not masked and not torch.equal(edges, torch.as_tensor(masked)):
            return None
        return mask.sigmoid() if self._apply_sigmoid else mask

    def __repr__(self) -> str:
        lam = self.initial_lam if self.log_lam is None else self.log_lam.exp().item()
        parts = [f"lam={lam:g}", f"normalization={self.normalization!r}"]
        if self.link is not None:
            parts.append(f"link={self.link}")
        if self.log_lam is not None:
            parts.append("learn_lam=True")
        if self.balance:
            parts.append("balance=True")
        if self.num_steps is not None:
            parts.append(f"num_steps={self.num_steps}")
        if self.accelerated:
            parts.append("accelerated=True")
        return f"{type(self).__name__}({', '.join(parts)})"


class _Rows(NamedTuple):
    """What a step needs of a graph, in the type of the signal."""

    graph: Any  # edges, or a sparse matrix whose values are the entries
    value: Tensor | None  # [E], None for a matrix
    strength: Tensor  # lam times its scale, 0-d or [N] for a batch
    pull: Tensor  # [N], strength times the diagonal
    squared_rate: Tensor  # of the slowest node of a graph, if steps are accelerated


@dataclass(frozen=True, repr=False, kw_only=True)
class _StepsTaken(CoordinateDescent):
    """Coordinate descent that was done elsewhere, of all nodes at the same time."""

    value: Tensor

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """The outcome of the steps."""
        return Attempt(self.value, SolveStatus.EPOCHS_DONE, self.epochs)

    def __repr__(self) -> str:
        return f"GLIFConv(num_steps={self.epochs})"
