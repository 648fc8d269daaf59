"""Base class of the transforms that search for a similarity graph."""

from typing import ClassVar

from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform

from pyg_glif.neighbors import KNearest, Radius
from pyg_glif.transforms.storage import Nodes, check_graph_name, shown_place


class FairGraph(BaseTransform):  # type: ignore[misc]
    """Writes the weighted graph of a neighbor rule."""

    shown: ClassVar[tuple[str, ...]]  # settings of the rule that are printed if set

    def __init__(
        self,
        rule: Radius | KNearest,
        attr: str,
        overwrite: bool,
        progress: bool | None,
        name: str | None,
        node_type: str | None,
    ) -> None:
        self.rule = rule
        self.attr = attr
        self.overwrite = overwrite
        self.progress = progress
        self.name = check_graph_name(name)
        self.node_type = node_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """Returns ``data`` with the graph."""
        nodes = Nodes.of(data, self.name, self.node_type, self.attr)
        nodes.check_free(self.overwrite)
        x = nodes.rows(self.attr)
        graph = self.rule.graph(x, batch=nodes.batch, progress=self.progress)
        nodes.write_graph(graph.edge_index, graph.weights(self.rule.theta))
        return data

    def __repr__(self) -> str:
        values = {key: getattr(self.rule, key) for key in self.shown}
        settings = [
            f"{k}={v}" for k, v in values.items() if v is not False and v is not None
        ]
        settings += [f"distance={self.rule.distance}", f"theta={self.rule.theta}"]
        place = shown_place(self.name, self.node_type)
        return f"{type(self).__name__}({', '.join(settings)}{place})"
