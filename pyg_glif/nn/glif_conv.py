"""Layer that smooths node signals."""

import math
import sys
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from pyg_glif._utils.validation import check_scalar
from pyg_glif.functional import glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link
from pyg_glif.methods import smooth_balanced
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, Solver
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
            see :func:`~pyg_glif.glif_smooth`. (default: :obj:`False`)

    Shapes:
        - **input:** signals :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch, groups and standard deviations :math:`(N)`
        - **output:** signals like the input

    ``edge_index`` may also be an ``EdgeIndex``, a ``torch.sparse`` matrix, a
    ``torch_sparse.SparseTensor`` or a :class:`~pyg_glif.laplacian.LaplacianOperator`.
    The graph must hold both directions of every edge. An edge mask of PyG's
    :class:`~torch_geometric.explain.Explainer` scales the weights, the mean of the two
    directions, if it is a mask of these edges; in a network with two graphs the mask of
    the other one does not change them. Gradients reach ``x``, ``edge_weight`` and
    ``lam`` at the cost of one more solve. Raises
    :class:`~pyg_glif.errors.ConvergenceError` if ``solver`` gives up. Under
    :func:`torch.compile` the layer is a break in the graph; ``fullgraph=True`` and
    :func:`torch.export.export` fail on it.

    Example:
        >>> edge_index, weight = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
        >>> GLIFConv(lam=1.0)(torch.tensor([[0.0], [3.0]]), edge_index, weight)
        tensor([[1.],
                [2.]])
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
    ) -> None:
        # A 'MessagePassing' so that explainers find the layer and hand it their masks.
        # Messages are not passed: the solver multiplies by one sparse matrix.
        super().__init__(aggr="add")
        self.initial_lam = check_scalar(
            "lam", lam, minimum=0.0, above=0.0 if learn_lam else None
        )
        Smoother(lam, normalization=normalization, link=link, solver=solver)
        self.normalization, self.link = normalization, link
        self.solver = Auto() if solver is None else solver
        self.cached, self.balance = cached, balance
        self.log_lam = torch.nn.Parameter(torch.empty(())) if learn_lam else None
        self._cache: _Cache | None = None
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

    # The solver branches on values (has it converged?), which cannot be traced: a
    # compiled network calls this layer as it is.
    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        groups: Tensor | None = None,
        y_std: Tensor | None = None,
    ) -> Tensor:
        """Smooths ``x`` over the graph, or over each graph of a batch.

        ``y_std`` are standard deviations of the signals, as in
        :func:`~pyg_glif.glif_smooth`.
        """
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

    def _laplacian(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        batch: Tensor | None,
    ) -> LaplacianOperator:
        """The Laplacian of the graph, from the cache if the graph is unchanged."""
        if self.explain:
            edge_weight = self._masked_weight(edge_index, edge_weight)
        source = _source(edge_index, edge_weight, batch) if self.cached else None
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
        self._cache = _Cache(lap, source) if source else None
        return lap

    def _masked_weight(
        self, edge_index: Any, edge_weight: Tensor | None
    ) -> Tensor | None:
        """Weights under the mask of :class:`torch_geometric.explain.Explainer`.

        A mask of other edges, on which the rest of the network passes messages, leaves
        the weights as they are.
        """
        mask: Tensor = self._edge_mask
        edges = torch.as_tensor(edge_index)
        masked = edges if self._masked_edges is None else self._masked_edges
        if edges.layout != torch.strided or edges.shape != (2, len(mask)):
            return edge_weight
        if edges is not masked and not torch.equal(edges, torch.as_tensor(masked)):
            return edge_weight
        mask = mask.sigmoid() if self._apply_sigmoid else mask
        mask = _mean_of_directions(mask, edges)
        return mask if edge_weight is None else mask * edge_weight

    def __repr__(self) -> str:
        lam = self.initial_lam if self.log_lam is None else self.log_lam.exp().item()
        parts = [f"lam={lam:g}", f"normalization={self.normalization!r}"]
        if self.link is not None:
            parts.append(f"link={self.link}")
        if self.log_lam is not None:
            parts.append("learn_lam=True")
        if self.balance:
            parts.append("balance=True")
        return f"{type(self).__name__}({', '.join(parts)})"


class _Cache(NamedTuple):
    """A prepared graph and the tensors it was prepared from, with their versions."""

    lap: LaplacianOperator
    source: "_Source"

    def is_of(self, source: "_Source", num_nodes: int) -> bool:
        """Whether these are the same tensors, not modified since."""
        if len(source) != len(self.source) or num_nodes != self.lap.num_nodes:
            return False
        pairs = zip(source, self.source, strict=True)
        return all(new[0] is old[0] and new[1] == old[1] for new, old in pairs)


_Source = list[tuple[Tensor | None, int]]


def _source(*graph: Any) -> _Source | None:
    """The tensors a graph consists of, each with its number of modifications.

    :obj:`None` if the graph must not be cached: a gradient belongs to one forward
    pass, and inference tensors do not count modifications.
    """
    source: _Source = []
    for part in graph:
        # A SparseTensor is a bundle of tensors; everything else is one or None.
        single = part is None or isinstance(part, Tensor)
        for tensor in [part] if single else part.coo():
            if tensor is None:
                source.append((None, 0))
            elif tensor.requires_grad or tensor.is_inference():
                return None
            else:
                source.append((tensor, tensor._version))
    return source


def _mean_of_directions(value: Tensor, edge_index: Tensor) -> Tensor:  # [E] -> [E]
    """Gives both directions of every edge the mean of their values."""
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    row, col = edge_index[0], edge_index[1]
    forth = torch.argsort(row * num_nodes + col, stable=True)
    back = torch.argsort(col * num_nodes + row, stable=True)
    reverse = torch.empty_like(forth)
    reverse[back] = forth
    return 0.5 * (value + value[reverse])
