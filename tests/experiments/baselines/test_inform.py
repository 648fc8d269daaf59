"""InFoRM's debiasing of results: their formula, in every form of the similarities."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings, strategies as st
from torch.autograd import gradcheck
from torch_geometric.data import Data

from experiments.baselines import inform_debias, inform_debias_graph
from pyg_glif.errors import ConvergenceError
from pyg_glif.functional import glif_smooth, laplacian_penalty
from pyg_glif.graph import annotator_graph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import CG, Cholesky
from pyg_glif.transforms import AnnotatorGraph


def published(result: Any, similarity: Any, alpha: float) -> Any:
    """(I + alpha L_S)^-1 Y, as InFoRM has it: SciPy's Laplacian, dense solve."""
    lap = scipy.sparse.csgraph.laplacian(np.array(similarity, dtype=np.float64))
    return np.linalg.solve(np.eye(len(lap)) + alpha * lap, result)


def similarities(seed: int, num_nodes: int = 12) -> Any:
    """Symmetric, some zero, ones on the diagonal, the last node alone."""
    rng = np.random.default_rng(seed)
    S = np.triu(rng.random((num_nodes, num_nodes)), 1)
    S[rng.random(S.shape) < 0.6] = 0.0
    S[:, -1] = 0.0
    return S + S.T + np.eye(num_nodes)


@given(seed=st.integers(0, 1000), alpha=st.floats(0.0, 100.0))
@settings(deadline=None, max_examples=25)
def test_inform_debias_is_the_published_formula(seed: int, alpha: float) -> None:
    S = similarities(seed)
    y = np.random.default_rng(seed + 1).normal(size=(12, 3))
    found = inform_debias(y, S, alpha, solver=Cholesky())
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, published(y, S, alpha), atol=1e-10)
    np.testing.assert_array_equal(found[-1], y[-1])  # nobody is similar to the last


def test_inform_debias_minimises_the_published_objective() -> None:
    S, alpha = similarities(3), 0.7
    y = np.random.default_rng(3).normal(size=12)
    lap = scipy.sparse.csgraph.laplacian(S)

    def objective(f: Any) -> float:
        return float(((f - y) ** 2).sum() + alpha * f @ lap @ f)

    found = inform_debias(y, S, alpha, solver=Cholesky())
    # Zero gradient of a strictly convex function.
    np.testing.assert_allclose(found - y + alpha * lap @ found, 0, atol=1e-12)
    assert objective(found) < objective(y)
    # Their measure of bias falls.
    edges = torch.from_numpy(np.array(S.nonzero()))
    bias = [
        float(laplacian_penalty(torch.from_numpy(f), edges, torch.from_numpy(S[S > 0])))
        for f in (y, found)
    ]
    np.testing.assert_allclose(bias, [f @ lap @ f for f in (y, found)])
    assert bias[1] < bias[0]


