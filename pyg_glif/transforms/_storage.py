"""How transforms read a ``Data`` object and write a graph to it."""

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.storage import NodeStorage

from pyg_glif._validate import (
    check_attribute,
    check_kind,
    check_node_rows,
    check_tensor,
)

# Spellings of a graph that do not start with "edge_".
_GRAPH_KEYS = ("adj", "adj_t", "e_id")
# Any of these tells PyG the number of nodes without a look at the edges.
_NODE_KEYS = {"num_nodes", "x", "pos", "batch"}


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
    return f"{prefix}edge_index", f"{prefix}edge_weight"


def check_graph_target(data: object, overwrite: bool, name: str | None = None) -> Data:
    """A ``Data`` or ``Batch`` that has no such graph yet, or may lose it."""
    check_kind("data", data, Data)
    assert isinstance(data, Data)
    if isinstance(data, Batch):
        check_attribute("data", data.keys(), "batch")
    if not overwrite:
        _check_free("data", _graph_keys(data, name))
    return data


def find_relation(
    data: HeteroData, attr: str, name: str | None, overwrite: bool
) -> tuple[NodeStorage, tuple[str, str, str]]:
    """The nodes that have the features, and the relation that a graph of them gets."""
    kinds = [kind for kind in data.node_types if attr in data[kind]]
    if len(kinds) != 1:
        got = ", ".join(repr(kind) for kind in kinds) or "none"
        raise ValueError(f"'data' must have one kind of node with '{attr}' (got {got})")
    relation = (kinds[0], "fair" if name is None else name, kinds[0])
    if relation in data.edge_types and not overwrite:
        _check_free("data", [str(relation)])
    return data[kinds[0]], relation


def count_nodes(data: Data) -> int:
    """Number of nodes, isolated ones included."""
    # PyG would otherwise count up to the last node that has an edge.
    if _NODE_KEYS.isdisjoint(data.keys()):
        check_attribute("data", data.keys(), "num_nodes")
    return int(data.num_nodes)


def node_rows(data: Data, attr: str) -> Tensor:
    """The attribute ``attr``, one row per node; fixes the number of nodes by it."""
    check_attribute("data", data.keys(), attr)
    rows = check_tensor(attr, data[attr])
    if _NODE_KEYS.isdisjoint(data.keys()):
        data.num_nodes = len(rows)
    check_node_rows(attr, rows, count_nodes(data))
    return rows


def write_graph(
    data: Data, edge_index: Tensor, edge_weight: Tensor, name: str | None = None
) -> Data:
    """Replaces all there is of a graph; edges are sorted by row."""
    for key in _graph_keys(data, name):
        del data[key]
    index_key, weight_key = graph_keys(name)
    data[index_key], data[weight_key] = edge_index, edge_weight
    if isinstance(data, Batch) and hasattr(data, "_slice_dict"):
        num_graphs = data.num_graphs
        num_nodes = torch.bincount(data.batch, minlength=num_graphs)
        num_edges = torch.bincount(data.batch[edge_index[0]], minlength=num_graphs)
        cut = torch.cat([num_edges.new_zeros(1), num_edges.cumsum(0)])
        _tell_where_to_cut(data, index_key, cut, num_nodes.cumsum(0) - num_nodes)
        _tell_where_to_cut(data, weight_key, cut, torch.zeros_like(num_nodes))
    return data


def write_rows(data: Data, key: str, rows: Tensor) -> Data:
    """Adds an attribute with one row per node."""
    data[key] = rows
    if isinstance(data, Batch) and hasattr(data, "_slice_dict"):
        shift = data.ptr.new_zeros(data.num_graphs)
        _tell_where_to_cut(data, key, data.ptr, shift)
    return data


def _graph_keys(data: Data, name: str | None) -> list[str]:
    """Attributes that belong to the graph, or second graph, that there is."""
    if name is not None:
        return [key for key in graph_keys(name) if key in data]
    return [
        key
        for key in sorted(data.keys())  # PyG's own order is that of a set
        if key in _GRAPH_KEYS
        # Targets of link prediction are not about the edges that are there.
        or (key.startswith("edge_") and not key.startswith("edge_label"))
    ]


def _tell_where_to_cut(data: Batch, key: str, cut: Tensor, shift: Tensor) -> None:
    """Tells a batch which part of an attribute is whose, and what to subtract."""
    # 'to_data_list' cuts every attribute where 'from_data_list' glued it: without
    # this it would leave new attributes out, or cut edges where the old ones ended.
    # New dictionaries: a shallow copy of the batch shares the old ones.
    data._slice_dict = {**data._slice_dict, key: cut.cpu()}
    data._inc_dict = {**data._inc_dict, key: shift.cpu()}


def _check_free(name: str, taken: list[str]) -> None:
    """Raises if there is a graph already, whose attributes are ``taken``."""
    if taken:
        got = ", ".join(repr(key) for key in taken)
        msg = f"'{name}' must not have a graph yet (got {got})"
        remedy = "Pass 'overwrite=True' to replace it, or 'name' for a second graph"
        raise ValueError(f"{msg}. {remedy}")
