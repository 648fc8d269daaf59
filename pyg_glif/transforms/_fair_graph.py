"""Base class of the transforms that search for a similarity graph."""

from abc import abstractmethod

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform

from pyg_glif._utils.validation import check_kind, check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.graph import SimilarityGraph
from pyg_glif.transforms.storage import Nodes, check_graph_name, shown_place


class FairGraph(BaseTransform):  # type: ignore[misc]
    """Writes the weighted graph that a subclass finds by :meth:`search`."""

    def __init__(
        self,
        distance: FairDistance | None,
        theta: float | None,
        attr: str,
        overwrite: bool,
        progress: bool | None,
        name: str | None,
        node_type: str | None,
    ) -> None:
        self.distance = Euclidean() if distance is None else distance
        check_kind("distance", self.distance, FairDistance)
        if theta is not None:
            theta = check_scalar("theta", theta, minimum=0)
        self.theta = theta
        self.attr = attr
        self.overwrite = overwrite
        self.progress = progress
        self.name = check_graph_name(name)
        self.node_type = node_type

    @abstractmethod
    def search(self, x: Tensor, batch: Tensor | None) -> SimilarityGraph:
        """Similarity graph of the rows of ``x``."""

    @abstractmethod
    def rule(self) -> str:
        """Arguments of the neighbor rule, for the printed transform."""

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """Returns ``data`` with the graph."""
        nodes = Nodes.of(data, self.name, self.node_type, self.attr)
        nodes.check_free(self.overwrite)
        graph = self.search(nodes.rows(self.attr), nodes.batch)
        nodes.write_graph(graph.edge_index, graph.weights(self.theta))
        return data

    def __repr__(self) -> str:
        shown = f"{self.rule()}, distance={self.distance}, theta={self.theta}"
        place = shown_place(self.name, self.node_type)
        return f"{self.__class__.__name__}({shown}{place})"
