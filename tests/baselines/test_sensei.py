"""SenSeI and SenSR: the auditor against closed forms, and the terms."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from pyg_glif.baselines import Auditor, SenSeIRegularizer, SenSRLoss
from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
)
from tests import oracles_robust as oracle

SIGMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.8]]).double()
LAST = torch.tensor([[0.0, 0.0, 0.0, 1.0]])  # the sensitive feature of four


def network(seed: int = 0, width: int = 4, outputs: int = 2) -> nn.Sequential:
    """A small network that depends on every feature."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, outputs))


class Cubed(FairDistance):
    """Not linear: no direction is free everywhere."""

    def embed(self, x: Tensor) -> Tensor:
        return x**3


# The auditor


def test_auditor_repr() -> None:
    assert str(Auditor()) == (
        "Auditor(num_subspace_steps=10, subspace_lr=0.1, "
        "num_full_steps=10, full_lr=0.01)"
    )


def test_auditor_finds_the_closed_form_of_a_linear_gain(
    generator: torch.Generator,
) -> None:
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    w = torch.tensor([1.0, -2.0, 0.5]).double()
    auditor = Auditor(num_full_steps=300, full_lr=0.03)
    found = auditor.search(lambda x: x @ w, x, Mahalanobis(SIGMA), 0.7)
    shift, value = oracle.linear_worst_case(w.numpy(), SIGMA.numpy(), 0.7)
    np.testing.assert_allclose((found.x - x).numpy(), np.tile(shift, (6, 1)), atol=1e-3)
    net = (found.gain - 0.7 * found.sq_dist).numpy()
    np.testing.assert_allclose(net, value, rtol=1e-5)
    assert (net <= value * (1 + 1e-9)).all()
    cost = np.einsum("nf,fg,ng->n", shift[None], SIGMA.numpy(), shift[None])
    np.testing.assert_allclose(found.sq_dist.numpy(), cost[0], rtol=1e-2)


@pytest.mark.parametrize("price", [0.05, 0.3])
def test_auditor_finds_the_maximum_of_a_grid(price: float) -> None:
    weight = np.array([[1.5, -1.0], [0.3, 0.8]])
    sigma = np.array([[1.0, 0.2], [0.2, 0.5]])
    x = torch.tensor([[0.3, -0.4]], dtype=torch.float64)

    def objective(points: Any) -> Any:
        change = np.tanh(points @ weight.T) - np.tanh(x.numpy() @ weight.T)
        shift = points - x.numpy()
        cost = np.einsum("nf,fg,ng->n", shift, sigma, shift)
        return (change**2).sum(axis=1) - price * cost

    def model(x: Tensor) -> Tensor:
        return (x @ torch.from_numpy(weight).T).tanh()

    auditor = Auditor(num_full_steps=200, full_lr=0.05)
    term = SenSeIRegularizer(
        Mahalanobis(torch.from_numpy(sigma)), dual=price, auditor=auditor
    ).double()
    # One start finds one of several hills: the best of a few is the highest.
    net = []
    for seed in range(5):
        found = term.audit(model, x, generator=torch.Generator().manual_seed(seed))
        np.testing.assert_allclose(
            objective(found.x.numpy()), found.gain - price * found.sq_dist, rtol=1e-9
        )
        net.append(float(found.gain - price * found.sq_dist))
    highest = oracle.grid_maximum(objective, x[0].numpy(), radius=5.0)
    assert highest > 0.5
    assert max(net) == pytest.approx(highest, rel=1e-3)