def forms(S: Any) -> dict[str, tuple[Any, Any]]:
    """One matrix in every accepted form, and the weights beside it."""
    dense = torch.from_numpy(S)
    edges = dense.nonzero().T
    sparse = dense.to_sparse_coo()
    return {
        "tensor": (dense, None),
        "array": (S, None),
        "list": (S.tolist(), None),
        "coo": (sparse, None),
        "csr": (sparse.to_sparse_csr(), None),
        "csc": (sparse.to_sparse_csc(), None),
        "scipy coo": (scipy.sparse.coo_matrix(S), None),
        "scipy csr": (scipy.sparse.csr_matrix(S), None),
        "scipy array": (scipy.sparse.csc_array(S), None),
        "edges": (edges, dense[edges[0], edges[1]]),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support:UserWarning")
@pytest.mark.parametrize("form", list(forms(similarities(0))))
def test_forms_of_similarity_agree(form: str, generator: torch.Generator) -> None:
    S = similarities(7)
    y = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    similarity, weight = forms(S)[form]
    found = inform_debias(y, similarity, 0.9, edge_weight=weight, solver=Cholesky())
    np.testing.assert_allclose(found.numpy(), published(y.numpy(), S, 0.9), atol=1e-12)


def test_sparse_tensor_and_edge_index(generator: torch.Generator) -> None:
    from torch_geometric import EdgeIndex

    S = similarities(7)
    y = torch.randn(12, generator=generator, dtype=torch.float64)
    edges, weight = forms(S)["edges"]
    found = inform_debias(y, EdgeIndex(edges), 0.9, edge_weight=weight)
    expected = published(y.numpy(), S, 0.9)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    torch_sparse = pytest.importorskip("torch_sparse")
    matrix = torch_sparse.SparseTensor.from_dense(torch.from_numpy(S))
    found = inform_debias(y, matrix, 0.9)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_truth_values_are_similarities() -> None:
    S = similarities(5) > 0
    y = np.arange(12.0)
    expected = published(y, S, 1.5)
    for similarity in (S, torch.from_numpy(S), scipy.sparse.csr_matrix(S)):
        found = inform_debias(y, similarity, 1.5, solver=Cholesky())
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_annotators_are_similarities(generator: torch.Generator) -> None:
    pairs = [[(0, 1), (1, 2)], [(0, 1)], [(3, 4), (0, 1)]]
    y = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    S = np.zeros((6, 6))
    for i, j, share in [(0, 1, 1.0), (1, 2, 1 / 3), (3, 4, 1 / 3)]:
        S[i, j] = S[j, i] = share
    edge_index, weight = annotator_graph(pairs, 6, combine="mean")
    found = inform_debias(
        y, edge_index, 2.0, edge_weight=weight.double(), solver=Cholesky()
    )
    expected = published(y.numpy(), S, 2.0)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    # The same people and judgements through the transform and GLIF itself.
    data = AnnotatorGraph(pairs, combine="mean")(Data(y_hat=y, num_nodes=6))
    glif = glif_smooth(y, data.edge_index, data.edge_weight, lam=2.0, solver=Cholesky())
    np.testing.assert_allclose(glif.numpy(), expected, atol=1e-6)
    assert torch.equal(found[5], y[5])


def test_what_goes_in_comes_out() -> None:
    pandas = pytest.importorskip("pandas")
    S = similarities(1)
    y = np.arange(12, dtype=np.float32)
    assert inform_debias(y, S, 1.0).dtype == np.float32
    frame = pandas.DataFrame({"pagerank": y}, index=list("abcdefghijkl"))
    found = inform_debias(frame, pandas.DataFrame(S), 1.0)
    assert list(found.columns) == ["pagerank"]
    assert list(found.index) == list(frame.index)
    tensor = inform_debias(torch.from_numpy(y), torch.from_numpy(S), 1.0)
    assert tensor.dtype == torch.float32


def test_zero_strength_returns_the_result() -> None:
    y = np.arange(12.0)
    np.testing.assert_array_equal(inform_debias(y, similarities(1), 0.0), y)


def test_gradients_reach_result_strength_and_similarities() -> None:
    S = torch.from_numpy(similarities(2, 5))
    upper = torch.triu(S, 1).clone().requires_grad_()
    y = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)

    def debias(y: Any, upper: Any, alpha: Any) -> Any:
        # The pattern is fixed: a zero has no neighbour to become.
        kept = torch.where(S > 0, upper, 0.0).triu(1)
        return inform_debias(y, kept + kept.T, alpha, solver=Cholesky())

    assert gradcheck(debias, (y, upper, alpha), atol=1e-6)


def test_failure_to_converge_raises() -> None:
    y = np.random.default_rng(0).normal(size=12)
    with pytest.raises(ConvergenceError):
        inform_debias(y, similarities(4), 100.0, solver=CG(max_iter=1))


