"""GLIFConv in steps: eq. 3.7 in NumPy, bounds, layouts, gradients, PyG manners."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import set_masks
from torch_geometric.utils import add_self_loops, k_hop_subgraph

from pyg_glif._utils.optional import find
from pyg_glif.errors import ConvergenceWarning
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Softmax
from pyg_glif.nn import GLIFConv
from pyg_glif.typing import Normalization
from tests import oracles_theory as oracle

NORMALIZATIONS: list[Normalization] = [None, "density", "nrw"]


def random_graph(seed: int, num_nodes: int = 10) -> tuple[np.ndarray, Tensor, Tensor]:
    """Uneven degrees, the last node isolated: dense and as edges."""
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((num_nodes, num_nodes)) * 2, 1)
    W[rng.random(W.shape) < 0.6] = 0.0
    W[0, 1 : num_nodes - 1] = 1.0
    W[:, -1] = 0.0
    W = W + W.T
    edge_index, weight = oracle.edges(W)
    return W, torch.from_numpy(edge_index), torch.from_numpy(weight)


def signal(seed: int, num_nodes: int = 10) -> Tensor:
    rng = np.random.default_rng(seed + 1000)
    return torch.from_numpy(rng.normal(size=(num_nodes, 3)))


def system(W: np.ndarray, lam: float, normalization: Normalization) -> np.ndarray:
    """``I + lam L``, written from the definitions of the paper."""
    num_nodes = len(W)
    if normalization is None:
        return np.eye(num_nodes) + lam * (np.diag(W.sum(1)) - W)
    looped = W + np.eye(num_nodes)
    deg = looped.sum(1)
    scaled = looped / np.sqrt(np.outer(deg, deg))
    if normalization == "density":
        L = np.diag(scaled.sum(1)) - scaled
    else:
        L = np.eye(num_nodes) - scaled / scaled.sum(1)[:, None]
        L = 0.5 * (L + L.T)
    return np.eye(num_nodes) + lam * deg.mean() * L


def jacobi(A: np.ndarray, y: np.ndarray, num_steps: int) -> np.ndarray:
    """Eq. 3.7 for all coordinates at once."""
    f = y.copy()
    own = np.diag(A)[:, None]
    for _ in range(num_steps):
        f = (y - (A @ f - own * f)) / own
    return f


def chebyshev(A: np.ndarray, y: np.ndarray, num_steps: int) -> np.ndarray:
    """The polynomial of the semi-iteration, by eigenvalues instead of a recurrence."""
    root = np.sqrt(np.diag(A))
    eigenvalue, vectors = np.linalg.eigh(np.eye(len(A)) - A / np.outer(root, root))
    rho = 1.0 - 1.0 / np.diag(A).max()
    kind = np.polynomial.chebyshev.Chebyshev.basis(num_steps)
    factor = kind(eigenvalue / rho) / kind(1.0 / rho)
    exact = np.linalg.solve(A, y)
    error = vectors @ (factor[:, None] * (vectors.T @ (root[:, None] * (y - exact))))
    return exact + error / root[:, None]


@pytest.mark.parametrize("num_steps", [1, 2, 7])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_steps_match_eq_3_7(normalization: Normalization, num_steps: int) -> None:
    W, edge_index, weight = random_graph(3)
    x = signal(3)
    expected = jacobi(system(W, 0.7, normalization), x.numpy(), num_steps)
    conv = GLIFConv(0.7, normalization, num_steps=num_steps)
    np.testing.assert_allclose(conv(x, edge_index, weight), expected, rtol=1e-10)
    single = conv(x.float(), edge_index, weight.float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, rtol=2e-4, atol=2e-5)
    flat = conv(x[:, 0], edge_index, weight)
    np.testing.assert_allclose(flat, expected[:, 0], rtol=1e-10)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 8])
@pytest.mark.parametrize("normalization", [None, "density"])
def test_accelerated_steps_are_chebyshev_polynomials(
    normalization: Normalization, num_steps: int
) -> None:
    W, edge_index, weight = random_graph(4)
    x = signal(4)
    expected = chebyshev(system(W, 2.0, normalization), x.numpy(), num_steps)
    conv = GLIFConv(2.0, normalization, num_steps=num_steps, accelerated=True)
    np.testing.assert_allclose(conv(x, edge_index, weight), expected, atol=1e-10)


@given(
    seed=st.integers(0, 10_000),
    lam=st.floats(0.0, 20.0),
    num_steps=st.integers(1, 30),
    normalization=st.sampled_from([None, "density"]),
    accelerated=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_error_of_steps_is_within_both_bounds(
    seed: int,
    lam: float,
    num_steps: int,
    normalization: Normalization,
    accelerated: bool,
) -> None:
    W, edge_index, weight = random_graph(seed)
    x = signal(seed)
    options: dict[str, Any] = {"num_steps": num_steps, "accelerated": accelerated}
    conv = GLIFConv(lam, normalization, **options)
    exact = np.linalg.solve(system(W, lam, normalization), x.numpy())
    out = conv(x, edge_index, weight)
    error = np.abs(out.numpy() - exact)
    prior = conv.error_bound(x, edge_index, weight).numpy()
    assert (error.max(0) <= prior + 1e-11).all()
    solution = conv.solve(x, edge_index, weight)
    assert torch.equal(solution.value, out)
    assert solution.status.name == "EPOCHS_DONE"
    assert solution.num_iter == num_steps
    norm = np.linalg.norm(error, axis=0)
    assert (norm <= solution.error_bound.numpy() + 1e-12).all()
    residual = x.numpy() - system(W, lam, normalization) @ out.numpy()
    expected = np.linalg.norm(residual, axis=0)
    np.testing.assert_allclose(solution.residual, expected, atol=1e-11)
    if not accelerated:  # averages of inputs
        assert (out.amax(0) <= x.amax(0) + 1e-12).all()
        assert (out.amin(0) >= x.amin(0) - 1e-12).all()
        constant = torch.full_like(x, 0.3)
        torch.testing.assert_close(conv(constant, edge_index, weight), constant)


def test_lam_of_zero_and_isolated_nodes_change_nothing() -> None:
    _, edge_index, weight = random_graph(5)
    x = signal(5).softmax(1)
    for link in (None, Softmax()):
        out = GLIFConv(0.0, num_steps=4, link=link)(x, edge_index, weight)
        assert torch.equal(out, x)
        out = GLIFConv(3.0, num_steps=4, link=link)(x, edge_index, weight)
        assert torch.equal(out[-1], x[-1])
        assert not torch.equal(out, x)


def test_steps_of_a_link_are_taken_in_dual_coordinates() -> None:
    W, edge_index, weight = random_graph(6)
    x = signal(6)
    eta = jacobi(system(W, 1.0, None), x.log_softmax(1).numpy(), 5)
    out = GLIFConv(link=Softmax(), num_steps=5)(x.softmax(1), edge_index, weight)
    torch.testing.assert_close(out, torch.from_numpy(eta).softmax(1))


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support is in beta")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # by SparseTensor
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_steps_take_every_layout(normalization: Normalization) -> None:
    W, edge_index, weight = random_graph(7)
    x = signal(7).requires_grad_()
    conv = GLIFConv(0.6, normalization, num_steps=3)
    expected = torch.from_numpy(
        jacobi(system(W, 0.6, normalization), x.detach().numpy(), 3)
    )
    dense = torch.from_numpy(W)
    order = torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))
    looped = add_self_loops(edge_index, weight, fill_value=5.0, num_nodes=10)
    operator = LaplacianOperator(
        edge_index, weight, num_nodes=10, normalization=normalization
    )
    graphs: dict[str, tuple[Any, ...]] = {
        "edges": (edge_index, weight),
        "shuffled": (edge_index[:, order], weight[order]),
        "EdgeIndex": (EdgeIndex(edge_index, sparse_size=(10, 10)), weight),
        "self-loops": looped,
        "COO": (dense.to_sparse(),),
        "CSR": (dense.to_sparse_csr(),),
        "CSR with loops": ((dense + 5 * torch.eye(10)).to_sparse_csr(),),
        "CSC": (dense.to_sparse_csc(),),
        "operator": (operator,),
    }
    torch_sparse = find("torch_sparse")
    if torch_sparse is not None:
        adj = torch_sparse.SparseTensor.from_edge_index(edge_index, weight, (10, 10))
        graphs["SparseTensor"] = (adj,)
    (slope,) = torch.autograd.grad(conv(x, edge_index, weight).square().sum(), x)
    for name, graph in graphs.items():
        out = conv(x, *graph)
        torch.testing.assert_close(out, expected, msg=name)
        (found,) = torch.autograd.grad(out.square().sum(), x)
        torch.testing.assert_close(found, slope, msg=name)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_gradients_of_steps_match_finite_differences(
    normalization: Normalization, accelerated: bool
) -> None:
    if accelerated and normalization == "nrw":
        pytest.skip("no bound on the spectrum")
    _, edge_index, weight = random_graph(8)
    options: dict[str, Any] = {"num_steps": 3, "accelerated": accelerated}
    conv = GLIFConv(0.3, normalization, learn_lam=True, **options).double()

    def smooth(x: Tensor, weight: Tensor, log_lam: Tensor) -> Tensor:
        parameters = {"log_lam": log_lam}
        return torch.func.functional_call(conv, parameters, (x, edge_index, weight))

    log_lam = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    x, weight = signal(8).requires_grad_(), weight.requires_grad_()
    assert gradcheck(smooth, (x, weight, log_lam))


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_steps_on_a_batch_equal_those_on_its_members(
    normalization: Normalization, accelerated: bool
) -> None:
    accelerated = accelerated and normalization != "nrw"
    conv = GLIFConv(0.5, normalization, num_steps=4, accelerated=accelerated)
    graphs = []
    for seed, num_nodes in ((1, 5), (2, 9)):
        _, edge_index, weight = random_graph(seed, num_nodes)
        x = signal(seed, num_nodes)
        graphs.append(Data(x=x, edge_index=edge_index, edge_weight=weight))
    batch = Batch.from_data_list(graphs)
    out = conv(batch.x, batch.edge_index, batch.edge_weight, batch=batch.batch)
    each = [conv(data.x, data.edge_index, data.edge_weight) for data in graphs]
    torch.testing.assert_close(out, torch.cat(each))


# --- In the company of PyG ---------------------------------------------------


def test_hooks_fire_once_for_each_step() -> None:
    W, edge_index, weight = random_graph(9)
    x, calls = signal(9), []
    conv = GLIFConv(num_steps=4)
    conv.register_propagate_forward_hook(lambda *_: calls.append("propagate"))
    conv.register_message_forward_hook(lambda *_: calls.append("message"))
    conv.register_message_and_aggregate_forward_hook(lambda *_: calls.append("fused"))
    conv(x, edge_index, weight)
    assert calls == ["message", "propagate"] * 4
    calls.clear()
    conv(x, torch.from_numpy(W).to_sparse_csr())
    assert calls == ["fused", "propagate"] * 4


def test_decomposed_layers_give_the_same() -> None:
    _, edge_index, weight = random_graph(10)
    x = signal(10)
    expected = GLIFConv(num_steps=4)(x, edge_index, weight)
    conv = GLIFConv(num_steps=4, decomposed_layers=2)
    torch.testing.assert_close(conv(x, edge_index, weight), expected)


def test_explainer_mask_scales_the_weights_of_messages() -> None:
    W, edge_index, weight = random_graph(11)
    x = signal(11)
    mask = torch.linspace(0.1, 0.9, len(weight), dtype=torch.float64)
    conv = GLIFConv(0.8, num_steps=3)
    masked = np.zeros_like(W)
    masked[tuple(edge_index.numpy()[::-1])] = (mask * weight).numpy()
    expected = jacobi(system(masked, 0.8, None), x.numpy(), 3)
    set_masks(conv, mask, edge_index, apply_sigmoid=False)
    np.testing.assert_allclose(conv(x, edge_index, weight), expected)
    explainer = Explainer(
        GLIFConv(num_steps=2),
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type=None,
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node"},
    )
    found = explainer(x, edge_index, edge_weight=weight, index=0)
    assert found.edge_mask.shape == weight.shape


@pytest.mark.parametrize("num_steps", [1, 2])
def test_steps_on_sampled_hops_are_those_on_the_whole_graph(num_steps: int) -> None:
    edges = torch.stack([torch.arange(11), torch.arange(1, 12)])
    edges = torch.cat([edges, edges.flip(0), torch.tensor([[2, 7], [7, 2]])], dim=1)
    x = signal(12, 12)
    conv = GLIFConv(1.5, num_steps=num_steps)
    expected = conv(x, edges)
    for node in range(12):
        # What a sampler of all neighbors returns: edges towards nodes closer than K.
        near, _, _, mask = k_hop_subgraph(node, num_steps - 1, edges, num_nodes=12)
        mask = torch.isin(edges[1], near)
        nodes, index = torch.cat([near, edges[:, mask].flatten()]).unique(
            return_inverse=True
        )
        sampled = index[len(near) :].view(2, -1)
        seed = int((nodes == node).nonzero())
        torch.testing.assert_close(conv(x[nodes], sampled)[seed], expected[node])


@pytest.mark.parametrize("num_steps", [None, 1, 5])
def test_pair_of_signals_takes_the_inductive_step(num_steps: int | None) -> None:
    rng = np.random.default_rng(13)
    W = rng.random((4, 6)) * (rng.random((4, 6)) < 0.5)  # new by fitted
    W[2] = 0.0
    f, y = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    expected = (y + 0.9 * W @ f) / (1.0 + 0.9 * W.sum(1, keepdims=True))
    new, known = W.nonzero()
    pair = torch.from_numpy(f), torch.from_numpy(y)
    conv = GLIFConv(0.9, num_steps=num_steps)
    edges = torch.from_numpy(np.stack([known, new]))
    out = conv(pair, edges, torch.from_numpy(W[new, known]))
    np.testing.assert_allclose(out, expected)
    assert torch.equal(out[2], pair[1][2])
    matrix = torch.from_numpy(W).to_sparse_csr()
    np.testing.assert_allclose(conv(pair, matrix), expected)
    with pytest.raises(ValueError, match="'normalization' must be"):
        GLIFConv(normalization="density", num_steps=1)(pair, edges)


class Network(torch.nn.Module):
    """A classifier head with the layer behind it."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.head, self.smooth = torch.nn.Linear(3, 2), GLIFConv(0.5, **options)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = self.smooth(self.head(x), edge_index, weight)
        return out


