"""Prepared graphs that a layer keeps, and masks of explainers."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif.laplacian import LaplacianOperator

Source = list[tuple[Tensor | None, int]]


class GraphCache(NamedTuple):
    """A prepared graph and the tensors it was prepared from, with their versions."""

    lap: LaplacianOperator
    source: Source

    def is_of(self, source: Source, num_nodes: int) -> bool:
        """Whether these are the same tensors, not modified since."""
        if len(source) != len(self.source) or num_nodes != self.lap.num_nodes:
            return False
        pairs = zip(source, self.source, strict=True)
        return all(new[0] is old[0] and new[1] == old[1] for new, old in pairs)


def source_of(*graph: Any) -> Source | None:
    """The tensors a graph consists of, each with its number of modifications.

    :obj:`None` if the graph must not be cached: a gradient belongs to one forward
    pass, and inference tensors do not count modifications.
    """
    source: Source = []
    for part in graph:
        # A SparseTensor is a bundle of tensors; everything else is one or None.
        single = part is None or isinstance(part, Tensor)
        for tensor in [part] if single else part.coo():
            if tensor is None:
                source.append((None, 0))
            elif tensor.requires_grad or tensor.is_inference():
                return None
            else:
                source.append((tensor, tensor._version))
    return source


def mean_of_directions(value: Tensor, edge_index: Tensor) -> Tensor:  # [E] -> [E]
    """Gives both directions of every edge the mean of their values."""
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    row, col = edge_index[0], edge_index[1]
    forth = torch.argsort(row * num_nodes + col, stable=True)
    back = torch.argsort(col * num_nodes + row, stable=True)
    reverse = torch.empty_like(forth)
    reverse[back] = forth
    return 0.5 * (value + value[reverse])
