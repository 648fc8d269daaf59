"""Transform that builds the radius graph of a fair distance."""

from typing import ClassVar

from torch_geometric.data.datapipes import functional_transform

from pyg_glif._utils.validation import check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.neighbors import Radius
from pyg_glif.transforms._fair_graph import FairGraph


@functional_transform("glif_fair_radius_graph")
class FairRadiusGraph(FairGraph):
    r"""Connects nodes by fair distance (:obj:`glif_fair_radius_graph`).

    .. math::
        W_{ij} = \begin{cases}
        \exp(-\theta \, d_{ij}^2) & \text{if } d_{ij} \le \tau, \ i \ne j \\
        0 & \text{otherwise}
        \end{cases}

    Writes :obj:`data.edge_index` and :obj:`data.edge_weight`: every pair within
    :math:`\tau`, in both directions, however many neighbors a node has.

    Args:
        tau (float): Largest distance :math:`\tau` of an edge, inclusive. A distance,
            not a squared one.
        distance (FairDistance, optional): Fair distance.
            (default: :obj:`Euclidean()`)
        theta (float, optional): Decay :math:`\theta` of the weights; zero gives
            weight 1 to every edge. (default: a fixed number over :math:`\tau^2`, see
            :func:`~pyg_glif.graph.decay_of`)
        attr (str, optional): Name of the node features the distance is taken on.
            (default: :obj:`"x"`)
        overwrite (bool, optional): Whether to replace a graph that is there, with all
            that describes it: attributes that start with :obj:`edge_` (but not
            :obj:`edge_label` and :obj:`edge_label_index`), :obj:`adj`, :obj:`adj_t`
            and :obj:`e_id`. Otherwise their presence is an error.
            (default: :obj:`False`)
        progress (bool, optional): Whether to show a progress bar.
            (default: on a terminal)
        name (str, optional): Writes a second graph beside the one that a network
            passes messages on: ``name="fair"`` writes :obj:`fair_edge_index` and
            :obj:`fair_edge_weight`, which are batched like PyG's own. On a
            :class:`~torch_geometric.data.HeteroData` the graph is always a relation,
            ``(node_type, "fair", node_type)`` unless it is named otherwise.
            (default: :obj:`None`)
        node_type (str, optional): Type of the nodes of a
            :class:`~torch_geometric.data.HeteroData` that are joined.
            (default: the only one that has ``attr``)

    On a :class:`~torch_geometric.data.Batch`, or wherever there is a :obj:`batch`
    vector, two graphs never get an edge between them, and
    :meth:`~torch_geometric.data.Batch.to_data_list` returns each graph with its own
    edges. The weights carry no gradient; to learn a distance, use
    :func:`~pyg_glif.graph.edge_sq_dist`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.tensor([[0.0], [1.0], [5.0]]))
        >>> data = FairRadiusGraph(tau=1.0, theta=0.5)(data)
        >>> data.edge_index
        tensor([[0, 1],
                [1, 0]])
        >>> data.edge_weight
        tensor([0.6065, 0.6065])
    """

    shown: ClassVar = ("tau",)

    def __init__(
        self,
        tau: float,
        *,
        distance: FairDistance | None = None,
        theta: float | None = None,
        attr: str = "x",
        overwrite: bool = False,
        progress: bool | None = None,
        name: str | None = None,
        node_type: str | None = None,
    ) -> None:
        tau = check_scalar("tau", tau, minimum=0, allow_inf=True)
        distance = Euclidean() if distance is None else distance
        rule = Radius(tau, theta=theta, distance=distance)
        super().__init__(rule, attr, overwrite, progress, name, node_type)
