"""What the transforms that search for similar people share."""

from abc import abstractmethod

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform

from pyg_glif._validate import check_kind, check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.graph import SimilarityGraph
from pyg_glif.transforms._storage import (
    check_graph_name,
    check_graph_target,
    find_relation,
    node_rows,
    write_graph,
)


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
        name: str | None,
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
        self.name = check_graph_name(name)

    @abstractmethod
    def search(self, x: Tensor, batch: Tensor | None) -> SimilarityGraph:
        """Who is similar to whom."""

    @abstractmethod
    def rule(self) -> str:
        """What the printed transform shows first."""

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """Returns ``data`` with the graph."""
        if isinstance(data, HeteroData):
            return self._relate(data)
        data = check_graph_target(data, self.overwrite, self.name)
        graph = self.search(node_rows(data, self.attr), data.get("batch"))
        weight = graph.weights(self.theta)
        return write_graph(data, graph.edge_index, weight, self.name)

    def _relate(self, data: HeteroData) -> HeteroData:
        """Adds a relation to the only kind of node that has the features."""
        nodes, relation = find_relation(data, self.attr, self.name, self.overwrite)
        graph = self.search(nodes[self.attr], nodes.get("batch"))
        data[relation].edge_index = graph.edge_index
        data[relation].edge_weight = graph.weights(self.theta)
        return data

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        shown = f"{self.rule()}, distance={self.distance}, theta={self.theta}{name}"
        return f"{self.__class__.__name__}({shown})"