OPTIONS: list[dict[str, Any]] = [
    {"num_steps": 3},
    {"num_steps": 3, "normalization": "nrw", "learn_lam": True},
    {"num_steps": 3, "normalization": "density", "accelerated": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_steps_compile_without_a_break(options: dict[str, Any]) -> None:
    _, edge_index, weight = random_graph(14)
    inputs = signal(14).float(), edge_index, weight.float()
    network = Network(**options)
    expected = network(*inputs)
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    out = compiled(*inputs)
    torch.testing.assert_close(out, expected)
    wanted = torch.autograd.grad(expected.sum(), network.head.weight)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), network.head.weight), wanted
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("options", OPTIONS)
def test_steps_export(options: dict[str, Any]) -> None:
    _, edge_index, weight = random_graph(15)
    inputs = signal(15).float(), edge_index, weight.float()
    network = Network(**options)
    program = torch.export.export(network, inputs).module()
    torch.testing.assert_close(program(*inputs), network(*inputs))


def test_nrw_without_a_minimum_is_returned_and_said() -> None:
    """A star of 20 leaves: the paper's procedure runs where there is no minimum."""
    leaves = torch.arange(1, 21)
    edges = torch.stack([torch.zeros_like(leaves), leaves])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    W = np.zeros((21, 21))
    W[tuple(edges.numpy())] = 1.0
    x = signal(16, 21)
    A = system(W, 10.0, "nrw")
    assert np.linalg.eigvalsh(A).min() < 0
    conv = GLIFConv(10.0, "nrw", num_steps=3)
    with pytest.warns(ConvergenceWarning, match="has no minimum"):
        solution = conv.solve(x, edges)
    np.testing.assert_allclose(solution.value, jacobi(A, x.numpy(), 3), rtol=1e-9)
    assert solution.status.name == "INDEFINITE"
    assert bool(solution.error_bound.isinf().all())
    with pytest.raises(ValueError, match="'normalization' must be"):
        conv.error_bound(x, edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 0}, "'num_steps' must be"),
        ({"num_steps": 2, "cached": True}, "'cached' must be left out"),
        ({"num_steps": 2, "balance": True}, "'balance' must be left out"),
        ({"accelerated": True}, "'accelerated' must be False without 'num_steps'"),
        (
            {"num_steps": 2, "accelerated": True, "normalization": "nrw"},
            "'normalization' must be one of None, 'density' (got 'nrw')",
        ),
    ],
)
def test_steps_reject_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFConv(**options)


