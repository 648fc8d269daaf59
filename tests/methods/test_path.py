import math

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.linalg import spsolve

from pyg_glif import edge_weights, fair_radius_graph
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import SimilarityGraph
from pyg_glif.graph.weights import DECAY
from pyg_glif.links import Logit, Softmax
from pyg_glif.methods.path import PathPoint, glif_path
from pyg_glif.solvers import CG, Auto, Cholesky, SolveStatus
from pyg_glif.typing import Normalization
from tests import oracles

_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"
LAMS = [0.0, 0.01, 0.3, 10.0, 100.0]
TAUS = [0.0, 0.4, 0.9, 1.5]


def _graph(num_nodes, generator, dtype=torch.float64):
    z = torch.randn(num_nodes, 3, generator=generator, dtype=dtype)
    z[1] = z[0]
    edge_index, sq_dist = fair_radius_graph(z, TAUS[-1])
    y_hat = torch.randn(num_nodes, 2, generator=generator, dtype=dtype)
    return z, edge_index, sq_dist, y_hat


def _dense_weights(z, tau, theta):
    z = z.double().numpy()
    squares = ((z[:, None] - z[None]) ** 2).sum(-1)
    W = np.where(np.sqrt(squares) <= tau, np.exp(-theta * squares), 0.0)
    np.fill_diagonal(W, 0.0)
    return W


@pytest.mark.parametrize("solver", [None, CG(), Cholesky()])
@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_glif_path_matches_dense_oracle(normalization, solver, generator):
    z, edge_index, sq_dist, y_hat = _graph(120, generator)
    points = glif_path(
        y_hat,
        edge_index,
        sq_dist,
        lams=LAMS,
        taus=TAUS,
        theta=0.5,
        normalization=normalization,
        solver=solver,
    )
    seen = []
    for point in points:
        seen.append((point.tau, point.lam))
        W = _dense_weights(z, point.tau, 0.5)
        M = oracles.system(W, point.lam, normalization)
        definite = np.linalg.eigvalsh(M)[0] > 0
        wanted = SolveStatus.CONVERGED if definite else SolveStatus.INDEFINITE
        assert point.status is wanted
        if definite or solver is None:
            expected = np.linalg.solve(M, y_hat.numpy())
            scale = 1e-5 * np.linalg.norm(y_hat) / abs(np.linalg.eigvalsh(M)).min()
            np.testing.assert_allclose(point.value, expected, rtol=0, atol=scale)
    assert seen == [(tau, lam) for tau in TAUS for lam in LAMS]


def test_glif_path_finds_indefinite_points(generator):
    """A star, on which the normalised random walk has a negative eigenvalue."""
    leaves = torch.arange(1, 21)
    hub = torch.zeros_like(leaves)
    pairs = torch.stack([hub, leaves])
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    y_hat = torch.randn(21, generator=generator, dtype=torch.float64)
    lams = [0.1, 1.0, 100.0]
    sq_dist = torch.ones(40, dtype=torch.float64)
    points = list(
        glif_path(y_hat, edge_index, sq_dist, lams=lams, theta=0.0, normalization="nrw")
    )
    W = np.zeros((21, 21))
    W[0, 1:] = W[1:, 0] = 1.0
    for point in points:
        M = oracles.system(W, point.lam, "nrw")
        minimum = np.linalg.eigvalsh(M)[0] > 0
        assert (point.status is SolveStatus.CONVERGED) == minimum
        np.testing.assert_allclose(point.value, np.linalg.solve(M, y_hat), rtol=1e-6)
    assert points[-1].status is SolveStatus.INDEFINITE
    assert points[0].status is SolveStatus.CONVERGED


def test_glif_path_of_a_large_graph_equals_single_solves(generator):
    _, edge_index, sq_dist, y_hat = _graph(2500, generator, torch.float32)
    for point in glif_path(y_hat, edge_index, sq_dist, lams=LAMS, taus=[0.2, 0.3]):
        keep = sq_dist.sqrt() <= point.tau
        alone = glif_smooth(
            y_hat,
            edge_index[:, keep],
            edge_weights(sq_dist[keep], tau=point.tau),
            lam=point.lam,
            solver=Auto(rtol=1e-9),
        )
        assert point.status is SolveStatus.CONVERGED
        error = torch.linalg.vector_norm(point.value - alone, dim=0)
        # Certified: the error is at most the residual, 1e-6 relative, plus rounding.
        assert bool((error <= 2e-6 * torch.linalg.vector_norm(y_hat, dim=0)).all())


