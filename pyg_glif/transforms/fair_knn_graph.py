"""Transform that builds the graph of the nearest nodes in a fair distance."""

from typing import ClassVar

from torch_geometric.data.datapipes import functional_transform

from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.neighbors import KNearest
from pyg_glif.transforms._fair_graph import FairGraph


@functional_transform("glif_fair_knn_graph")
class FairKNNGraph(FairGraph):
    r"""Connects nodes to those nearest in fair distance (:obj:`glif_fair_knn_graph`).

    Nodes :math:`i` and :math:`j` are joined if :math:`d_{ij} \le \max(s_i, s_j)` and
    :math:`d_{ij} \le \tau`, where :math:`s_i` is the distance of :math:`i` from its
    :math:`k`-th nearest other node; with ``mutual`` the smaller of the two counts.
    Writes :obj:`data.edge_index` and :obj:`data.edge_weight`, in both directions: the
    exact graph of :func:`~pyg_glif.fair_knn_graph`, ties at the :math:`k`-th distance
    included.

    Args:
        k (int): Number of nearest nodes.
        distance (FairDistance, optional): Fair distance.
            (default: :obj:`Euclidean()`)
        theta (float, optional): Decay of the weights. (default: a decay for each pair,
            by the larger of :math:`s_i` and :math:`s_j`, see
            :func:`~pyg_glif.graph.local_weights`)
        mutual (bool, optional): Whether each of two nodes must be among the nearest of
            the other. (default: :obj:`False`)
        tau (float, optional): Largest distance :math:`\tau` of an edge, inclusive:
            nodes further from all others stay isolated. (default: no limit)
        attr (str, optional): Name of the node features. This, and what follows, is as
            in :class:`~pyg_glif.transforms.FairRadiusGraph`. (default: :obj:`"x"`)
        overwrite (bool, optional): Whether to replace a graph. (default: :obj:`False`)
        progress (bool, optional): Whether to show a bar. (default: on a terminal)
        name (str, optional): Name of a second graph. (default: :obj:`None`)
        node_type (str, optional): Type of the nodes. (default: :obj:`None`)

    On a :class:`~torch_geometric.data.Batch`, or wherever there is a :obj:`batch`
    vector, the nearest are those of the same graph, all of them if they are fewer than
    :math:`k`. The weights carry no gradient.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.tensor([[0.0], [1.0], [3.0]]))
        >>> data = FairKNNGraph(k=1, theta=0.5)(data)
        >>> data.edge_index
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
        >>> data.edge_weight
        tensor([0.6065, 0.6065, 0.1353, 0.1353])
    """

    shown: ClassVar = ("k", "mutual", "tau")

    def __init__(
        self,
        k: int,
        *,
        distance: FairDistance | None = None,
        theta: float | None = None,
        mutual: bool = False,
        tau: float | None = None,
        attr: str = "x",
        overwrite: bool = False,
        progress: bool | None = None,
        name: str | None = None,
        node_type: str | None = None,
    ) -> None:
        distance = Euclidean() if distance is None else distance
        rule = KNearest(k, mutual=mutual, tau=tau, theta=theta, distance=distance)
        super().__init__(rule, attr, overwrite, progress, name, node_type)
