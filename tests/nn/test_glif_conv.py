"""GLIFConv: values against dense NumPy, learned lam, cache, PyG manners."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCNConv, Sequential, SimpleConv

from pyg_glif.functional import glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link, Log, Logit
from pyg_glif.nn import GLIFConv
from pyg_glif.solvers import CG
from pyg_glif.typing import Normalization
from tests import oracles_theory as oracle

NORMALIZATIONS: list[Normalization] = [None, "density", "nrw"]
Graph = tuple[np.ndarray, Tensor, Tensor]


@pytest.fixture
def graph() -> Graph:
    """Ten nodes, uneven degrees, the last one isolated: dense and as edges."""
    rng = np.random.default_rng(3)
    W = np.triu(rng.random((10, 10)) * 2, 1)
    W[rng.random(W.shape) < 0.6] = 0.0
    W[0, 1:9] = 1.0
    W[:, 9] = 0.0
    W = W + W.T
    edge_index, edge_weight = oracle.edges(W)
    return W, torch.from_numpy(edge_index), torch.from_numpy(edge_weight)


def signal(num_nodes: int, generator: torch.Generator) -> Tensor:
    return torch.randn(num_nodes, 3, generator=generator, dtype=torch.float64)


def test_glif_conv_repr() -> None:
    assert str(GLIFConv()) == "GLIFConv(lam=1, normalization=None)"
    conv = GLIFConv(0.5, "density", link=Logit(), learn_lam=True)
    expected = "lam=0.5, normalization='density', link=Logit(eps=None), learn_lam=True"
    assert str(conv) == f"GLIFConv({expected})"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_glif_conv_by_hand(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0], [3.0], [7.0]], dtype=dtype)
    edge_index = torch.tensor([[0, 1], [1, 0]])
    out = GLIFConv()(x, edge_index)
    torch.testing.assert_close(out, torch.tensor([[1.0], [2.0], [7.0]], dtype=dtype))
    assert GLIFConv()(x.flatten(), edge_index).shape == (3,)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("link", [None, Log()])
def test_layer_is_the_function(
    normalization: Normalization,
    link: Link | None,
    graph: Graph,
    generator: torch.Generator,
) -> None:
    W, edge_index, weight = graph
    x = signal(10, generator).exp()
    options = {"normalization": normalization, "link": link, "solver": CG(rtol=1e-12)}
    conv = GLIFConv(0.2, **options)
    dual = x.numpy() if link is None else x.log().numpy()
    expected = oracle.smooth(W, dual, 0.2, normalization)
    expected = expected if link is None else np.exp(expected)
    np.testing.assert_allclose(conv(x, edge_index, weight), expected, rtol=1e-8)
    batch = torch.tensor([0] * 9 + [1])
    function = glif_smooth(x, edge_index, weight, lam=0.2, batch=batch, **options)
    assert torch.equal(conv(x, edge_index, weight, batch), function)
    if normalization != "nrw":
        y_std = torch.rand(10, generator=generator) + 0.5
        options["y_std"] = y_std
        function = glif_smooth(x, edge_index, weight, lam=0.2, **options)
        assert torch.equal(conv(x, edge_index, weight, y_std=y_std), function)


def sparse(edge_index: Tensor, weight: Tensor) -> Tensor:
    """A sparse matrix; torch warns without a choice whether to check it."""
    size = (10, 10)
    matrix = torch.sparse_coo_tensor(edge_index, weight, size, check_invariants=True)
    return matrix.coalesce()


def test_learned_lam_stays_positive_and_learns(
    graph: Graph, generator: torch.Generator
) -> None:
    W, edge_index, weight = graph
    x = signal(10, generator)
    target = torch.from_numpy(oracle.smooth(W, x.numpy(), 2.0))
    conv = GLIFConv(lam=0.01, learn_lam=True)
    assert conv.lam.item() == pytest.approx(0.01)
    assert [name for name, _ in conv.named_parameters()] == ["log_lam"]
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.2)
    for _ in range(150):
        loss = (conv(x, edge_index, weight) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert conv.lam.item() > 0
    assert conv.lam.item() == pytest.approx(2.0, rel=0.05)
    conv.reset_parameters()
    assert conv.lam.item() == pytest.approx(0.01)


def test_learned_lam_travels_in_the_state_dict() -> None:
    one, other = GLIFConv(3.0, learn_lam=True), GLIFConv(1.0, learn_lam=True)
    other.load_state_dict(one.state_dict())
    assert other.lam.item() == pytest.approx(3.0)
    assert GLIFConv(3.0).state_dict() == {}


# --- The cache ---------------------------------------------------------------


class Counter(LaplacianOperator):
    """Counts how often a graph is prepared."""

    built = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        type(self).built += 1
        super().__init__(*args, **kwargs)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    monkeypatch.setattr("pyg_glif.nn.glif_conv.LaplacianOperator", Counter)
    monkeypatch.setattr(Counter, "built", 0)
    return Counter


def test_cached_prepares_a_graph_once(
    graph: Graph, counter: type[Counter], generator: torch.Generator
) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator)
    fresh, cached = GLIFConv(), GLIFConv(cached=True)
    expected = fresh(x, edge_index, weight)
    counter.built = 0
    for _ in range(3):
        assert torch.equal(cached(x, edge_index, weight), expected)
    assert counter.built == 1
    cached.reset_parameters()
    cached(x, edge_index, weight)
    assert counter.built == 2


def test_cache_notices_another_or_modified_graph(
    graph: Graph, counter: type[Counter], generator: torch.Generator
) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator)
    fresh, cached = GLIFConv(), GLIFConv(cached=True)
    cached(x, edge_index, weight)
    weight = weight * 2
    assert torch.equal(cached(x, edge_index, weight), fresh(x, edge_index, weight))
    weight.mul_(3)
    assert torch.equal(cached(x, edge_index, weight), fresh(x, edge_index, weight))
    assert torch.equal(cached(x, edge_index), fresh(x, edge_index))
    more = torch.cat([x, x[:2]])  # two isolated nodes
    assert torch.equal(cached(more, edge_index), fresh(more, edge_index))
    matrix = sparse(edge_index, weight).to_sparse_csr()
    assert torch.equal(cached(x, matrix), fresh(x, matrix))
    counter.built = 0
    cached(x, matrix)
    assert counter.built == 0
    matrix.values().mul_(0.5)
    assert torch.equal(cached(x, matrix), fresh(x, matrix))


def test_cache_never_loses_a_gradient(graph: Graph, generator: torch.Generator) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator)
    conv = GLIFConv(normalization="density", learn_lam=True, cached=True)
    with torch.inference_mode():
        first = conv(x, edge_index, weight)
    x.requires_grad_()
    out = conv(x, edge_index, weight)  # prepared in inference mode
    out.sum().backward()
    assert torch.equal(first, out.detach())
    weight.requires_grad_()
    with torch.no_grad():
        conv(x, edge_index, weight)
    for _ in range(2):
        weight.grad = None
        conv(x, edge_index, weight).square().sum().backward()
        assert weight.grad is not None


def test_cached_layer_can_be_copied(graph: Graph, generator: torch.Generator) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator)
    conv = GLIFConv(cached=True)
    expected = conv(x, edge_index, weight)
    twin = copy.deepcopy(conv)
    assert torch.equal(twin(x, edge_index, weight), expected)


# --- In the company of PyG ---------------------------------------------------


def test_glif_conv_in_sequential(graph: Graph, generator: torch.Generator) -> None:
    _, edge_index, weight = graph
    head = torch.nn.Linear(8, 2)
    model = Sequential(
        "x, edge_index, edge_weight",
        [
            (GCNConv(3, 8), "x, edge_index, edge_weight -> h"),
            (torch.nn.ReLU(), "h -> h"),
            (head, "h -> h"),
            (GLIFConv(lam=2.0, learn_lam=True), "h, edge_index, edge_weight -> h"),
        ],
    )
    dtype = torch.get_default_dtype()
    out = model(signal(10, generator).to(dtype), edge_index, weight.to(dtype))
    out.square().sum().backward()
    assert out.shape == (10, 2)
    assert all(p.grad is not None for p in model.parameters())
    assert float(head.weight.grad.abs().sum()) > 0


@pytest.fixture
def subnormal() -> Iterator[None]:
    """Keeps subnormal numbers: what older torches compile turns them off for good."""
    yield
    torch.set_flush_denormal(False)


@pytest.mark.slow
@pytest.mark.usefixtures("subnormal")
# Said by torch about its own look at a tensor, after any break in a compiled graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_glif_conv_under_compile(graph: Graph, generator: torch.Generator) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator).to(torch.get_default_dtype())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    conv = GLIFConv(lam=0.5, learn_lam=True)

    def run(x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return conv(model(x), edge_index, weight).square()

    expected = run(x, edge_index, weight.to(torch.get_default_dtype()))
    (wanted,) = torch.autograd.grad(expected.sum(), conv.log_lam)
    compiled = torch.compile(run)
    found = compiled(x, edge_index, weight.to(torch.get_default_dtype()))
    (got,) = torch.autograd.grad(found.sum(), conv.log_lam)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(got, wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_only_a_compiled_graph_with_breaks_takes_the_layer(graph: Graph) -> None:
    """What the documentation says is refused, and what it says to do instead."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.smooth = torch.nn.Linear(3, 2), GLIFConv(lam=0.5)

        def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
            out: Tensor = self.smooth(self.head(x), edge_index, weight)
            return out

    _, edge_index, weight = graph
    dtype = torch.get_default_dtype()
    given = torch.arange(30, dtype=dtype).reshape(10, 3), edge_index, weight.to(dtype)
    network = Network()
    expected = network(*given)
    with pytest.raises(RuntimeError):
        torch.compile(network, fullgraph=True, backend="eager")(*given)
    torch.compiler.reset()
    torch.testing.assert_close(
        torch.compile(network, backend="eager")(*given), expected
    )
    with pytest.raises(RuntimeError):
        torch.export.export(network, given)
    head = torch.export.export(network.head, given[:1]).module()
    torch.testing.assert_close(network.smooth(head(given[0]), *given[1:]), expected)


