"""What the transforms that search for similar people share."""

from abc import abstractmethod

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from pyg_glif._validate import check_kind, check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.graph import SimilarityGraph
from pyg_glif.transforms._storage import check_graph_target, node_rows, write_graph


class FairGraph(BaseTransform):  # type: ignore[misc]
    """Writes the weighted graph that a subclass finds by :meth:`search`."""

    def __init__(
        self,
        distance: FairDistance | None,
        theta: float | None,
        attr: str,
        overwrite: bool,
        memory_budget: int | None,
        progress: bool | None,
    ) -> None:
        self.distance = Euclidean() if distance is None else distance
        check_kind("distance", self.distance, FairDistance)
        if theta is not None:
            theta = check_scalar("theta", theta, minimum=0)
        self.theta = theta
        self.attr = attr
        self.overwrite = overwrite
        self.memory_budget = memory_budget
        self.progress = progress

    @abstractmethod
    def search(self, x: Tensor, batch: Tensor | None) -> SimilarityGraph:
        """Who is similar to whom."""

    @abstractmethod
    def rule(self) -> str:
        """What the printed transform shows first."""

    def forward(self, data: Data) -> Data:
        """Returns ``data`` with the graph."""
        data = check_graph_target(data, self.overwrite)
        graph = self.search(node_rows(data, self.attr), data.get("batch"))
        return write_graph(data, graph.edge_index, graph.weights(self.theta))

    def __repr__(self) -> str:
        name = self.__class__.__name__
        return f"{name}({self.rule()}, distance={self.distance}, theta={self.theta})"
