"""Transform that smooths stored outputs."""

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_glif._utils.validation import check_scalar
from pyg_glif.functional import glif_smooth
from pyg_glif.links import Link
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, Solver
from pyg_glif.transforms.storage import Nodes, check_graph_name, shown_place
from pyg_glif.typing import Normalization


@functional_transform("glif_smooth")
class GLIFSmooth(BaseTransform):  # type: ignore[misc]
    r"""Smooths the outputs stored on a graph (:obj:`glif_smooth`).

    .. math::
        \mathbf{F} = (\mathbf{I} + \lambda \mathbf{L})^{-1} \hat{\mathbf{Y}}

    Reads :obj:`data.y_hat` and the graph (:obj:`edge_index` with :obj:`edge_weight`, or
    :obj:`adj_t`), writes :obj:`data.y_fair`. Nothing else changes.

    Args:
        lam (float): Smoothing strength :math:`\lambda \ge 0`. Zero returns the input.
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): How the system is solved. (default: :obj:`Auto()`)
        link (Link, optional): Output space in which to average; see
            :mod:`pyg_glif.links`. (default: :obj:`None`, averages as they are)
        attr (str, optional): Name of the outputs. (default: :obj:`"y_hat"`)
        out (str, optional): Name under which the smoothed outputs are stored; an
            attribute of that name is replaced. (default: :obj:`"y_fair"`)
        name (str, optional): Name of a second graph, see
            :class:`~pyg_glif.FairRadiusGraph`. It must be given where there is a second
            graph with weights. (default: :obj:`None`)
        node_type (str, optional): Type of the nodes of a
            :class:`~torch_geometric.data.HeteroData`.
            (default: the only type that has ``attr``)

    On a :class:`~torch_geometric.data.Batch`, or wherever there is a :obj:`batch`
    vector, each graph is smoothed with its own average degree, as if it were
    the only one.

    Example:
        >>> import torch
        >>> data = Data(
        ...     y_hat=torch.tensor([0.0, 3.0]),
        ...     edge_index=torch.tensor([[0, 1], [1, 0]]),
        ... )
        >>> GLIFSmooth(lam=1.0)(data).y_fair
        tensor([1., 2.])
    """

    def __init__(
        self,
        lam: float,
        *,
        normalization: Normalization = None,
        solver: Solver | None = None,
        link: Link | None = None,
        attr: str = "y_hat",
        out: str = "y_fair",
        name: str | None = None,
        node_type: str | None = None,
    ) -> None:
        self.lam = check_scalar("lam", lam, minimum=0.0)
        # The settings are checked here, not when the first graph comes.
        Smoother(lam, normalization=normalization, link=link, solver=solver)
        self.normalization, self.link = normalization, link
        self.solver = Auto() if solver is None else solver
        self.attr = attr
        self.out = out
        self.name = check_graph_name(name)
        self.node_type = node_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """Returns ``data`` with the smoothed outputs."""
        nodes = Nodes.of(data, self.name, self.node_type, self.attr)
        y_hat = nodes.rows(self.attr)
        y_fair = glif_smooth(
            y_hat,
            *nodes.graph(),
            lam=self.lam,
            normalization=self.normalization,
            solver=self.solver,
            link=self.link,
            batch=nodes.batch,
        )
        nodes.write_rows(self.out, y_fair)
        return data

    def __repr__(self) -> str:
        link = "" if self.link is None else f", link={self.link}"
        settings = f"lam={self.lam}, normalization={self.normalization!r}{link}"
        place = shown_place(self.name, self.node_type)
        return f"{type(self).__name__}({settings}{place})"
