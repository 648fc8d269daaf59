"""Transform that builds the graph of the nearest nodes in a fair distance."""

from torch import Tensor
from torch_geometric.data.datapipes import functional_transform

from pyg_glif._utils.validation import check_choice, check_count, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph import SimilarityGraph
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
        theta (float, optional): Decay :math:`\theta` of weights
            :math:`\exp(-\theta \, d_{ij}^2)`; zero gives weight 1 to every edge.
            (default: a decay for each pair, by the larger of :math:`s_i` and
            :math:`s_j`, see :func:`~pyg_glif.graph.local_weights`)
        mutual (bool, optional): Whether each of two nodes must be among the nearest of
            the other. (default: :obj:`False`)
        tau (float, optional): Largest distance :math:`\tau` of an edge, inclusive:
            nodes further from all others stay isolated. (default: no limit)
        attr (str, optional): Name of the node features the distance is taken on.
            (default: :obj:`"x"`)
        overwrite (bool, optional): Whether to replace a graph that is there, see
            :class:`~pyg_glif.transforms.FairRadiusGraph`. (default: :obj:`False`)
        progress (bool, optional): Whether to show a progress bar.
            (default: on a terminal)
        name (str, optional): Writes a second graph, see
            :class:`~pyg_glif.transforms.FairRadiusGraph`. (default: :obj:`None`)
        node_type (str, optional): Type of the nodes of a
            :class:`~torch_geometric.data.HeteroData`, likewise.
            (default: :obj:`None`)

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
        super().__init__(distance, theta, attr, overwrite, progress, name, node_type)
        self.k = check_count("k", k)
        check_choice("mutual", mutual, (True, False))
        self.mutual = mutual
        if tau is not None:
            tau = check_scalar("tau", tau, minimum=0, allow_inf=True)
        self.tau = tau

    def search(self, x: Tensor, batch: Tensor | None) -> SimilarityGraph:
        """Graph of the nearest neighbors."""
        return SimilarityGraph.nearest(
            x,
            self.k,
            distance=self.distance,
            batch=batch,
            mutual=self.mutual,
            tau=self.tau,
            progress=self.progress,
        )

    def rule(self) -> str:
        """Number of nearest nodes, and what else decides."""
        words = f"k={self.k}"
        words += ", mutual=True" if self.mutual else ""
        return words if self.tau is None else f"{words}, tau={self.tau}"
