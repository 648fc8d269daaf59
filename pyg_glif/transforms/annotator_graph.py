"""Transform that builds a graph from judgements of annotators."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from pyg_glif._utils.validation import check_choice
from pyg_glif.graph import annotator_graph
from pyg_glif.graph.annotators import check_annotators
from pyg_glif.transforms.storage import Nodes, check_graph_name, shown_place
from pyg_glif.typing import Combine


@functional_transform("glif_annotator_graph")
class AnnotatorGraph(BaseTransform):  # type: ignore[misc]
    r"""Connects nodes that annotators called similar (:obj:`glif_annotator_graph`).

    Writes :obj:`data.edge_index` and :obj:`data.edge_weight`, both directions of
    every pair; :func:`~pyg_glif.graph.annotator_graph` defines the weights.

    Args:
        pairs (torch.Tensor or sequence): Pairs of different nodes, one row each, as
            a tensor or a list of ``(i, j)``; for several annotators a list with one
            of these for each.
        weights (torch.Tensor or sequence, optional): A judgement between 0 and 1 for
            each pair, in the form of ``pairs``. (default: :obj:`None`)
        combine (str, optional): How judgements of several annotators become one
            weight: ``"any"``, ``"majority"`` or ``"mean"``. (default: :obj:`"any"`)
        overwrite (bool, optional): Whether to replace a graph. This, and what follows,
            is as in :class:`~pyg_glif.transforms.FairRadiusGraph`.
            (default: :obj:`False`)
        name (str, optional): Name of a second graph. (default: :obj:`None`)
        node_type (str, optional): Type of the nodes. (default: the only one)

    Shapes:
        - **input:** pairs :math:`(P, 2)` and weights :math:`(P)` per annotator

    Pairs count the nodes of one graph, so a batch of several graphs is refused:
    transform the graphs before they are batched.

    Example:
        >>> import torch
        >>> data = Data(x=torch.zeros(3, 1))
        >>> AnnotatorGraph(torch.tensor([[2, 0]]))(data).edge_index
        tensor([[0, 2],
                [2, 0]])
    """

    def __init__(
        self,
        pairs: Tensor | Sequence[Tensor | Sequence[Any]],
        *,
        weights: Tensor | Sequence[Tensor] | None = None,
        combine: Combine = "any",
        overwrite: bool = False,
        name: str | None = None,
        node_type: str | None = None,
    ) -> None:
        check_choice("combine", combine, ("any", "majority", "mean"))
        self.num_annotators = len(check_annotators(pairs, weights))
        self.pairs, self.weights = deepcopy((pairs, weights))
        self.combine = combine
        self.overwrite = overwrite
        self.name = check_graph_name(name)
        self.node_type = node_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """Returns ``data`` with the graph."""
        nodes = Nodes.of(data, self.name, self.node_type, None)
        nodes.check_free(self.overwrite)
        num_graphs = 1 if nodes.batch is None else len(torch.unique(nodes.batch))
        if num_graphs > 1:
            msg = f"'data' must be one graph (got a batch of {num_graphs})"
            raise ValueError(f"{msg}. Transform the graphs before they are batched")
        edge_index, edge_weight = annotator_graph(
            self.pairs, nodes.count(), weights=self.weights, combine=self.combine
        )
        tensors = (v for v in nodes.store.to_dict().values() if isinstance(v, Tensor))
        device = next(tensors, edge_index).device
        nodes.write_graph(edge_index.to(device), edge_weight.to(device))
        return data

    def __repr__(self) -> str:
        shown = f"num_annotators={self.num_annotators}, combine={self.combine!r}"
        place = shown_place(self.name, self.node_type)
        return f"{self.__class__.__name__}({shown}{place})"