@pytest.mark.parametrize(
    ("result", "similarity", "alpha", "weight", "error", "message"),
    [
        (
            torch.zeros(2, 1, 1),
            torch.eye(2),
            1.0,
            None,
            ValueError,
            "'result' must be 1-dimensional or 2-dimensional (got shape (2, 1, 1))",
        ),
        (
            torch.tensor([0.0, torch.nan]),
            torch.eye(2),
            1.0,
            None,
            ValueError,
            "'result' must be finite (got nan at index 1, 1 such values)",
        ),
        (
            torch.zeros(2),
            torch.eye(2),
            -1.0,
            None,
            ValueError,
            "'alpha' must be non-negative (got -1.0)",
        ),
        (
            torch.zeros(3),
            torch.ones(3, 2),
            1.0,
            None,
            ValueError,
            "'similarity' must be 3 x 3, one row per row of 'result' (got 3 x 2)",
        ),
        (
            torch.zeros(2),
            torch.tensor([[0.0, 0.5], [0.1, 0.0]]),
            1.0,
            None,
            ValueError,
            "'similarity' must be symmetric (got entries that differ by 0.4). "
            "Use '(similarity + similarity.T) / 2'",
        ),
        (
            torch.zeros(2),
            torch.tensor([[0.0, -0.5], [-0.5, 0.0]]),
            1.0,
            None,
            ValueError,
            "'similarity' must be non-negative (got -0.5)",
        ),
        (
            torch.zeros(2),
            torch.tensor([[0, 1]]),
            1.0,
            None,
            ValueError,
            "'similarity' must have shape [2, num_edges] (got (1, 2))",
        ),
        (
            torch.zeros(2),
            torch.tensor([[0, 2], [2, 0]]),
            1.0,
            None,
            ValueError,
            "'similarity' must hold node indices from 0 to 1 (got 2)",
        ),
        (
            torch.zeros(2),
            torch.eye(2),
            1.0,
            torch.ones(2),
            ValueError,
            "'edge_weight' must be None when 'similarity' is a matrix. "
            "Its values are the weights",
        ),
        (
            torch.zeros(2),
            torch.tensor([[0, 1], [1, 0]]),
            1.0,
            torch.ones(3),
            ValueError,
            "'edge_weight' must have one entry per edge (got shape (3,) for 2)",
        ),
        (
            torch.zeros(2),
            [["a", "b"], ["b", "a"]],
            1.0,
            None,
            TypeError,
            "'similarity' must hold numbers (got <U1). "
            "Encode text, categories and dates first, or use "
            "'pyg_glif.tables.FairTable'",
        ),
    ],
)
def test_inform_debias_rejects(
    result: Any,
    similarity: Any,
    alpha: float,
    weight: Any,
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        inform_debias(result, similarity, alpha, edge_weight=weight)


def test_half_precision_similarities_are_taken_as_they_are() -> None:
    similarity = torch.tensor([[0.0, 0.1], [0.1, 0.0]]).half()
    y = torch.tensor([0.0, 3.0])
    expected = inform_debias(y, similarity.float(), 2.0)
    assert torch.equal(inform_debias(y, similarity, 2.0), expected)


def test_debiased_graph_descends_its_objective():
    rng = np.random.default_rng(0)
    similar = np.triu(rng.random((6, 6)), 1)
    similar += similar.T
    L = np.diag(similar.sum(1)) - similar
    mix = rng.normal(size=(6, 5))  # outputs depend on five weights
    edges = np.stack(np.nonzero(similar))
    lap = LaplacianOperator(torch.tensor(edges), torch.tensor(similar[tuple(edges)]))
    given, alpha = rng.random(5), 0.02
    found = inform_debias_graph(
        lambda w: torch.tensor(mix) @ w, torch.tensor(given), lap, alpha, num_steps=300
    )
    # Its minimum where no weight is at zero: w - given + alpha M'LM w = 0.
    best = np.linalg.solve(np.eye(5) + alpha * mix.T @ L @ mix, given)
    assert (best > 0).all()
    np.testing.assert_allclose(found.numpy(), best, atol=1e-8)
    two = inform_debias_graph(
        lambda w: torch.tensor(mix) @ w,
        torch.tensor(given),
        lap,
        alpha,
        start=found,
        num_steps=1,
    )
    torch.testing.assert_close(two, found)  # at the minimum nothing changes


def test_debiased_weights_stay_non_negative():
    lap = LaplacianOperator(torch.tensor([[0, 1], [1, 0]]))
    found = inform_debias_graph(
        lambda w: torch.stack([w[0] + 3.0, -w[0]]), torch.ones(1), lap, 10.0, lr=0.01
    )
    assert found.tolist() == [0.0]
    with pytest.raises(ValueError, match="'num_steps' must be"):
        inform_debias_graph(lambda w: w, torch.ones(2), lap, 1.0, num_steps=0)


def test_a_laplacian_will_do():
    similarity = similarities(3)
    result = torch.tensor(np.random.default_rng(3).normal(size=12))
    edges = torch.tensor(np.stack(np.nonzero(similarity)))
    weight = torch.tensor(np.array(similarity)[np.nonzero(similarity)])
    lap = LaplacianOperator(edges, weight, 12)
    np.testing.assert_allclose(
        inform_debias(result, lap, 0.7).numpy(),
        published(result.numpy(), similarity, 0.7),
        atol=1e-6,
    )
