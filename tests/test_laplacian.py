import re

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import add_self_loops

from pyg_glif._utils.sparse import (
    connected_components as our_components,
    edge_dot,
    edge_energy,
    spmm,
)
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization
from tests import oracles
from tests.problems import PROBLEMS, Problem, path, random_graph, star, two_components

NORMALIZATIONS: list[Normalization] = [None, "nrw", "density"]


def operator(
    problem: Problem, normalization: Normalization = None
) -> LaplacianOperator:
    return LaplacianOperator(
        problem.edge_index,
        problem.edge_weight,
        problem.num_nodes,
        normalization=normalization,
    )


def test_laplacian_operator() -> None:
    lap = operator(path(3), "density")
    text = "LaplacianOperator(num_nodes=3, num_edges=4, normalization='density')"
    assert str(lap) == text
    assert lap.is_psd
    assert not operator(path(3), "nrw").is_psd
    assert lap.pattern.rowptr.dtype == torch.int32
    assert operator(path(3)).deg.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_laplacian_matches_dense_oracle(
    name: str, normalization: Normalization, generator: torch.Generator
) -> None:
    problem = PROBLEMS[name]()
    lap, W = operator(problem, normalization), problem.dense()
    L = oracles.laplacian(W, normalization)
    f = torch.randn(problem.num_nodes, 3, generator=generator, dtype=torch.float64)
    energy = np.einsum("nc,nm,mc->c", f.numpy(), L, f.numpy())
    np.testing.assert_allclose(lap.to_dense(), L, atol=1e-14)
    np.testing.assert_allclose(lap.diagonal, np.diag(L), atol=1e-14)
    np.testing.assert_allclose(lap.matmul(f), L @ f.numpy(), atol=1e-12)
    np.testing.assert_allclose(lap @ f[:, 0], L @ f[:, 0].numpy(), atol=1e-12)
    np.testing.assert_allclose(lap.quadratic(f), energy, atol=1e-11)
    np.testing.assert_allclose(lap.quadratic(f[:, 1]), energy[1], atol=1e-11)
    assert float(lap.lam_scale) == pytest.approx(oracles.lam_scale(W, normalization))


@pytest.mark.parametrize("normalization", [None, "density"])
def test_laplacian_vanishes_on_constants(normalization: Normalization) -> None:
    lap = operator(random_graph(300, 0.2), normalization)
    constant = torch.full((300, 1), 1e6, dtype=torch.float64)
    assert float((lap @ constant).abs().max()) < 1e6 * 1e-15 * float(lap.deg.max())
    assert float(lap.quadratic(constant)) == 0.0


def test_quadratic_is_accurate_for_almost_constant_signals() -> None:
    f = 1e8 + torch.tensor([0.0, 1e-4, 2e-4], dtype=torch.float64)
    exact = (f.diff() ** 2).sum()
    assert float(operator(path(3)).quadratic(f)) == pytest.approx(float(exact))


def test_nrw_has_the_published_negative_eigenvalue() -> None:
    lap, W = operator(star(20), "nrw"), star(20).dense()
    low = oracles.smallest_eigenvalue(W, "nrw")
    assert low == pytest.approx(-0.129, abs=5e-4)
    assert lap.scaled_eigenvalue[0] == pytest.approx(low * float(lap.lam_scale))


@pytest.mark.parametrize("seed", [0, 1])
def test_lanczos_bounds_enclose_the_smallest_eigenvalue(seed: int) -> None:
    problem = random_graph(600, 0.02, seed)
    low, high = operator(problem, "nrw").scaled_eigenvalue
    W = problem.dense()
    exact = oracles.smallest_eigenvalue(W, "nrw") * oracles.lam_scale(W, "nrw")
    assert low <= exact + 1e-10
    assert high >= exact - 1e-10
    assert high - low <= 1e-5 * abs(exact)