@pytest.mark.parametrize("dual", [1e-3, 100.0])
def test_regularizer_reaches_the_closed_form_of_a_linear_model(
    dual: float, generator: torch.Generator
) -> None:
    x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    worst, direction = oracle.invariance(weight.numpy(), SIGMA.numpy(), eps=0.05)
    term = SenSeIRegularizer(
        Mahalanobis(SIGMA),
        eps=0.05,
        dual=dual,
        auditor=Auditor(num_full_steps=20, full_lr=0.02),
    ).double()
    values = [float(term(lambda x: x @ weight.T, x)) for _ in range(150)]
    assert np.mean(values[-20:]) == pytest.approx(worst, rel=0.03)
    found = term.audit(lambda x: x @ weight.T, x)
    assert float(found.sq_dist.mean()) == pytest.approx(0.05, rel=0.05)
    cosine = cosine_similarity(found.x - x, torch.from_numpy(direction)[None]).abs()
    assert float(cosine.median()) > 0.98


@pytest.mark.parametrize("kind", ["sensei", "sensr"])
def test_auditor_beats_no_steps_and_random_ones(
    kind: str, generator: torch.Generator
) -> None:
    x = torch.randn(50, 4, generator=generator)
    y = torch.randint(0, 2, (50,), generator=generator)
    model, distance = network(), SensitiveSubspace(LAST)

    def audit(auditor: Auditor) -> Any:
        if kind == "sensei":
            return SenSeIRegularizer(distance, auditor=auditor).audit(model, x)
        return SenSRLoss(distance, auditor=auditor).audit(model, x, y)

    def gain(point: Tensor) -> Tensor:
        with torch.no_grad():
            if kind == "sensei":
                return (model(point) - model(x)).square().sum(dim=1)
            loss = cross_entropy(model(point), y, reduction="none")
            return loss - cross_entropy(model(x), y, reduction="none")

    nothing = audit(Auditor(num_subspace_steps=0, num_full_steps=0))
    assert torch.equal(nothing.x, x)
    assert not nothing.gain.any()
    free, both = audit(Auditor(num_full_steps=0)), audit(Auditor())
    torch.testing.assert_close(both.gain, gain(both.x))
    assert (free.gain > 0).all()
    assert float(both.gain.mean()) > float(free.gain.mean())
    # Random shifts that go as far along the free feature and cost as much outside it.
    moved, gains = both.x - x, []
    for _ in range(20):
        random = torch.randn(50, 4, generator=generator)
        cost = both.sq_dist.sqrt().unsqueeze(1)
        outside = cost * nn.functional.normalize(random[:, :3])
        inside = moved[:, 3:].abs() * random[:, 3:].sign()
        gains.append(float(gain(x + torch.cat([outside, inside], dim=1)).mean()))
    assert np.mean(gains) < 0.9 * float(both.gain.mean())


@pytest.mark.parametrize(
    "distance",
    [SensitiveSubspace(LAST), Mahalanobis(torch.diag(torch.tensor([1.0, 2, 0, 0])))],
)
def test_subspace_steps_are_free(
    distance: FairDistance, generator: torch.Generator
) -> None:
    x = torch.randn(20, 4, generator=generator)
    auditor = Auditor(num_full_steps=0, num_subspace_steps=20)
    found = SenSeIRegularizer(distance, auditor=auditor).audit(network(), x)
    moved = torch.linalg.vector_norm(found.x - x, dim=1)
    assert float(moved.min()) > 1.0
    assert float(found.sq_dist.max()) < 1e-11
    pairs = distance(x, found.x)
    assert float(pairs.diagonal().max()) < 1e-5


@pytest.mark.parametrize("distance", [Euclidean(), Cubed()])
def test_subspace_steps_need_free_directions(distance: FairDistance) -> None:
    x = torch.full((3, 4), 0.5)
    auditor = Auditor(num_full_steps=0)
    found = SenSeIRegularizer(distance, auditor=auditor).audit(network(), x)
    assert torch.equal(found.x, x)
    found = SenSeIRegularizer(distance, dual=1e-3).audit(network(), x)
    assert (found.gain > 1e-4).all()
    expected = (distance.embed(found.x) - distance.embed(x)).square().sum(dim=1)
    torch.testing.assert_close(found.sq_dist, expected)