def test_explainer_reaches_the_edges(generator: torch.Generator) -> None:
    """Node 0 is drawn up by a strong tie to node 1, hardly by a weak one to node 2."""
    edge_index = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    weight = torch.tensor([2.0, 2.0, 0.01, 0.01])
    x = torch.tensor([[0.0], [3.0], [3.0]])
    conv = GLIFConv()
    before = conv(x, edge_index, weight)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        explainer = Explainer(
            conv,
            algorithm=GNNExplainer(epochs=30, lr=0.1),
            explanation_type="model",
            node_mask_type=None,
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node"},
        )
        found = explainer(x, edge_index, edge_weight=weight, index=0)
    strong, weak = found.edge_mask[:2].mean(), found.edge_mask[2:].mean()
    assert float(strong) > float(weak)
    torch.testing.assert_close(conv(x, edge_index, weight), before)


def test_explainer_mask_scales_the_weights(
    graph: Graph, generator: torch.Generator
) -> None:
    _, edge_index, weight = graph
    x = signal(10, generator)
    mask = torch.rand(weight.numel(), generator=generator, dtype=torch.float64)
    dense = torch.zeros(10, 10, dtype=torch.float64)
    dense[edge_index[0], edge_index[1]] = mask
    mean = (0.5 * (dense + dense.T))[edge_index[0], edge_index[1]]
    conv = GLIFConv()
    expected = conv(x, edge_index, weight * mean)
    conv.explain, conv._edge_mask, conv._apply_sigmoid = True, mask, False
    torch.testing.assert_close(conv(x, edge_index, weight), expected)


