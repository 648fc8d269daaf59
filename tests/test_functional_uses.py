"""Smoothing with links, in half precision, under ``torch.func``."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from pyg_glif import GLIFConv, LaplacianLoss, glif_smooth, glif_solve, laplacian_penalty
from pyg_glif.links import Identity, Link, Log, Logit, Softmax
from pyg_glif.solvers import CG, Auto, Cholesky
from pyg_glif.typing import Normalization
from tests import oracles
from tests.problems import random_graph

NORMALIZATIONS: list[Normalization] = [None, "nrw", "density"]
HALF = [torch.float16, torch.bfloat16]
# A chain of four, and an isolated node; the last edge has weight zero.
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
WEIGHT = torch.tensor([1.0, 1.0, 2.0, 2.0, 0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
LINKS: list[tuple[Link, Tensor]] = [
    (Identity(), torch.tensor([[0.1], [0.3], [-2.0], [7.0], [0.7]])),
    (Logit(eps=0.01), torch.tensor([[0.2], [1.0], [0.0], [0.5], [1.0]])),
    (Logit(), torch.tensor([[0.2], [1.0], [0.0], [0.5], [0.123456]])),
    (Log(), torch.tensor([[0.1], [0.3], [1e-30], [7.0], [0.7e20]])),
    (
        Softmax(eps=0.05),
        torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]),
    ),
    (
        Softmax(),
        torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.3, 0.7001]]),
    ),
]


# --- links -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(("link", "y_hat"), LINKS)
def test_no_link_changes_isolated_outputs(
    link: Link, y_hat: Tensor, normalization: Normalization, dtype: torch.dtype
) -> None:
    y_hat = y_hat.to(dtype)
    out = glif_smooth(
        y_hat, EDGES, WEIGHT, lam=0.1, normalization=normalization, link=link
    )
    assert torch.equal(out[4], y_hat[4])
    assert not torch.equal(out[0], y_hat[0])
    unlinked = glif_smooth(y_hat, EDGES[:, :0], link=link)
    assert torch.equal(unlinked, y_hat)


@pytest.mark.parametrize("solver", [Auto(), CG(), CG(deflate=True), Cholesky()])
@pytest.mark.parametrize(("link", "y_hat"), [(None, LINKS[0][1]), *LINKS])
def test_lam_zero_returns_the_input_under_every_link(
    link: Link | None, y_hat: Tensor, solver: Any
) -> None:
    out = glif_smooth(y_hat, EDGES, WEIGHT, lam=0.0, link=link, solver=solver)
    assert torch.equal(out, y_hat)


def test_lam_zero_keeps_its_gradient_under_a_link() -> None:
    y_hat = torch.tensor([[0.2], [0.9], [0.4], [0.5], [0.3]], dtype=torch.float64)
    lam = torch.zeros((), dtype=torch.float64, requires_grad=True)
    out = glif_smooth(y_hat, EDGES, WEIGHT, lam=lam, link=Logit())
    (slope,) = torch.autograd.grad(out[0].sum(), lam)
    # d eta = -L eta, and the sigmoid has slope y (1 - y).
    eta = torch.logit(y_hat)
    assert float(slope) == pytest.approx(float((eta[1] - eta[0]) * 0.2 * 0.8))


@pytest.mark.parametrize("link", [Softmax(), Softmax(inputs="logits")])
def test_softmax_refuses_one_number_per_sample(link: Link) -> None:
    message = (
        "'y_hat' must have one column per class with 'Softmax' (got shape (5,)). Use "
        "'Logit' for one probability per sample"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        glif_smooth(torch.full((5,), 0.2), EDGES, link=link)


# --- half precision ----------------------------------------------------------


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_half_precision_is_smoothed_in_higher_precision(
    dtype: torch.dtype, normalization: Normalization, generator: torch.Generator
) -> None:
    problem = random_graph(150, 0.1)
    y_hat = torch.randn(150, 3, generator=generator).to(dtype)
    out = glif_solve(
        y_hat,
        problem.edge_index,
        problem.edge_weight,
        lam=0.1,
        normalization=normalization,
    )
    exact = oracles.smooth(problem.dense(), y_hat.double().numpy(), 0.1, normalization)
    assert out.value.dtype == dtype
    error = np.linalg.norm(out.value.double().numpy() - exact, axis=0)
    assert bool((error <= out.error_bound.numpy()).all())
    # One rounding, at the very end.
    rounded = torch.from_numpy(exact).to(dtype).double().numpy()
    np.testing.assert_allclose(
        out.value.double(), rounded, rtol=2 * torch.finfo(dtype).eps, atol=1e-6
    )


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_passes_links_and_weights(dtype: torch.dtype) -> None:
    y_hat = torch.tensor([0.25, 0.75, 0.5, 1.0, 0.0], dtype=dtype, requires_grad=True)
    out = glif_smooth(y_hat, EDGES, WEIGHT.to(dtype), link=Logit())
    full = glif_smooth(y_hat.detach().float(), EDGES, WEIGHT, link=Logit())
    assert out.dtype == dtype
    assert torch.equal(out, full.to(dtype))
    out.sum().backward()
    assert y_hat.grad is not None
    assert y_hat.grad.dtype == dtype


@pytest.mark.parametrize("dtype", HALF)
def test_layer_and_loss_under_autocast(dtype: torch.dtype) -> None:
    problem = random_graph(3000, 0.01)  # large enough for float32 iterations
    x = torch.randn(3000, 28, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    conv, loss = GLIFConv(lam=2.0, learn_lam=True), LaplacianLoss(reduction="mean")
    plain = conv(x, problem.edge_index, problem.edge_weight)
    with torch.autocast("cpu", dtype=dtype):
        out = conv(x, problem.edge_index, problem.edge_weight)
        penalty = loss(out, problem.edge_index, problem.edge_weight)
        small = conv(x.to(dtype), problem.edge_index, problem.edge_weight)
        low = loss(small, problem.edge_index, problem.edge_weight)
    torch.testing.assert_close(out, plain, rtol=0.0, atol=1e-5)
    assert out.dtype == penalty.dtype == low.dtype == torch.float32
    assert small.dtype == dtype
    penalty.backward()
    assert conv.log_lam is not None
    assert conv.log_lam.grad is not None
    assert bool(torch.isfinite(conv.log_lam.grad))


def test_penalty_of_half_precision_does_not_overflow() -> None:
    f = torch.tensor([0.0, 300.0], dtype=torch.float16)
    edges = torch.tensor([[0, 1], [1, 0]])
    assert float(laplacian_penalty(f, edges)) == 90_000.0


# --- torch.func --------------------------------------------------------------


def smoother(normalization: Normalization, solver: Any = None) -> Any:
    def call(y_hat: Tensor, lam: Tensor, weight: Tensor) -> Tensor:
        both = 0.5 * (weight + weight[[1, 0, 3, 2, 5, 4, 7, 6]])
        solve = Auto(rtol=1e-13) if solver is None else solver
        return glif_smooth(
            y_hat, EDGES, both, lam=lam, normalization=normalization, solver=solve
        )

    return call


def arguments(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    y_hat = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    return y_hat, torch.tensor(0.7, dtype=torch.float64), WEIGHT


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("argument", [0, 1, 2])
@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_functional_jacobians_match_autograd(
    transform: Any,
    argument: int,
    normalization: Normalization,
    generator: torch.Generator,
) -> None:
    call, args = smoother(normalization), arguments(generator)
    expected = torch.autograd.functional.jacobian(call, args)[argument]
    actual = transform(call, argnums=argument)(*args)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_functional_derivatives_of_second_order(
    normalization: Normalization, generator: torch.Generator
) -> None:
    args = arguments(generator)

    def loss(lam: Tensor) -> Tensor:
        return smoother(normalization)(args[0], lam, args[2]).square().sum()

    def penalty(f: Tensor) -> Tensor:
        return laplacian_penalty(f, EDGES, WEIGHT, normalization=normalization)

    expected = torch.autograd.functional.hessian(loss, args[1])
    torch.testing.assert_close(hessian(loss)(args[1]), expected)
    expected = torch.autograd.functional.hessian(penalty, args[0])
    torch.testing.assert_close(hessian(penalty)(args[0]), expected)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_vmap_smooths_each_of_a_batch(
    normalization: Normalization, generator: torch.Generator
) -> None:
    y_hat, lam, weight = arguments(generator)
    call = smoother(normalization)
    batch = torch.stack([y_hat, 2.0 * y_hat, y_hat.flip(0)], 1)
    out = vmap(lambda y: call(y, lam, weight), in_dims=1)(batch)
    each = [call(y, lam, weight) for y in batch.unbind(1)]
    torch.testing.assert_close(out, torch.stack(each))
    batch[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="'y_hat' must be finite"):
        vmap(lambda y: call(y, lam, weight), in_dims=1)(batch)


def test_vmap_refuses_what_it_cannot_do(generator: torch.Generator) -> None:
    y_hat, lam, weight = arguments(generator)
    call = smoother(None)
    with pytest.raises(TypeError, match=r"^'lam' must not be batched by 'torch\.func"):
        vmap(lambda value: call(y_hat, value, weight))(torch.ones(2))
    with pytest.raises(TypeError, match=r"^'edge_weight' must not be batched by"):
        vmap(lambda value: call(y_hat, lam, value))(torch.stack([weight, weight]))
    with pytest.raises(TypeError, match=r"^'y_hat' must not be batched by"):
        vmap(lambda value: glif_smooth(value, EDGES, link=Log()))(torch.ones(2, 5))


def test_functional_call_and_jvp_through_the_layer(
    generator: torch.Generator,
) -> None:
    conv = GLIFConv(lam=0.7, learn_lam=True)
    x = torch.randn(5, 2, generator=generator)
    params = dict(conv.named_parameters())

    def loss(params: dict[str, Tensor]) -> Tensor:
        out: Tensor = functional_call(conv, params, (x, EDGES, WEIGHT))
        return out.square().sum()

    slope = grad(loss)(params)["log_lam"]
    conv(x, EDGES, WEIGHT).square().sum().backward()
    assert conv.log_lam is not None
    assert conv.log_lam.grad is not None
    torch.testing.assert_close(slope.detach(), conv.log_lam.grad)
    _, forward = jvp(loss, (params,), ({"log_lam": torch.ones(())},))
    torch.testing.assert_close(forward.detach(), conv.log_lam.grad)


def test_large_nrw_graphs_pass_functional_gradients() -> None:
    # Beyond 400 nodes the smallest eigenvalue comes from iterations.
    problem = random_graph(500, 0.05)
    y_hat = torch.randn(500, 1, generator=torch.Generator().manual_seed(1)).double()

    def loss(weight: Tensor) -> Tensor:
        out = glif_smooth(
            y_hat, problem.edge_index, weight, lam=0.05, normalization="nrw"
        )
        return out.square().sum()

    weight = problem.edge_weight.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(weight), weight)
    actual = grad(loss)(problem.edge_weight)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-7)


# --- the caller's tensors ----------------------------------------------------


def test_results_are_not_views_of_the_input() -> None:
    for lam, edges in ((0.0, EDGES), (1.0, EDGES[:, :0])):
        y_hat = torch.arange(5.0, dtype=torch.float64)
        for link in (None, Identity()):
            out = glif_smooth(y_hat, edges, lam=lam, link=link)
            out.add_(1.0)
            assert torch.equal(y_hat, torch.arange(5.0, dtype=torch.float64))
