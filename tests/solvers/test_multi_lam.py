"""Several systems side by side, against dense solves."""

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.solvers import SolveStatus
from pyg_glif.solvers.multi_lam import solve_parts
from tests import oracles


@given(
    seed=st.integers(0, 2**31 - 1),
    num_nodes=st.integers(1, 40),
    num_parts=st.integers(1, 4),
    num_columns=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_parts_are_solved_as_graphs_of_their_own(
    seed: int, num_nodes: int, num_parts: int, num_columns: int
) -> None:
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((num_nodes, num_nodes)), 1)
    W *= rng.random((num_nodes, num_nodes)) < rng.random()
    W += W.T
    part = rng.random((num_nodes, num_parts)) < 0.7
    y = rng.normal(size=(num_nodes, num_parts, num_columns)) * part[:, :, None]
    strengths = 10.0 ** rng.uniform(-3, 3, size=3)
    value, degree, status = solve_parts(
        torch.from_numpy(W).to_sparse_csr(),
        torch.from_numpy(part).double(),
        torch.from_numpy(strengths),
        torch.from_numpy(y),
    )
    np.testing.assert_allclose(degree, W @ part, rtol=1e-12, atol=1e-12)
    assert value.shape == (num_nodes, num_parts, 3, num_columns)
    for p in range(num_parts):
        inside = part[:, p]
        assert not value[~inside, p].any()
        assert status[p] == [SolveStatus.CONVERGED] * 3
        for k, lam in enumerate(strengths):
            own = W[np.ix_(inside, inside)]
            expected = oracles.smooth(own, y[inside, p], lam, None)
            # A residual bounds the error: the smallest eigenvalue is at least one.
            error = np.linalg.norm(value[inside, p, k].numpy() - expected, axis=0)
            assert (error <= 1.1e-6 * np.linalg.norm(y[:, p], axis=0) + 1e-12).all()


def test_what_rounding_may_spoil_is_left_to_others() -> None:
    W = (torch.ones(30, 30) - torch.eye(30)).double().to_sparse_csr()
    part = torch.ones(30, 1, dtype=torch.float64)
    y = torch.linspace(-1.0, 1.0, 30, dtype=torch.float64).view(30, 1, 1)
    strengths = torch.tensor([1.0, 1e12], dtype=torch.float64)
    value, _, status = solve_parts(W, part, strengths, y)
    assert status == [[SolveStatus.CONVERGED, SolveStatus.STAGNATED]]
    torch.testing.assert_close(value[:, 0, 0], y[:, 0] / 31, rtol=0.0, atol=1e-5)