class _TwoGraphs(nn.Module):
    """A layer on the edges of the network, and GLIF over a similarity graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = SimpleConv(aggr="sum"), GLIFConv(lam=1.0)

    def forward(
        self, x: Tensor, edge_index: Tensor, fair: Tensor, weight: Tensor
    ) -> Tensor:
        out: Tensor = self.head(self.conv(x, edge_index), fair, weight)
        return out


@pytest.mark.parametrize(
    "links",
    [
        [[0, 1, 2, 2, 1], [1, 2, 0, 1, 0]],  # another number of edges
        [[0, 1, 2, 2], [1, 2, 0, 1]],  # as many edges as the similarity graph has
        [[0, 1, 2, 2], [0, 2, 0, 1]],  # the same with a loop
    ],
)
def test_explainer_masks_only_the_graph_it_was_made_for(links: list[list[int]]) -> None:
    edge_index = torch.tensor(links)
    fair = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = torch.tensor([2.0, 2.0, 0.5, 0.5])
    x = torch.tensor([[1.0], [5.0], [-2.0]])
    net, mask = _TwoGraphs(), torch.linspace(0.2, 0.9, edge_index.size(1))
    A = np.zeros((3, 3))
    np.add.at(A, tuple(edge_index.numpy()[::-1]), mask.numpy())
    W = np.zeros((3, 3))
    W[tuple(fair.numpy())] = weight.numpy()
    system = np.eye(3) + np.diag(W.sum(1)) - W
    expected = np.linalg.solve(system, A @ x.numpy())
    set_masks(net, mask, edge_index, apply_sigmoid=False)
    found = net(x, edge_index, fair, weight)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    clear_masks(net)
    # The mask of the similarity graph itself scales its weights, and nothing else.
    mask = torch.tensor([0.2, 0.4, 0.6, 0.8])
    set_masks(net.head, mask, fair.clone(), apply_sigmoid=False)
    W *= np.array([[0, 0.3, 0], [0.3, 0, 0.7], [0, 0.7, 0]])
    system = np.eye(3) + np.diag(W.sum(1)) - W
    found = net.head(x, fair, weight)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(system, x), rtol=1e-5)
    clear_masks(net)
    assert net.head._masked_edges is None


def test_explainer_runs_on_a_network_with_two_graphs() -> None:
    edge_index = torch.tensor([[0, 1, 2, 2, 1], [1, 2, 0, 1, 0]])
    fair = torch.tensor([[0, 1], [1, 0]])
    explainer = Explainer(
        _TwoGraphs(),
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type=None,
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node"},
    )
    found = explainer(torch.ones(3, 1), edge_index, fair=fair, weight=torch.ones(2))
    assert found.edge_mask.shape == (5,)


# --- Bad input ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"lam": -0.5}, "'lam' must be non-negative (got -0.5)"),
        ({"lam": float("nan")}, "'lam' must be finite (got nan)"),
        ({"lam": 0.0, "learn_lam": True}, "'lam' must be positive (got 0.0)"),
        (
            {"normalization": "rw"},
            "'normalization' must be one of None, 'nrw', 'density' (got 'rw')",
        ),
    ],
)
def test_glif_conv_rejects_bad_settings(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFConv(**kwargs)


def test_glif_conv_rejects_other_kinds() -> None:
    with pytest.raises(TypeError, match="'solver' must be"):
        GLIFConv(solver="cg")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'link' must be"):
        GLIFConv(link="softmax")  # type: ignore[arg-type]


def test_glif_conv_rejects_one_directional_edges() -> None:
    edge_index = torch.tensor([[0], [1]])
    message = "'edge_index' must hold both directions of every edge (got (0, 1) without"
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFConv()(torch.ones(2, 1), edge_index)


def test_glif_conv_on_nothing() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    x = torch.tensor([[1.0], [2.0]])
    assert torch.equal(GLIFConv(5.0)(x, empty), x)
    assert GLIFConv()(torch.empty(0, 3), empty).shape == (0, 3)


@pytest.mark.parametrize("form", ["edges", "csr", "operator"])
def test_copies_and_files_of_a_layer_leave_its_graph_behind(
    form: str, tmp_path: Path
) -> None:
    dense = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    edges = torch.tensor([[0, 1], [1, 0]])
    graph = {"edges": edges, "csr": dense.to_sparse_csr()}.get(form)
    graph = LaplacianOperator(edges) if graph is None else graph
    x = torch.tensor([[0.0], [3.0]])
    conv = GLIFConv(cached=True, learn_lam=True)
    expected = conv(x, graph)
    torch.save(conv, tmp_path / "layer.pt")
    saved = torch.load(tmp_path / "layer.pt", weights_only=False)
    for other in (copy.deepcopy(conv), saved):
        assert other._cache is None
        assert torch.equal(other(x, graph), expected)


def test_balance_gives_groups_the_same_energy():
    # Two separate pairs of nodes: the second pair differs three times as much.
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    x = torch.tensor([[0.0], [1.0], [0.0], [3.0]], dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1])
    conv = GLIFConv(lam=20.0, balance=True, cached=True)
    out = conv(x, edge_index, groups=groups)
    torch.testing.assert_close(out[1] - out[0], out[3] - out[2], rtol=1e-3, atol=0)
    assert str(conv) == "GLIFConv(lam=20, normalization=None, balance=True)"
    with pytest.raises(ValueError, match="'groups' must be given"):
        conv(x, edge_index)
