"""Transform that cuts the similarity graph to a sample of nodes."""

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import subgraph

from pyg_glif._utils.validation import check_attribute, check_edges, check_kind
from pyg_glif.transforms.storage import check_graph_name, graph_keys


@functional_transform("glif_fair_subgraph")
class FairSubgraph(BaseTransform):  # type: ignore[misc]
    r"""Gives a sampled batch the similarity edges of its nodes.

    A loader such as :class:`~torch_geometric.loader.NeighborLoader` samples nodes along
    the edges on which a network passes messages. It knows nothing of a second graph,
    whose edges would keep the numbers that nodes had before. As the ``transform`` of
    the loader, this one writes the edges among the nodes of each batch
    (:obj:`glif_fair_subgraph`), numbered as they are there.

    Args:
        edge_index (Tensor): The similarity graph of all nodes.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        name (str): Name of the graph: ``"fair"`` writes :obj:`fair_edge_index` and, if
            there are weights, :obj:`fair_edge_weight`. (default: ``"fair"``)

    Shapes:
        - **edge_index:** :math:`(2, E)`, **edge_weight:** :math:`(E)`

    Reads :obj:`data.n_id`, the nodes of the batch, which the loaders of PyG write. A
    node keeps the similar nodes that are in the batch too.

    Example:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1, 1, 3], [1, 0, 3, 1]])
        >>> batch = Data(n_id=torch.tensor([3, 1, 2]), num_nodes=3)
        >>> FairSubgraph(edge_index)(batch).fair_edge_index
        tensor([[1, 0],
                [0, 1]])
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        name: str = "fair",
    ) -> None:
        self.edge_index = check_edges(edge_index)
        self.edge_weight = edge_weight
        self.name = check_graph_name(name)
        some = self.edge_index.numel() > 0
        self._num_nodes = int(self.edge_index.max()) + 1 if some else 0

    def forward(self, data: Data) -> Data:
        """Returns ``data`` with the edges among its nodes."""
        check_kind("data", data, Data)
        check_attribute("data", data.keys(), "n_id")
        nodes = data.n_id.to(self.edge_index.device)
        edge_index, weight = subgraph(
            nodes,
            self.edge_index,
            self.edge_weight,
            relabel_nodes=True,
            num_nodes=max(self._num_nodes, int(nodes.amax(0)) + 1 if len(nodes) else 0),
        )
        index_key, weight_key = graph_keys(self.name)
        data[index_key] = edge_index.to(data.n_id.device)
        if weight is not None:
            data[weight_key] = weight.to(data.n_id.device)
        return data

    def __repr__(self) -> str:
        num_edges = self.edge_index.size(1)
        return f"{type(self).__name__}(num_edges={num_edges}, name={self.name!r})"
