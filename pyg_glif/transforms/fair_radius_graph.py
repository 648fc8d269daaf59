"""The similarity graph of a fair distance, as a transform."""

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_glif._validate import check_kind, check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.graph import edge_weights, fair_radius_graph
from pyg_glif.transforms._storage import check_graph_target, node_rows, write_graph


@functional_transform("glif_fair_radius_graph")
class FairRadiusGraph(BaseTransform):  # type: ignore[misc]
    r"""Connects nodes by fair distance (:obj:`glif_fair_radius_graph`).

    .. math::
        W_{ij} = \begin{cases}
        \exp(-\theta \, d_{ij}^2) & \text{if } d_{ij} \le \tau, \ i \ne j \\
        0 & \text{otherwise}
        \end{cases}

    Writes :obj:`data.edge_index` and :obj:`data.edge_weight`: every pair within
    :math:`\tau`, in both directions, however many neighbours a node has.

    Args:
        tau (float): Largest distance :math:`\tau` of an edge, inclusive. A distance,
            not a squared one.
        distance (FairDistance, optional): Who is similar to whom.
            (default: :obj:`Euclidean()`)
        theta (float, optional): Decay :math:`\theta` of the weights; zero gives
            weight 1 to every edge. (default: :obj:`1e-4`)
        attr (str, optional): Name of the node features the distance is taken on.
            (default: :obj:`"x"`)
        overwrite (bool, optional): If :obj:`True`, a graph that is already there is
            replaced, and everything that describes it is removed: all attributes
            whose name starts with :obj:`edge_` (such as :obj:`edge_attr`, but not
            :obj:`edge_label` and :obj:`edge_label_index`), :obj:`adj`, :obj:`adj_t`
            and :obj:`e_id`. If :obj:`False`, their presence is an error.
            (default: :obj:`False`)
        memory_budget (int, optional): Bytes the search may use, see
            :func:`~pyg_glif.graph.fair_radius_graph`. (default: :obj:`None`)
        progress (bool, optional): Whether to show a progress bar.
            (default: on a terminal)

    On a :class:`~torch_geometric.data.Batch`, or wherever there is a :obj:`batch`
    vector, two graphs never get an edge between them, and
    :meth:`~torch_geometric.data.Batch.to_data_list` returns each graph with its own
    edges. The weights carry no gradient; to learn a distance, use
    :func:`~pyg_glif.graph.edge_sq_dist`.

    Example:
        >>> import torch
        >>> data = Data(x=torch.tensor([[0.0], [1.0], [5.0]]))
        >>> data = FairRadiusGraph(tau=1.0, theta=0.5)(data)
        >>> data.edge_index
        tensor([[0, 1],
                [1, 0]])
        >>> data.edge_weight
        tensor([0.6065, 0.6065])
    """

    def __init__(
        self,
        tau: float,
        *,
        distance: FairDistance | None = None,
        theta: float = 1e-4,
        attr: str = "x",
        overwrite: bool = False,
        memory_budget: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.tau = check_scalar("tau", tau, minimum=0, allow_inf=True)
        self.distance = Euclidean() if distance is None else distance
        check_kind("distance", self.distance, FairDistance)
        self.theta = check_scalar("theta", theta, minimum=0)
        self.attr = attr
        self.overwrite = overwrite
        self.memory_budget = memory_budget
        self.progress = progress

    def forward(self, data: Data) -> Data:
        """Returns ``data`` with the graph."""
        data = check_graph_target(data, self.overwrite)
        x = node_rows(data, self.attr)
        edge_index, sq_dist = fair_radius_graph(
            x,
            self.tau,
            distance=self.distance,
            batch=data.get("batch"),
            memory_budget=self.memory_budget,
            progress=self.progress,
        )
        edge_weight = edge_weights(sq_dist, self.theta).to(x.dtype)
        return write_graph(data, edge_index, edge_weight)

    def __repr__(self) -> str:
        name = self.__class__.__name__
        return f"{name}(tau={self.tau}, distance={self.distance}, theta={self.theta})"
