"""Links: round trips, duals against NumPy, clamping, gradients, bad input."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from pyg_glif.links import Identity, Link, Log, Logit, Softmax

LINKS = [
    Identity(),
    Softmax(),
    Softmax(inputs="logits"),
    Logit(),
    Log(),
]
DTYPES = [torch.float32, torch.float64]


def outputs(link: Link, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Outputs that belong to the link's space, away from its border."""
    logits = torch.randn(7, 4, generator=generator, dtype=dtype)
    if isinstance(link, Softmax) and link.inputs == "probabilities":
        return logits.softmax(dim=-1)
    if isinstance(link, Logit):
        return logits.sigmoid()
    return logits.exp() if isinstance(link, Log) else logits


def test_links_repr() -> None:
    assert str(Identity()) == "Identity()"
    assert str(Softmax()) == "Softmax(inputs='probabilities', eps=None)"
    assert str(Softmax("logits")) == "Softmax(inputs='logits', eps=None)"
    assert str(Logit(eps=0.01)) == "Logit(eps=0.01)"
    assert str(Log()) == "Log()"


def test_links_are_values() -> None:
    assert Softmax() == Softmax()
    assert Softmax() != Softmax(eps=0.1)
    assert len({Logit(), Logit(), Log()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Logit().eps = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("link", LINKS, ids=str)
def test_link_round_trip(
    link: Link, dtype: torch.dtype, generator: torch.Generator
) -> None:
    y_hat = outputs(link, generator, dtype)
    back = link.from_dual(link.to_dual(y_hat))
    assert back.dtype == dtype
    # A logarithm and an exponential: a few units in the last place.
    atol = 20 * torch.finfo(dtype).eps
    torch.testing.assert_close(back, y_hat, rtol=atol, atol=atol)


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_link_gradient_matches_finite_differences(
    link: Link, generator: torch.Generator
) -> None:
    y_hat = outputs(link, generator, torch.float64)
    if isinstance(link, Softmax):
        # Finite differences leave the simplex; a row-wise softmax keeps them on it.
        logits = y_hat.log() if link.inputs == "probabilities" else y_hat

        def dual(value: Tensor) -> Tensor:
            keep = link.inputs == "logits"
            return link.to_dual(value if keep else value.softmax(dim=-1))

        assert gradcheck(dual, logits.requires_grad_())
    else:
        assert gradcheck(link.to_dual, y_hat.requires_grad_())
    eta = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    assert gradcheck(link.from_dual, eta.requires_grad_())


def test_link_duals_match_numpy(generator: torch.Generator) -> None:
    logits = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    p = logits.softmax(dim=-1)
    expected = np.log(p.numpy())
    np.testing.assert_allclose(Softmax().to_dual(p), expected, rtol=1e-12)
    odds = np.log(p.numpy() / (1 - p.numpy()))
    np.testing.assert_allclose(Logit().to_dual(p), odds, rtol=1e-9)
    np.testing.assert_allclose(Log().to_dual(logits.exp()), logits, rtol=1e-9)
    assert Identity().to_dual(p) is p
    assert Softmax("logits").to_dual(logits) is logits


def test_two_class_softmax_equals_logit(generator: torch.Generator) -> None:
    p = torch.rand(50, generator=generator, dtype=torch.float64)
    p[0], p[1] = 0.0, 1.0
    both = torch.stack([1 - p, p], dim=-1)
    for eps in (None, 0.01):
        eta = Softmax(eps=eps).to_dual(both)
        odds = Logit(eps=eps).to_dual(p)
        # Where an entry is clamped, softmax does not change the other: -log(1 - eps).
        slack = 1e-12 if eps is None else 0.0101
        torch.testing.assert_close(eta[:, 1] - eta[:, 0], odds, rtol=0, atol=slack)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    classes=st.integers(2, 6),
    shift=st.floats(-50, 50),
)
def test_logits_and_natural_parameters_smooth_alike(
    seed: int, classes: int, shift: float
) -> None:
    """Any linear map of logits commutes with subtracting the last class."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, classes, generator=generator, dtype=torch.float64)
    logits = logits + shift * torch.rand(8, 1, generator=generator, dtype=torch.float64)
    smoother = torch.randn(8, 8, generator=generator, dtype=torch.float64)

    natural = smoother @ (logits - logits[:, -1:])  # last column stays zero
    raw = Softmax(inputs="logits")
    probabilities = Softmax()
    from_logits = raw.from_dual(smoother @ raw.to_dual(logits)).softmax(dim=-1)
    dual = smoother @ probabilities.to_dual(logits.softmax(dim=-1))
    # Logarithms of probabilities lose digits where those are tiny: 1e-6, not 1e-12.
    torch.testing.assert_close(from_logits, natural.softmax(dim=-1))
    from_probabilities = probabilities.from_dual(dual)
    torch.testing.assert_close(
        from_probabilities, natural.softmax(dim=-1), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_hard_probabilities_are_clamped(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    hard = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=dtype, requires_grad=True)
    for link in (Softmax(), Logit()):
        eta = link.to_dual(hard)
        assert bool(eta.isfinite().all())
        (grad,) = torch.autograd.grad(eta.sum(), hard)
        assert bool(grad.isfinite().all())
        torch.testing.assert_close(
            link.from_dual(eta), hard.detach(), rtol=0, atol=2 * eps
        )
    floor = torch.tensor(eps, dtype=dtype).log()
    assert float(Softmax().to_dual(hard.detach())[0, 0]) == pytest.approx(float(floor))


def test_eps_is_the_log_odds_of_a_hard_label() -> None:
    hard = torch.tensor([0.0, 1.0], dtype=torch.float64)
    expected = np.log(0.01 / 0.99)
    np.testing.assert_allclose(Logit(eps=0.01).to_dual(hard), [expected, -expected])
    eta = Softmax(eps=0.01).to_dual(hard.view(1, 2))
    np.testing.assert_allclose(eta, [[np.log(0.01), 0.0]], atol=1e-12)


def test_rounded_probabilities_are_accepted() -> None:
    table = torch.tensor([[0.3333, 0.3333, 0.3333]])
    torch.testing.assert_close(
        Softmax().from_dual(Softmax().to_dual(table)), torch.full((1, 3), 1 / 3)
    )
    slightly_off = torch.tensor([-1e-8, 1 + 1e-7], dtype=torch.float64)
    assert bool(Logit().to_dual(slightly_off).isfinite().all())


def test_empty_outputs_pass() -> None:
    for link in LINKS:
        assert link.to_dual(torch.empty(0, 3)).shape == (0, 3)


BAD_VALUES = [
    (Softmax(), [[0.5, 0.2]], "'y_hat' must have rows that sum to 1 (got 0.7 in row 0"),
    (Softmax(), [[0.5, 0.5], [1.5, -0.5]], "must be between 0 and 1 (got -0.5)"),
    (Softmax(), [[0.5, 1.5]], "'y_hat' must be between 0 and 1 (got 1.5)"),
    (Softmax(), [0.5], "'y_hat' must have at least 2 classes in its last dimension"),
    (Softmax("logits"), [[1.0]], "(got shape (1, 1)). Use 'Logit' for one probability"),
    (Logit(), [2.0], "'y_hat' must be between 0 and 1 (got 2)"),
    (Log(), [1.0, 0.0], "'y_hat' must be positive (got 0)"),
    (Log(), [-1.0], "'y_hat' must be positive (got -1)"),
    (Identity(), [float("nan")], "'y_hat' must be finite (got nan at index 0"),
    (Logit(), [0.5, float("nan")], "'y_hat' must be finite (got nan at index 1"),
    (Log(), [float("inf")], "'y_hat' must be finite (got inf at index 0"),
]


@pytest.mark.parametrize(("link", "value", "message"), BAD_VALUES)
def test_links_reject_bad_values(link: Link, value: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        link.to_dual(torch.tensor(value))


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_links_reject_other_types(link: Link) -> None:
    with pytest.raises(TypeError, match="'y_hat' must be float32 or float64"):
        link.to_dual(torch.ones(3, 2, dtype=torch.long))
    with pytest.raises(TypeError, match=r"'y_hat' must be a torch\.Tensor \(got list"):
        link.to_dual([0.5, 0.5])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("eps", "message"),
    [
        (0.0, "'eps' must be positive (got 0.0)"),
        (0.5, "'eps' must be below 0.5 (got 0.5)"),
        (float("nan"), "'eps' must be finite (got nan)"),
    ],
)
@pytest.mark.parametrize("kind", [Softmax, Logit])
def test_links_reject_bad_eps(
    kind: type[Softmax] | type[Logit], eps: float, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(eps=eps)


def test_softmax_rejects_other_inputs() -> None:
    message = "'inputs' must be one of 'probabilities', 'logits' (got 'probs')"
    with pytest.raises(ValueError, match=re.escape(message)):
        Softmax(inputs="probs")  # type: ignore[arg-type]