@pytest.mark.parametrize("num_nodes", [1, 2, 50, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
def test_components_match_scipy(num_nodes: int, share: float) -> None:
    rng = np.random.default_rng(num_nodes)
    names = rng.permutation(num_nodes)
    keep = rng.random(num_nodes - 1) <= share
    pairs = torch.from_numpy(np.stack([names[:-1][keep], names[1:][keep]]))
    both = torch.cat([pairs, pairs.flip(0)], 1)
    lap = LaplacianOperator(both, None, num_nodes)
    ones = np.ones(both.size(1))
    matrix = coo_matrix((ones, tuple(both.numpy())), shape=(num_nodes, num_nodes))
    count, label = connected_components(matrix, directed=False)
    ours, size = lap.components
    assert size.numel() == count
    assert len(np.unique(np.stack([ours.numpy(), label]), axis=1).T) == count
    first = our_components(lap.pattern)
    assert bool((first <= torch.arange(num_nodes)).all())


@pytest.mark.parametrize("seed", range(20))
def test_components_of_random_graphs_match_scipy(seed: int) -> None:
    problem = random_graph(120, 0.012, seed)
    count, _ = connected_components(problem.dense(), directed=False)
    assert operator(problem).components[1].numel() == count


def layouts(problem: Problem) -> dict[str, tuple[object, Tensor | None]]:
    size = (problem.num_nodes, problem.num_nodes)
    coo = torch.sparse_coo_tensor(
        problem.edge_index, problem.edge_weight, size, check_invariants=True
    )
    coo = coo.coalesce()
    order = torch.randperm(
        problem.edge_index.size(1), generator=torch.Generator().manual_seed(3)
    )
    shuffled = problem.edge_index[:, order]
    edges = EdgeIndex(shuffled, sparse_size=size)
    by_col, back = EdgeIndex(problem.edge_index, sparse_size=size).sort_by("col")
    looped = add_self_loops(problem.edge_index, problem.edge_weight, 5.0, size[0])
    return {
        "shuffled": (shuffled, problem.edge_weight[order]),
        "int32": (problem.edge_index.int(), problem.edge_weight),
        "EdgeIndex": (edges, problem.edge_weight[order]),
        "by column": (by_col, problem.edge_weight[back]),
        "self-loops": looped,
        "coo": (coo, None),
        "csr": (coo.to_sparse_csr(), None),
        "csc": (coo.to_sparse_csc(), None),
    }


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(
    "name",
    ["shuffled", "int32", "EdgeIndex", "by column", "self-loops", "coo", "csr", "csc"],
)
def test_layouts_give_the_same_laplacian(
    name: str, normalization: Normalization
) -> None:
    problem = random_graph(40, 0.2)
    graph, weight = layouts(problem)[name]
    lap = LaplacianOperator(graph, weight, normalization=normalization)
    expected = operator(problem, normalization).to_dense()
    torch.testing.assert_close(lap.to_dense(), expected, rtol=1e-14, atol=1e-15)


def test_sparse_tensor_gives_the_same_laplacian() -> None:
    torch_sparse = pytest.importorskip("torch_sparse")
    problem = random_graph(40, 0.2)
    row, col = problem.edge_index
    for value in (problem.edge_weight, None):
        adj = torch_sparse.SparseTensor(
            row=row, col=col, value=value, sparse_sizes=(40, 40)
        )
        expected = LaplacianOperator(problem.edge_index, value, 40).to_dense()
        torch.testing.assert_close(LaplacianOperator(adj).to_dense(), expected)


def test_batch_scales_each_graph_by_its_own_average_degree() -> None:
    problem = two_components()
    batch = torch.tensor([5, 5, 5, 2, 2, 2, 2])
    lap = LaplacianOperator(
        problem.edge_index, problem.edge_weight, normalization="nrw", batch=batch
    )
    W = problem.dense()
    scales = [
        oracles.lam_scale(W[part, part], "nrw") for part in (slice(3), slice(3, 7))
    ]
    np.testing.assert_allclose(lap.lam_scale, np.repeat(scales, [3, 4]))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", ["isolated", "underflowing", "two components"])
def test_gradients_reach_weights_and_stay_finite(
    name: str, normalization: Normalization
) -> None:
    problem = PROBLEMS[name]()
    f = torch.linspace(-1, 1, problem.num_nodes, dtype=torch.float64).view(-1, 1)
    weight = problem.edge_weight.clone().requires_grad_()

    def energy(weight: Tensor, f: Tensor) -> Tensor:
        lap = LaplacianOperator(
            problem.edge_index, weight, len(f), normalization=normalization
        )
        return lap.quadratic(f).sum()

    energy(weight, f).backward()
    assert weight.grad is not None
    assert bool(weight.grad.isfinite().all())
    if name == "two components":
        inputs = (weight, f.clone().requires_grad_())
        assert torch.autograd.gradcheck(energy, inputs)
        assert torch.autograd.gradgradcheck(energy, inputs)


def test_gradients_are_equal_in_both_directions() -> None:
    problem = two_components()
    weight = problem.edge_weight.clone().requires_grad_()
    f = torch.arange(7.0, dtype=torch.float64)
    lap = LaplacianOperator(problem.edge_index, weight, 7, normalization="nrw")
    lap.quadratic(f).backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad[:6], weight.grad[6:])


def test_sparse_products_are_twice_differentiable(generator: torch.Generator) -> None:
    pattern = operator(two_components()).pattern
    values = torch.rand(pattern.num_edges, generator=generator, dtype=torch.float64)
    x, y = torch.randn(2, 7, 2, generator=generator, dtype=torch.float64).unbind()
    g = torch.randn(2, generator=generator, dtype=torch.float64)
    inputs = tuple(tensor.requires_grad_() for tensor in (values, x, y, g))

    def everything(v: Tensor, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        energy = edge_energy(pattern, g, x)
        return spmm(pattern, v, x), edge_dot(pattern, x, y), energy

    assert torch.autograd.gradcheck(everything, inputs)
    assert torch.autograd.gradgradcheck(everything, inputs)


@pytest.mark.parametrize("normalization", ["nrw", "density"])
@pytest.mark.parametrize("ids", [(0, 1), (7, 10**12), (2**63 - 1, 2**62)])
def test_graph_numbers_are_only_names(ids: tuple[int, int], normalization: str) -> None:
    """Average degrees of each graph, whatever it is called."""
    edges = torch.tensor([[0, 2, 2, 4, 1, 3], [2, 0, 4, 2, 3, 1]])
    batch = torch.tensor(ids)[torch.tensor([0, 1, 0, 1, 0])]
    lap = LaplacianOperator(edges, normalization=normalization, batch=batch)  # type: ignore[arg-type]
    path, pair = 1.0 + 4.0 / 3.0, 2.0  # with the self-weight
    expected = torch.tensor([path, pair, path, pair, path], dtype=torch.float64)
    torch.testing.assert_close(lap.lam_scale, expected)


@pytest.mark.parametrize(
    ("edges", "weight", "message"),
    [
        (
            [[0], [1]],
            None,
            "'edge_index' must hold both directions of every edge (got (0, 1) without "
            "(1, 0)). Use 'torch_geometric.utils.to_undirected'",
        ),
        (
            [[0, 1], [1, 0]],
            [1.0, 2.0],
            "'edge_weight' must be equal in both directions of every edge (got 1 for "
            "(0, 1), 2 for (1, 0))",
        ),
        ([[0, 1], [1, 0]], [-1.0, -1.0], "'edge_weight' must be non-negative (got -1)"),
        (
            [[0, 1], [1, 0]],
            [1.0],
            "'edge_weight' must have one entry per edge (got shape (1,) for 2)",
        ),
        (
            [[0, 9], [9, 0]],
            None,
            "'edge_index' must hold node indices from 0 to 2 (got 9)",
        ),
        (
            [[0, 1], [1, 0]],
            [float("nan")] * 2,
            "'edge_weight' must be finite (got nan at index 0, 2 such values)",
        ),
    ],
)
def test_bad_graphs_are_refused(
    edges: list[list[int]], weight: list[float] | None, message: str
) -> None:
    value = None if weight is None else torch.tensor(weight)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LaplacianOperator(torch.tensor(edges), value, 3)


def test_bad_matrices_and_batches_are_refused() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="must be square as a sparse matrix"):
        LaplacianOperator(torch.eye(3)[:2].to_sparse())
    with pytest.raises(ValueError, match="must be None when 'edge_index' is a sparse"):
        LaplacianOperator(torch.eye(3).to_sparse(), torch.ones(3))
    with pytest.raises(ValueError, match="both ends of every edge into one graph"):
        LaplacianOperator(edges, batch=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="must be one of None, 'nrw', 'density'"):
        LaplacianOperator(edges, normalization="rw")  # type: ignore[arg-type]
