"""Access to the nodes and graphs of a ``Data`` or ``HeteroData``."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from pyg_glif._utils.validation import (
    check_attribute,
    check_kind,
    check_node_rows,
    check_tensor,
)

# Spellings of a graph that do not start with "edge_".
_GRAPH_KEYS = ("adj", "adj_t", "e_id")
# Any of these tells PyG the number of nodes without a look at the edges.
_NODE_KEYS = {"num_nodes", "x", "pos", "batch"}
_INDEX, _WEIGHT = "edge_index", "edge_weight"


def check_graph_name(name: str | None) -> str | None:
    """The name of a second graph, if there is one: a word, so that it can be a key."""
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        msg = f"'name' must be a word that can be part of an attribute (got {name!r})"
        raise ValueError(f"{msg}. Use 'fair', for example")
    return name


def graph_keys(name: str | None) -> tuple[str, str]:
    """Attributes of edges and weights: those of PyG, or of a second graph.

    PyG reads the role of an attribute from its name: whatever has ``index`` in it is
    shifted when graphs are put into a batch.
    """
    prefix = "" if name is None else f"{name}_"
    return f"{prefix}{_INDEX}", f"{prefix}{_WEIGHT}"


def check_named(data: Data, name: str | None) -> None:
    """Raises if no name says which of the graphs of ``data`` is the similarity graph.

    A second graph is known by its weights: PyG's own attributes that end in
    ``edge_index``, targets of link prediction, have none.
    """
    keys = {*data.keys()}
    ends = {key.removesuffix(f"_{_INDEX}") for key in keys if key.endswith(_INDEX)}
    others = sorted(end for end in ends if keys.issuperset(graph_keys(end)))
    if name is None and others:
        got = ", ".join(repr(other) for other in others)
        msg = f"'name' must say which graph is meant (got None beside a graph {got})"
        remedy = f"Pass 'name={others[0]!r}', or use 'edge_index' before a second graph"
        raise ValueError(f"{msg}. {remedy} is written")


def shown_place(name: str | None, node_type: str | None) -> str:
    """Arguments of a printed transform that say where its graph is."""
    options = {"name": name, "node_type": node_type}
    return "".join(f", {k}={v!r}" for k, v in options.items() if v is not None)


@dataclass(frozen=True)
class Nodes:
    """Nodes of one type, and a graph among them.

    Args:
        data (Data or HeteroData): The data that hold both.
        name (str, optional): Name of the graph: of a second one in a ``Data``, of a
            relation in a ``HeteroData``, where :obj:`None` means ``"fair"``.
        node_type (str, optional): Type of the nodes; :obj:`None` in a ``Data``.
    """

    data: Any
    name: str | None
    node_type: str | None

    @classmethod
    def of(
        cls, data: object, name: str | None, node_type: str | None, attr: str | None
    ) -> "Nodes":
        """The nodes of a type, by default of the only one that has ``attr``."""
        if not isinstance(data, HeteroData):
            check_kind("data", data, Data)
            if node_type is not None:
                msg = "'node_type' must be None unless 'data' is a HeteroData"
                raise ValueError(f"{msg} (got {node_type!r}). Leave it out")
            return cls(data, name, None)
        types = [t for t in data.node_types if attr is None or attr in data[t]]
        having = "" if attr is None else f" with '{attr}'"
        got = ", ".join(repr(kind) for kind in types) or "none"
        if node_type is None and len(types) != 1:
            msg = f"'data' must have one type of node{having} (got {got})"
            raise ValueError(f"{msg}. Pass 'node_type' to choose one" if types else msg)
        if node_type is not None and node_type not in types:
            msg = f"'node_type' must be a type of node{having} (got {node_type!r})"
            raise ValueError(f"{msg}. Of these 'data' has {got}")
        return cls(data, name, types[0] if node_type is None else node_type)

    @property
    def relation(self) -> tuple[str, str, str] | None:
        """The type of the edges in a ``HeteroData``."""
        if self.node_type is None:
            return None
        return self.node_type, self.name or "fair", self.node_type

    @property
    def keys(self) -> tuple[str, str]:
        """Attributes of edges and weights."""
        return graph_keys(None if self.relation else self.name)

    @property
    def store(self) -> Any:
        """Storage of the attributes of the nodes."""
        return self.data if self.node_type is None else self.data[self.node_type]

    @property
    def batch(self) -> Tensor | None:  # [N]
        """The graph of each node, if there are several."""
        if isinstance(self.data, Batch):
            check_attribute("data", self.store.keys(), "batch")
        out: Tensor | None = self.store.get("batch")
        return out

    def count(self) -> int:
        """Number of nodes, isolated ones included."""
        # PyG would otherwise count up to the last node that has an edge.
        if _NODE_KEYS.isdisjoint(self.store.keys()):
            check_attribute("data", self.store.keys(), "num_nodes")
        return int(self.store.num_nodes)

    def rows(self, attr: str) -> Tensor:  # [N, ...]
        """The attribute ``attr``; fixes the number of nodes by it."""
        check_attribute("data", self.store.keys(), attr)
        rows = check_tensor(attr, self.store[attr])
        if _NODE_KEYS.isdisjoint(self.store.keys()):
            self.store.num_nodes = len(rows)
        check_node_rows(attr, rows, self.count())
        return rows

    def write_rows(self, key: str, rows: Tensor) -> None:
        """Adds an attribute with one row per node."""
        store = self.store
        store[key] = rows
        if self._is_separable:
            shift = store.ptr.new_zeros(self.data.num_graphs)
            self._record_slices(self.node_type, key, store.ptr, shift)

    def graph(self) -> tuple[Any, Tensor | None]:
        """Edges, or an adjacency matrix, and weights, if there are some."""
        if self.relation is None:
            check_named(self.data, self.name)
        elif self.relation not in self.data.edge_types:
            got = ", ".join(map(repr, self.data.edge_types)) or "none"
            msg = f"'data' must have the relation {self.relation} (got {got})"
            remedy = "Pass the 'name' of one, or write it with 'FairRadiusGraph'"
            raise ValueError(f"{msg}. {remedy}")
        store, (index_key, weight_key) = self._edge_store, self.keys
        if index_key == _INDEX and _INDEX not in store and "adj_t" in store:
            return store["adj_t"], None
        check_attribute("data", store.keys(), index_key)
        return store[index_key], store.get(weight_key)

    def check_free(self, overwrite: bool) -> None:
        """Raises if there is such a graph already that must not be replaced."""
        taken = self._taken() if self.relation is None else []
        if self.relation in getattr(self.data, "edge_types", []):
            taken = [str(self.relation)]
        if taken and not overwrite:
            got = ", ".join(repr(key) for key in taken)
            msg = f"'data' must not have a graph yet (got {got})"
            remedy = "Pass 'overwrite=True' to replace it, or 'name' for a second graph"
            raise ValueError(f"{msg}. {remedy}")

    def write_graph(self, edge_index: Tensor, edge_weight: Tensor) -> None:
        """Replaces all there is of a graph; edges are sorted by row."""
        store = self._edge_store
        for key in self._taken():
            del store[key]
        index_key, weight_key = self.keys
        store[index_key], store[weight_key] = edge_index, edge_weight
        batch = self.batch
        if batch is not None and self._is_separable:
            num_graphs = self.data.num_graphs
            num_nodes = torch.bincount(batch, minlength=num_graphs)
            num_edges = torch.bincount(batch[edge_index[0]], minlength=num_graphs)
            cut = torch.cat([num_edges.new_zeros(1), num_edges.cumsum(0)])
            shift = num_nodes.cumsum(0) - num_nodes
            self._record_slices(self.relation, index_key, cut, shift)
            self._record_slices(self.relation, weight_key, cut, torch.zeros_like(shift))

    @property
    def _is_separable(self) -> bool:
        """Whether PyG has recorded which slices of a batch belong to which graph."""
        # Not 'hasattr' of a HeteroData, which takes any name in '_dict' for a query.
        return hasattr(self.data.stores[0], "_slice_dict")

    @property
    def _edge_store(self) -> Any:
        """Storage of the edges; PyG adds a relation that is not there yet."""
        return self.data if self.relation is None else self.data[self.relation]

    def _taken(self) -> list[str]:
        """Attributes that belong to the graph that there is."""
        store = self._edge_store
        if self.relation is None and self.name is not None:
            return [key for key in self.keys if key in store]
        return [
            key
            for key in sorted(store.keys())  # PyG's own order is that of a set
            if key in _GRAPH_KEYS
            # Targets of link prediction are not about the edges that are there.
            or (key.startswith("edge_") and not key.startswith("edge_label"))
        ]

    def _record_slices(self, part: Any, key: str, cut: Tensor, shift: Tensor) -> None:
        """Records the slice of an attribute of each graph, and what to subtract."""
        # 'to_data_list' cuts every attribute where 'from_data_list' glued it: without
        # this it would leave new attributes out, or cut edges where the old ones ended.
        # New dictionaries: a shallow copy of the batch shares the old ones.
        for name, value in (("_slice_dict", cut.cpu()), ("_inc_dict", shift.cpu())):
            old = getattr(self.data, name)
            new: dict[Any, Any] = {key: value}
            if part is not None:
                new = {part: {**old.get(part, {}), **new}}
            setattr(self.data, name, {**old, **new})
