"""A fit from scratch, with more samples, and without some."""

from dataclasses import replace

import torch
from torch import Tensor

from pyg_glif.fit.fit import Fit, Names
from pyg_glif.fit.sample_info import SampleInfo
from pyg_glif.fit.settings import FitSettings
from pyg_glif.fit.transform_info import update
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import Auto
from pyg_glif.solvers.implicit import smooth


def fit_samples(
    settings: FitSettings,
    x: Tensor,
    y_hat: Tensor,
    names: tuple[Names, Names],
    sample_info: SampleInfo,
    graph: SimilarityGraph | None = None,
) -> Fit:
    """Searches the neighbors of all samples, unless known, and smooths outputs."""
    settings.smoother.to_dual(y_hat)  # refuses bad outputs before the search
    if graph is None:
        graph = settings.search(x)
    elif settings.k is not None:
        msg = f"'graph' must be left out with 'k' (got {graph!r})"
        raise ValueError(f"{msg}. It does not tell whether nearest are mutual")
    elif (graph.num_nodes, graph.tau, graph.k) != (len(x), settings.tau, None):
        msg = f"'graph' must join the {len(x)} rows of 'x' within {settings.tau:g}"
        raise ValueError(f"{msg} (got {graph!r}). Leave it out to search")
    graph = replace(graph, _z=None, _dist=None)
    return Fit.solve(settings, x, y_hat, graph, names, sample_info)


def extend(fit: Fit, x: Tensor, y_hat: Tensor, sample_info: SampleInfo) -> Fit:
    """The fit with more samples, solved from the present solution."""
    settings, x_all = fit.settings, torch.cat([fit.x, x])
    # With k, the nearest of fitted samples change, too.
    graph = _extended_graph(fit, x) if settings.k is None else settings.search(x_all)
    # The inductive step is the natural first guess for samples to add.
    guess = settings.smoother.to_dual(
        update(fit, x, y_hat, sample_info.y_std).value
    ).double()
    start, y_hat = torch.cat([fit.f, guess]), torch.cat([fit.y_hat, y_hat])
    info = fit.sample_info.concat(sample_info)
    return Fit.solve(settings, x_all, y_hat, graph, fit.names, info, start)


def _extended_graph(fit: Fit, x: Tensor) -> SimilarityGraph:
    """The graph with more samples; only pairs with them are searched for."""
    settings, old, size = fit.settings, len(fit.x), len(fit.x) + len(x)
    row, col, outer = fit.index.query(x, settings.progress)[:3]
    inner = settings.search(x)
    forth = torch.stack([row + old, col])
    parts = [fit.graph.edge_index, forth, forth.flip(0), inner.edge_index + old]
    edges = torch.cat(parts, 1)
    sq_dist = torch.cat([fit.graph.sq_dist, outer, outer, inner.sq_dist])
    # By row, then by column, as a search returns edges.
    order = (edges[0] * size + edges[1]).argsort()
    edges, sq_dist = edges[:, order], sq_dist[order]
    return SimilarityGraph.from_sorted(edges, sq_dist, size, settings.tau)


def forget(fit: Fit, removed: Tensor) -> Fit:  # [N] bool
    """The fit without some samples, solved from the present solution."""
    settings, kept = fit.settings, ~removed
    rows = kept.nonzero().flatten()
    x, y_hat = fit.x.index_select(0, rows), fit.y_hat[kept]
    # With k, other samples take the places of removed ones among the nearest.
    graph = _reduced_graph(fit, kept) if settings.k is None else settings.search(x)
    info, lap = fit.sample_info.select(rows), settings.laplacian(graph)
    if settings.k is None:
        lap.keep_components(fit.lap, rows)
    start = fit.f[rows]
    if fit.shares is None and lap.is_psd and settings.lam > 0:
        start = _corrected(fit, lap, info, y_hat, start, removed)
    return Fit.solve(settings, x, y_hat, graph, fit.names, info, start, lap)


def _corrected(
    fit: Fit,
    lap: LaplacianOperator,
    sample_info: SampleInfo,
    y_hat: Tensor,
    f: Tensor,
    removed: Tensor,
) -> Tensor:  # [N, C]
    """The present solution of kept samples, solved anew in components of removed ones.

    A first guess: other components are not affected. These are solved by themselves, if
    they are small.
    """
    row, col = lap.pattern.row, lap.pattern.col
    label, sizes = fit.lap.components
    is_affected = torch.zeros_like(sizes, dtype=torch.bool)
    is_affected[label[removed]] = True
    affected = is_affected[label[~removed]]
    size = int(affected.sum())
    if not 0 < size <= len(f) // 2:
        return f
    precision = sample_info.precision
    if precision is None:
        own = torch.ones_like(lap.deg[affected])
    else:
        own = precision[affected]
    edge = affected.index_select(0, row).nonzero().flatten()
    i, j = row[edge], col[edge]
    t = fit.settings.lam * lap.lam_scale * lap.off_diagonal[edge]
    eta = fit.settings.smoother.to_dual(y_hat[affected]).double()
    residual = own.unsqueeze(1) * (eta - f[affected])
    place, inside = affected.cumsum(0) - 1, affected[j]
    pull = t.unsqueeze(1) * (f[i] - f[j])
    residual.index_add_(0, place[i], pull, alpha=-1.0)
    ends = torch.stack([place[i[inside]], place[j[inside]]])
    local = LaplacianOperator.from_sorted(ends, t[inside], size)
    # Fixed samples act as precision of those tied to them.
    held = own.index_add(0, place[i[~inside]], t[~inside])
    one = torch.ones_like(held[0])
    f[affected] += smooth(local, one, residual, Auto(), precision=held)[0]
    return f


def _reduced_graph(fit: Fit, kept: Tensor) -> SimilarityGraph:  # [N] bool
    """The graph of kept samples, without a search."""
    ends, number = fit.graph.edge_index, kept.cumsum(0) - 1
    row, col = (kept.index_select(0, end) for end in ends)
    keep = (row & col).nonzero().flatten()
    edges = ends.new_empty(2, len(keep))
    for end, out in zip(ends, edges, strict=True):
        torch.index_select(number, 0, end.index_select(0, keep), out=out)
    sq_dist, size = fit.graph.sq_dist.index_select(0, keep), int(kept.sum())
    return SimilarityGraph.from_sorted(edges, sq_dist, size, fit.settings.tau)