@given(rank=st.integers(1, 5), seed=st.integers(0, 50))
@settings(deadline=None, max_examples=15)
def test_free_directions_are_the_null_space(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(5, rank))
    expected = scipy.linalg.null_space(factor.T)
    found = Mahalanobis.from_factor(torch.from_numpy(factor)).null_space(5)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.T @ found, np.eye(5 - rank), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-10)


def test_free_directions_of_other_distances() -> None:
    basis = torch.tensor([[3.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    free = SensitiveSubspace(basis).null_space(3)
    torch.testing.assert_close(free @ free.T, torch.diag(torch.tensor([1.0, 1, 0])))
    assert Euclidean().null_space(3).shape == (3, 0)


def test_free_directions_follow_a_distance_that_changes() -> None:
    distance = Mahalanobis(torch.diag(torch.tensor([1.0, 0.0])))
    term = SenSeIRegularizer(distance, auditor=Auditor(num_full_steps=0))
    x = torch.zeros(3, 2)

    def shift(x: Tensor) -> Tensor:
        return x.sum(dim=1)

    assert float(term.audit(shift, x).x[:, 0].abs().max()) == 0
    with torch.no_grad():
        # Now the first feature is free, and the second is not.
        distance.factor.copy_(distance.factor.flip(0))
    found = term.audit(shift, x).x
    assert float(found[:, 1].abs().max()) < 1e-6
    assert float(found[:, 0].abs().min()) > 0.5


def test_auditor_stays_if_moving_costs_more_than_it_gains(
    generator: torch.Generator,
) -> None:
    x = torch.randn(10, 4, generator=generator)
    found = SenSeIRegularizer(Euclidean(), dual=1e6).audit(network(), x)
    assert torch.equal(found.x, x)
    assert not found.gain.any()
    assert not found.sq_dist.any()


@given(price=st.floats(0.0, 50.0), seed=st.integers(0, 100))
@settings(deadline=None, max_examples=15)
def test_auditor_never_finds_less_than_nothing(price: float, seed: int) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    auditor = Auditor(num_subspace_steps=3, num_full_steps=3, full_lr=0.5)
    found = SenSeIRegularizer(SensitiveSubspace(LAST), dual=price, auditor=auditor)
    worst = found.audit(network(seed), x)
    assert bool((worst.gain - price * worst.sq_dist >= -1e-5).all())
    # Adam's steps are at most sqrt(10) learning rates long per coordinate.
    assert float((worst.x - x).abs().max()) <= 10**0.5 * (4 * 0.1 + 4 * 0.5)


def test_auditor_is_the_same_twice_and_depends_on_the_generator(
    generator: torch.Generator,
) -> None:
    x = torch.randn(10, 4, generator=generator)
    term, model = SenSeIRegularizer(SensitiveSubspace(LAST)), network()
    state = torch.random.get_rng_state()
    first, second = term.audit(model, x), term.audit(model, x)
    assert torch.equal(first.x, second.x)
    seeded = term.audit(model, x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.x, seeded.x)
    other = term.audit(model, x, generator=generator)
    assert not torch.equal(first.x, other.x)
    assert torch.equal(state, torch.random.get_rng_state())


def test_auditor_keeps_rows_that_leave_the_domain() -> None:
    # log is NaN left of zero, and falls without end towards it.
    x = torch.tensor([[0.25], [10.0]])
    auditor = Auditor(num_full_steps=10, full_lr=0.1)
    found = auditor.search(lambda x: -x.log().squeeze(1), x, Euclidean(), 0.0)
    assert found.x.isfinite().all()
    assert found.gain.isfinite().all()
    assert (found.gain > 0).all()
    # From 0.1 on this is infinite.
    x = torch.tensor([[0.05]])
    auditor = Auditor(num_full_steps=10, full_lr=0.03)
    found = auditor.search(
        lambda x: 1 / (0.1 - x).clamp(min=0).sum(dim=1), x, Euclidean(), 0.0
    )
    assert found.x.isfinite().all()
    assert found.gain.isfinite().all()


def test_auditor_works_without_gradients_around_it() -> None:
    x = torch.zeros(3, 4)
    term, model = SenSeIRegularizer(SensitiveSubspace(LAST)), network()
    with torch.no_grad():
        found, value = term.audit(model, x), term(model, x)
    assert (found.gain > 0).all()
    assert not value.requires_grad
    torch.testing.assert_close(value, found.gain.mean())


# The state of the model


class Careful(nn.Module):
    """Dropout, batch norm and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.norm = nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.5)
        self.body[0].bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.body(x)))


@pytest.mark.parametrize("training", [True, False])
def test_audit_does_not_change_the_model(training: bool) -> None:
    model = Careful().train(training)
    model.drop.eval()  # a mixed state must come back as it was
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    wanted = [p.requires_grad for p in model.parameters()]
    distance = Mahalanobis.from_factor(torch.eye(4)[:, :3], learnable=True)
    x = torch.eye(8, 4, requires_grad=True)
    y = torch.zeros(8).long()
    found = SenSeIRegularizer(distance).audit(model, x)
    SenSRLoss(distance).audit(model, x, y)
    assert not found.x.requires_grad
    assert modes == [module.training for module in model.modules()]
    assert wanted == [p.requires_grad for p in model.parameters()]
    assert all(p.grad is None for p in [*model.parameters(), x, distance.factor])
    assert distance.factor.requires_grad
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_audit_restores_the_model_after_an_error() -> None:
    model = Careful()

    def fail(*_: object) -> None:
        raise RuntimeError("stop")

    model.drop.register_forward_hook(fail)
    wanted = [p.requires_grad for p in model.parameters()]
    with pytest.raises(RuntimeError, match="stop"):
        SenSeIRegularizer(SensitiveSubspace(LAST)).audit(model, torch.zeros(2, 4))
    assert all(module.training for module in model.modules())
    assert wanted == [p.requires_grad for p in model.parameters()]


def test_regularizer_does_not_mistake_dropout_for_unfairness() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    with torch.no_grad():
        model[0].weight[:, 3] = 0.0  # blind to the sensitive feature
    auditor = Auditor(num_full_steps=0)
    value = SenSeIRegularizer(SensitiveSubspace(LAST), auditor=auditor)(
        model, torch.eye(8, 4)
    )
    assert float(value.detach()) == 0.0


def test_regularizer_gradient_reaches_parameters_through_both_outputs(
    generator: torch.Generator,
) -> None:
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    model = network().double()
    term = SenSeIRegularizer(SensitiveSubspace(LAST), rho=3.0).double()
    worst = term.audit(model, x).x
    term(model, x).backward()
    assert x.grad is None
    parameter = model[0].weight
    assert parameter.grad is not None

    def value() -> float:
        with torch.no_grad():
            return float(3.0 * (model(x) - model(worst)).square().sum(dim=1).mean())

    for i, j in [(0, 3), (2, 1), (7, 0)]:
        numbers = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[i, j] += sign * 1e-5
            numbers.append(value())
            with torch.no_grad():
                parameter[i, j] -= sign * 1e-5
        slope = (numbers[0] - numbers[1]) / 2e-5
        assert float(parameter.grad[i, j]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_outputs_may_be_one_column_or_none() -> None:
    x, distance = torch.zeros(3, 4), SensitiveSubspace(LAST)
    model = network(outputs=1)
    one = SenSeIRegularizer(distance)(model, x)
    none = SenSeIRegularizer(distance)(lambda x: model(x).squeeze(1), x)
    torch.testing.assert_close(one, none)


# The price


@pytest.mark.parametrize("eps", [1e-6, 1e6])
def test_dual_follows_the_budget(eps: float, generator: torch.Generator) -> None:
    x, model = torch.randn(10, 4, generator=generator), network()
    term = SenSeIRegularizer(SensitiveSubspace(LAST), eps=eps, dual=0.5, dual_lr=0.2)
    sq_dist = float(term.audit(model, x).sq_dist.mean())
    term.eval()(model, x)
    assert float(term.dual) == 0.5
    term.train()(model, x)
    gap = (sq_dist - eps) / max(sq_dist, eps)
    assert float(term.dual) == pytest.approx(0.5 * np.exp(0.2 * gap), rel=1e-5)
    assert (float(term.dual) > 0.5) == (eps < 1)


def test_dual_stays_without_a_budget_and_above_a_floor() -> None:
    x, model, distance = torch.ones(4, 4), network(), SensitiveSubspace(LAST)
    term = SenSeIRegularizer(distance, eps=None)
    term(model, x)
    assert float(term.dual) == 1.0
    term = SenSeIRegularizer(distance, eps=1e9, dual=2e-5, dual_lr=5.0)
    term(model, x)
    assert float(term.dual) == pytest.approx(1e-5)
    assert float(SenSeIRegularizer(distance, dual=0.0).dual) == pytest.approx(1e-5)


def test_terms_are_saved_with_price_and_distance() -> None:
    model, x = network(), torch.ones(4, 4)
    blind = torch.eye(4)
    term = SenSeIRegularizer(Mahalanobis.from_factor(blind[:, :3]))
    term(model, x)
    other = SenSeIRegularizer(Mahalanobis.from_factor(blind[:, 2:]))
    other.audit(model, x)
    other.load_state_dict(term.state_dict())
    assert float(other.dual) == float(term.dual) != 1.0
    assert torch.equal(other.audit(model, x).x, term.audit(model, x).x)


# SenSR


def test_sensr_loss_finds_the_worst_shift_of_a_logistic_model() -> None:
    w = np.array([1.0, -2.0, 0.5])
    price = 0.2
    x = torch.tensor([[0.2, -0.1, 0.4], [1.0, 0.0, -1.0]], dtype=torch.float64)
    y = torch.tensor([1, 0])

    def model(x: Tensor) -> Tensor:
        score = x @ torch.from_numpy(w)
        return torch.stack([0 * score, score], dim=1)

    auditor = Auditor(num_full_steps=400, full_lr=0.1)
    loss = SenSRLoss(Mahalanobis(SIGMA), dual=price, auditor=auditor).double()
    found = loss.audit(model, x, y)
    # Only w'd counts, and the cheapest shift with w'd = s costs s^2 / (w' S^-1 w).
    unit = w @ np.linalg.solve(SIGMA.numpy(), w)
    s = np.linspace(-20, 20, 400001)
    for row in range(2):
        margin = (2 * int(y[row]) - 1) * (float(x[row].numpy() @ w) + s)
        highest = (np.logaddexp(0, -margin) - price * s**2 / unit).max()
        before = float(cross_entropy(model(x[row : row + 1]), y[row : row + 1]))
        net = float(found.gain[row] - price * found.sq_dist[row])
        assert net == pytest.approx(highest - before, rel=1e-4)
    value = loss(model, x, y)
    expected = cross_entropy(model(found.x), y)
    torch.testing.assert_close(value, expected)


def test_sensr_loss_takes_another_loss() -> None:
    def squared(f: Tensor, y: Tensor) -> Tensor:
        return (f.squeeze(1) - y).square()

    x, model = torch.zeros(3, 4), network(outputs=1)
    loss = SenSRLoss(SensitiveSubspace(LAST), loss=squared)
    y = torch.tensor([0.0, 1.0, -1.0])
    found = loss.audit(model, x, y)
    expected = squared(model(found.x), y) - squared(model(x), y)
    torch.testing.assert_close(found.gain, expected.detach())
    assert bool((found.gain > 0).all())
    torch.testing.assert_close(loss(model, x, y), squared(model(found.x), y).mean())


def test_term_reprs() -> None:
    distance = SensitiveSubspace(LAST)
    auditor = Auditor(num_subspace_steps=1, num_full_steps=2)
    shown = (
        "eps=0.01, auditor=Auditor(num_subspace_steps=1, subspace_lr=0.1, "
        "num_full_steps=2, full_lr=0.01)\n"
        "  (distance): SensitiveSubspace(num_features=4, rank=1)\n)"
    )
    term = SenSeIRegularizer(distance, rho=5.0, auditor=auditor)
    assert str(term) == f"SenSeIRegularizer(\n  rho=5, {shown}"
    assert str(SenSRLoss(distance, auditor=auditor)) == f"SenSRLoss(\n  {shown}"


# inFairness


def _infairness(basis: Tensor) -> tuple[Any, Any]:
    """Its distances: squared, in features and in outputs."""
    distances = pytest.importorskip("inFairness.distances")
    between_inputs = distances.SensitiveSubspaceDistance()
    between_inputs.fit(basis.T)
    between_outputs = distances.SquaredEuclideanDistance()
    between_outputs.fit(num_dims=2)
    return between_inputs, between_outputs


@pytest.mark.filterwarnings("ignore")  # it uses what torch has deprecated
@pytest.mark.parametrize("kind", ["sensei", "sensr"])
@pytest.mark.parametrize("price", [0.5, 5.0])
def test_auditors_agree_with_infairness(
    kind: str, price: float, generator: torch.Generator
) -> None:
    auditors = pytest.importorskip("inFairness.auditor")
    x = torch.randn(64, 4, generator=generator)
    y = torch.randint(0, 2, (64,), generator=generator)
    model, distance = network(), SensitiveSubspace(LAST)
    between_inputs, between_outputs = _infairness(LAST)
    # All its steps are charged, and its first shift is at most 0.1.
    ours = Auditor(num_subspace_steps=0, num_full_steps=100, full_lr=0.05)
    arguments: tuple[Any, ...] = (model, x, y, torch.tensor(price))
    if kind == "sensei":
        reference = auditors.SenSeIAuditor(between_inputs, between_outputs, 100, 0.05)
        arguments = (model, x, torch.tensor(price))
        found = SenSeIRegularizer(distance, dual=price, auditor=ours).audit(model, x)

        def gain(at: Tensor) -> Tensor:
            return (model(at) - model(x)).square().sum(dim=1).detach()
    else:
        reference = auditors.SenSRAuditor(cross_entropy, between_inputs, 100, 0.05)
        found = SenSRLoss(distance, dual=price, auditor=ours).audit(model, x, y)

        def gain(at: Tensor) -> Tensor:
            both = [cross_entropy(model(z), y, reduction="none") for z in (at, x)]
            return (both[0] - both[1]).detach()

    with torch.random.fork_rng():  # it starts from the global source of randomness
        torch.manual_seed(0)
        their_x = reference.generate_worst_case_examples(*arguments)
    expected = gain(their_x) - price * distance.embed(their_x - x).square().sum(dim=1)
    net = found.gain - price * found.sq_dist
    assert float(net.mean()) == pytest.approx(float(expected.mean()), rel=0.25)
    assert float(net.mean()) > 0.1
    # The same line; which way along it is a matter of the random start.
    cosine = cosine_similarity(found.x - x, their_x - x).abs()
    assert float(cosine.median()) > 0.95


@pytest.mark.filterwarnings("ignore")
def test_training_agrees_with_infairness(generator: torch.Generator) -> None:
    algorithms = pytest.importorskip("inFairness.fairalgo")
    x = torch.randn(200, 4, generator=generator)
    y = (x[:, 0] + x[:, 3] > 0).long()
    between_inputs, between_outputs = _infairness(LAST)
    models = {name: network(3) for name in ("plain", "ours", "reference")}
    auditor = Auditor(
        num_subspace_steps=5, subspace_lr=0.1, num_full_steps=5, full_lr=0.1
    )
    term = SenSeIRegularizer(SensitiveSubspace(LAST), rho=2.0, eps=0.1, auditor=auditor)
    reference = algorithms.SenSeI(
        models["reference"],
        between_inputs,
        between_outputs,
        cross_entropy,
        2.0,
        0.1,
        10,
        0.1,
    )
    losses: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: cross_entropy(models["plain"](x), y),
        "ours": lambda: cross_entropy(models["ours"](x), y) + term(models["ours"], x),
        "reference": lambda: reference(x, y).loss,
    }
    change = {}
    moved = x + torch.tensor([0.0, 0.0, 0.0, 2.0])
    for name, loss in losses.items():
        optimizer = torch.optim.Adam(models[name].parameters(), lr=0.02)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for _ in range(60):
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
        with torch.no_grad():
            gap = models[name](moved).softmax(dim=1) - models[name](x).softmax(dim=1)
        change[name] = float(gap.abs().mean())
    assert change["ours"] < 0.25 * change["plain"]
    assert change["reference"] < 0.25 * change["plain"]
    assert abs(change["ours"] - change["reference"]) < 0.2 * change["plain"]


# Bad input


def search(x: Any = ((0.0,) * 4,) * 2, gain: Any = None, dual: float = 1.0) -> object:
    gain = gain or (lambda x: x.sum(dim=1))
    return Auditor().search(gain, torch.tensor(x), SensitiveSubspace(LAST), dual)


def term(**options: Any) -> object:
    return SenSeIRegularizer(**{"distance": Euclidean(), **options})


VALUES = [
    (lambda: Auditor(num_subspace_steps=-1), "'num_subspace_steps' must be at least 0"),
    (lambda: Auditor(subspace_lr=0), "'subspace_lr' must be positive (got 0.0)"),
    (lambda: Auditor(full_lr=-1.0), "'full_lr' must be positive (got -1.0)"),
    (lambda: term(rho=-1.0), "'rho' must be non-negative (got -1.0)"),
    (lambda: term(eps=0.0), "'eps' must be positive (got 0.0)"),
    (lambda: term(dual=-1.0), "'dual' must be non-negative (got -1.0)"),
    (lambda: term(dual_lr=-0.1), "'dual_lr' must be non-negative (got -0.1)"),
    (lambda: search([0.0] * 3), "'x' must be 2-dimensional (got shape (3,))"),
    (lambda: search([[0.0] * 5] * 2), "'x' must have 4 columns (got 5)"),
    (lambda: search([[torch.nan] * 4]), "'x' must be finite (got nan at index (0, 0)"),
    (lambda: search(dual=-1.0), "'dual' must be non-negative (got -1.0)"),
    (lambda: search(gain=lambda x: x), "'gain(x)' must have one entry per row (got sh"),
    (lambda: search(gain=lambda x: x.detach().sum(1)), "'gain(x)' must be different"),
    (
        lambda: SenSRLoss(Euclidean())(network(), torch.zeros(2, 4), torch.zeros(3)),
        "'y' must have as many rows as 'x' (got 3 for 2)",
    ),
]
TYPES = [
    (lambda: Auditor(num_full_steps=1.5), "'num_full_steps' must be a whole number"),
    (lambda: term(auditor=10), "'auditor' must be a Auditor (got int)"),
    (lambda: term(distance="x"), "'distance' must be a FairDistance (got str)"),
    (lambda: term(distance=CallableDistance(torch.cdist)), "'distance' must have an"),
    (lambda: SenSRLoss(Euclidean(), loss="mse"), "'loss' must be callable (got str)"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [(ValueError, *case) for case in VALUES] + [(TypeError, *case) for case in TYPES],
)
def test_bad_input_is_refused(
    error: type[Exception], call: Callable[[], object], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