def test_steps_reject_what_belongs_to_the_exact_solution() -> None:
    W, edge_index, weight = random_graph(17)
    x, conv = signal(17), GLIFConv(num_steps=2)
    with pytest.raises(ValueError, match="'y_std' must be None"):
        conv(x, edge_index, weight, y_std=torch.ones(10))
    with pytest.raises(ValueError, match="'edge_weight' must be None"):
        conv(x, torch.from_numpy(W).to_sparse_csr(), weight)
    with pytest.raises(ValueError, match="'edge_weight' must have one entry per edge"):
        conv(x, edge_index, weight[1:])
    with pytest.raises(ValueError, match="'edge_index' must have shape"):
        conv(x, edge_index.T, weight)
    with pytest.raises(TypeError, match="'x' must be"):
        conv(torch.arange(10), edge_index)
    with pytest.raises(ValueError, match="'x' must be two signals of equal width"):
        conv((x, x[:, :2]), edge_index)
    with pytest.raises(ValueError, match="'num_steps' must be given"):
        GLIFConv().error_bound(x, edge_index, weight)
    with pytest.raises(ValueError, match="'batch' must be None"):
        conv((x, x), edge_index, weight, batch=torch.zeros(10, dtype=torch.long))


def test_steps_on_nothing_and_repr() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    x = torch.tensor([[1.0], [2.0]])
    for accelerated in (False, True):
        conv = GLIFConv(5.0, num_steps=3, accelerated=accelerated)
        assert torch.equal(conv(x, empty), x)
        assert conv(torch.empty(0, 3), empty).shape == (0, 3)
        assert float(conv.error_bound(x, empty)) == 0.0
    expected = "GLIFConv(lam=5, normalization=None, num_steps=3, accelerated=True)"
    assert str(conv) == expected
