"""Who is at distance zero from whom, and so must get the same output?"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._optional import require
from pyg_glif.graph.tiles import EmbeddedDistances, PairDistances, slices


def coinciding_groups(
    dists: PairDistances, num_rows: int, tile_size: int
) -> NDArray[np.int64]:  # [N], from 0 without gaps
    """Labels of people, equal where a chain of zero distances links them."""
    if isinstance(dists, EmbeddedDistances):
        label: Tensor = torch.unique(dists.z, dim=0, return_inverse=True)[1]
        return label.cpu().numpy()
    groups = np.arange(num_rows)
    for rows in slices(0, num_rows, tile_size):
        for cols in slices(rows.start, num_rows, tile_size):
            tile = dists.tile(rows, cols)
            r, c = (tile.sq_dist == 0).nonzero(as_tuple=True)
            zero = tile.exact(r, c) == 0  # a small distance may vanish when squared
            i, j = (r[zero] + rows.start).cpu(), (c[zero] + cols.start).cpu()
            groups = _link(groups, groups[i.numpy()], groups[j.numpy()])
    return groups


def _link(
    groups: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Labels after joining groups pairwise."""
    differ = one != other
    if not differ.any():
        return groups
    feature = "pyg_glif.baselines.lipschitz_projection"
    sparse = require("scipy.sparse", feature, "baselines")
    csgraph = require("scipy.sparse.csgraph", feature, "baselines")
    num, links = int(groups.max()) + 1, (one[differ], other[differ])
    graph = sparse.coo_matrix((np.ones(len(links[0])), links), shape=(num, num))
    joined: NDArray[np.int64] = csgraph.connected_components(graph, False)[1]
    return joined[groups].astype(np.int64)