def test_glif_path_without_radii_uses_every_edge(generator):
    _, edge_index, sq_dist, y_hat = _graph(50, generator)
    (point,) = glif_path(y_hat[:, 0], edge_index, sq_dist, lams=[1.0])
    assert point.tau == math.inf
    assert point.value.shape == (50,)
    weight = edge_weights(sq_dist, tau=math.inf)
    expected = glif_smooth(y_hat[:, 0], edge_index, weight, lam=1.0)
    torch.testing.assert_close(point.value, expected, rtol=0, atol=1e-5)
    assert str(point) == "PathPoint(tau=inf, lam=1, value=[50], status=CONVERGED)"
    assert isinstance(point, PathPoint)


def test_glif_path_sorts_its_grid_and_drops_repetitions(generator):
    _, edge_index, sq_dist, y_hat = _graph(20, generator)
    points = glif_path(
        y_hat, edge_index, sq_dist, lams=[3.0, 1.0, 3.0], taus=[1.0, 0.5]
    )
    assert [(p.tau, p.lam) for p in points] == [(0.5, 1), (0.5, 3), (1, 1), (1, 3)]


@pytest.mark.parametrize("solver", [None, Cholesky()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_glif_path_has_the_edges_of_a_search_at_every_radius(dtype, solver, generator):
    """Radii at which whole shells of pairs lie, so that one lost bit shows."""
    z = torch.randint(5, (40, 3), generator=generator).to(dtype) * 0.1 + 0.7
    y_hat = torch.randn(40, generator=generator, dtype=dtype)
    dist = torch.cdist(z.double(), z.double(), compute_mode=_BY_DIFFERENCES).unique()
    taus = dist[dist <= 0.45].tolist()
    taus += [math.nextafter(tau, math.inf) for tau in taus]
    graph = SimilarityGraph.search(z, 0.45)
    squares = (z.double().unsqueeze(1) - z.double()).square().numpy()
    distance = np.sqrt(squares[..., 0] + squares[..., 1] + squares[..., 2])
    points = glif_path(y_hat, graph, lams=[3.0], taus=taus, theta=0.0, solver=solver)
    for point in points:
        W = (distance <= point.tau).astype(float)
        np.fill_diagonal(W, 0.0)
        expected = oracles.smooth(W, y_hat.double().numpy(), 3.0, None)
        np.testing.assert_allclose(point.value, expected, rtol=0, atol=2e-5)


def test_glif_path_of_plain_tensors_goes_by_the_root_of_squares():
    """Three tenths squared and rounded to float32 is more than three tenths squared."""
    edge_index = torch.tensor([[0, 1], [1, 0]])
    y_hat = torch.tensor([0.0, 3.0])
    for square, tau, edge in ((4.0, 2.0, True), (0.3**2, 0.3, False)):
        sq_dist = torch.full((2,), square)
        assert (math.sqrt(float(sq_dist[0])) <= tau) is edge
        (point,) = glif_path(y_hat, edge_index, sq_dist, lams=[1.0], taus=[tau])
        assert bool(torch.equal(point.value, y_hat)) is not edge


def test_glif_path_takes_edges_in_any_order(generator):
    _, edge_index, sq_dist, y_hat = _graph(50, generator)
    order = torch.randperm(edge_index.size(1), generator=generator)
    straight = glif_path(y_hat, edge_index, sq_dist, lams=[1.0], taus=TAUS)
    mixed = glif_path(
        y_hat, edge_index[:, order], sq_dist[order], lams=[1.0], taus=TAUS
    )
    for one, other in zip(straight, mixed, strict=True):
        assert torch.equal(one.value, other.value)


def test_glif_path_of_a_similarity_graph_brings_its_own(generator):
    z = torch.randn(30, 2, generator=generator)
    batch = torch.randint(2, (30,), generator=generator) * 10**17
    graph = SimilarityGraph.search(z, 1.0, batch=batch)
    y_hat = torch.randn(30, generator=generator)
    (point,) = glif_path(y_hat, graph, lams=[1.0], normalization="density")
    assert point.tau == 1.0
    edge_index, sq_dist = fair_radius_graph(z, 1.0, batch=batch)
    weight = edge_weights(sq_dist, tau=1.0)
    settings = {"normalization": "density", "batch": batch}
    expected = glif_smooth(y_hat, edge_index, weight, **settings)
    torch.testing.assert_close(point.value, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="'sq_dist' must be None when 'edge_index'"):
        glif_path(y_hat, graph, sq_dist, lams=[1.0])
    message = r"'taus' must be at most the radius of the graph, 1 \(got 2\)"
    with pytest.raises(ValueError, match=message):
        glif_path(y_hat, graph, lams=[1.0], taus=[0.5, 2.0])
    with pytest.raises(ValueError, match="'y_hat' must have one row per node"):
        glif_path(y_hat[:9], graph, lams=[1.0])


def test_glif_path_keeps_outputs_of_isolated_nodes(generator):
    z, edge_index, sq_dist, y_hat = _graph(80, generator)
    for point in glif_path(y_hat, edge_index, sq_dist, lams=LAMS, taus=TAUS):
        isolated = _dense_weights(z, point.tau, 0.0).sum(1) == 0
        assert torch.equal(point.value[isolated], y_hat[isolated])


@pytest.mark.parametrize("normalization", [None, "density"])
def test_glif_path_of_a_batch_equals_its_members(normalization, generator):
    graphs = [torch.randn(n, 2, generator=generator) for n in (30, 12)]
    batch = torch.tensor([0] * 30 + [1] * 12)
    graph = SimilarityGraph.search(torch.cat(graphs), 1.0, batch=batch)
    y_hat = torch.randn(42, generator=generator)
    kwargs = {"lams": [0.5, 5.0], "taus": [0.5, 1.0], "normalization": normalization}
    together = [p.value for p in glif_path(y_hat, graph, **kwargs)]
    parts = []
    for x, part in zip(graphs, y_hat.split([30, 12]), strict=True):
        edges, squares = fair_radius_graph(x, 1.0)
        parts.append([p.value for p in glif_path(part, edges, squares, **kwargs)])
    for whole, first, second in zip(together, *parts, strict=True):
        torch.testing.assert_close(whole, torch.cat([first, second]), atol=1e-5, rtol=0)


def test_glif_path_with_a_link(generator):
    _, edge_index, sq_dist, y_hat = _graph(40, generator)
    y_hat = y_hat.softmax(1)
    link = Softmax()
    for point in glif_path(y_hat, edge_index, sq_dist, lams=[0.1, 2.0], link=link):
        weight = edge_weights(sq_dist, tau=math.inf)
        expected = glif_smooth(y_hat, edge_index, weight, lam=point.lam, link=link)
        torch.testing.assert_close(point.value, expected, atol=1e-5, rtol=0)


def test_glif_path_reports_what_did_not_converge(generator):
    _, edge_index, sq_dist, y_hat = _graph(120, generator)
    solver = CG(max_iter=1, rtol=1e-12)
    (point,) = glif_path(y_hat, edge_index, sq_dist, lams=[50.0], solver=solver)
    assert point.status is SolveStatus.MAX_ITER


@pytest.mark.parametrize("normalization", [None, "density"])
def test_path_keeps_isolated_outputs_under_a_link(
    normalization: Normalization,
) -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    sq_dist = torch.tensor([1.0, 1.0, 4.0, 4.0])
    y_hat = torch.tensor([0.2, 0.9, 1.0, 0.0])
    points = list(
        glif_path(
            y_hat,
            edge_index,
            sq_dist,
            lams=[0.0, 1.0],
            taus=[1.0, 2.0],
            normalization=normalization,
            link=Logit(eps=0.01),
        )
    )
    for point in points:
        isolated = [3] if point.tau == 2.0 else [2, 3]
        isolated = [0, 1, 2, 3] if point.lam == 0.0 else isolated
        assert torch.equal(point.value[isolated], y_hat[isolated])
    assert float(points[-1].value[2]) < 0.99


def test_path_solves_strengths_that_rounding_hides() -> None:
    edge_index = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    y_hat = torch.tensor([2.0, 2.0, 2.0, 5.0], dtype=torch.float64)
    sq_dist = torch.full((6,), 1.0, dtype=torch.float64)
    for point in glif_path(y_hat, edge_index, sq_dist, lams=[1.0, 1e14, 1e17]):
        assert point.status is SolveStatus.CONVERGED
        torch.testing.assert_close(point.value, y_hat, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("theta", [None, 0.3])
def test_large_graphs_solve_all_strengths_together(
    normalization: str | None, theta: float | None
) -> None:
    """Against SciPy's direct solver."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2200, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(2200, 2, generator=generator, dtype=torch.float64)
    graph = SimilarityGraph.search(x, 0.15)
    lams, taus = (0.01, 1.0, 100.0), (0.05, 0.15)
    points = glif_path(
        y, graph, lams=lams, taus=taus, theta=theta, normalization=normalization
    )
    for point in points:
        part = graph.within(point.tau)
        decay = DECAY / point.tau**2 if theta is None else theta
        weight = np.exp(-decay * part.sq_dist.numpy())
        W = sparse.csr_matrix((weight, part.edge_index.numpy()), shape=(2200, 2200))
        scale, deg = 1.0, np.asarray(W.sum(1)).ravel()
        if normalization == "density":
            scale = deg.mean() + 1.0
            root = sparse.diags((deg + 1.0) ** -0.5)
            W = root @ W @ root
            deg = np.asarray(W.sum(1)).ravel()
        L = sparse.diags(deg) - W
        M = sparse.identity(2200) + point.lam * scale * L
        expected = spsolve(M.tocsc(), y.numpy())
        assert point.status is SolveStatus.CONVERGED
        error = np.linalg.norm(point.value.numpy() - expected, axis=0)
        # The residual is at most 1e-6 of the outputs, and bounds the error.
        assert (error <= 1e-6 * np.linalg.norm(y.numpy(), axis=0)).all()


def test_graphs_of_the_nearest_keep_their_own_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(40, generator=generator, dtype=torch.float64)
    graph = SimilarityGraph.nearest(x, 4)
    (point,) = glif_path(y, graph, lams=[2.0], theta=None)
    dist = np.linalg.norm(x.numpy()[:, None] - x.numpy()[None], axis=-1)
    kth = np.sort(dist, axis=1)[:, 4]
    reach = np.maximum(kth[:, None], kth[None])
    W = np.where(dist <= reach, np.exp(-DECAY * (dist / reach) ** 2), 0.0)
    np.fill_diagonal(W, 0.0)
    expected = np.linalg.solve(np.eye(40) + 2.0 * (np.diag(W.sum(1)) - W), y.numpy())
    np.testing.assert_allclose(point.value.numpy(), expected, rtol=1e-5, atol=1e-6)


ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lams": []}, "'lams' must hold at least one number"),
        ({"lams": [1.0, -1.0]}, r"'lams' must be non-negative \(got -1.0\)"),
        ({"lams": [math.inf]}, "'lams' must be finite"),
        ({"taus": [-2.0]}, r"'taus' must be non-negative \(got -2.0\)"),
        ({"theta": -1.0}, r"'theta' must be non-negative \(got -1.0\)"),
        ({"sq_dist": ONES}, "'sq_dist' must have one entry per edge"),
        ({"y_hat": torch.tensor([0.0, math.nan])}, "'y_hat' must be finite"),
        ({"link": Softmax()}, "'y_hat' must have one column per class"),
        (
            {"edge_index": torch.tensor([[0], [1]]), "sq_dist": torch.ones(1)},
            "both directions of every edge",
        ),
        (
            {
                "edge_index": torch.tensor([[0, 1, 0], [1, 0, 0]]),
                "sq_dist": torch.ones(3),
            },
            "every edge once, without self-loops",
        ),
    ],
)
def test_bad_arguments_are_refused_before_the_first_point(arguments, message):
    valid = {"y_hat": torch.zeros(2), "edge_index": torch.tensor([[0, 1], [1, 0]])}
    valid |= {"sq_dist": torch.ones(2), "lams": [1.0]}
    with pytest.raises(ValueError, match=message):
        glif_path(**{**valid, **arguments})
