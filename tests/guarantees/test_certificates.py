"""What is certain about newcomers, against formulas and against an adversary."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.fit import Certificate
from pyg_glif.guarantees import _weight_box, certify, sensitivity
from pyg_glif.links import Identity, Link, Log, Logit, Softmax
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG
from tests import oracles, oracles_inductive as oracle
from tests.postprocessing.people import EXACT, people

RULES = {
    "radius": {"tau": 0.9},
    "theta": {"tau": 0.9, "theta": 0.0},
    "density": {"tau": 0.9, "normalization": "density"},
    "nearest": {"k": 6},
    "mutual": {"k": 6, "mutual": True},
    "capped": {"k": 6, "tau": 0.7, "theta": 0.4},
}


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
@pytest.mark.parametrize("columns", [1, 3])
def test_certificate_is_the_formula(normalization, columns):
    p = people(columns=columns)
    y, y_new = (p.y, p.y_new) if columns > 1 else (p.y[:, 0], p.y_new[:, 0])
    post = GLIFPostProcessor(
        tau=0.9, theta=0.5, lam=0.2, normalization=normalization, solver=EXACT
    ).fit(p.x, y)
    info = post.transform_info(p.x_new, y_new)
    value = info.value
    W = oracle.fitted_weights(p.x.numpy(), 0.9, 0.5)
    outer = oracle.weights(p.x_new.numpy(), p.x.numpy(), 0.9, 0.5)
    none = np.zeros((len(outer), len(outer)))
    a = oracle.new_rows(W, outer, none, normalization)[0]
    mu = 0.2 * oracles.lam_scale(W, normalization)
    found = info.certificate
    np.testing.assert_allclose(found.own_share, 1.0 / (1.0 + mu * a), rtol=1e-12)
    apart = value.reshape(len(value), 1, -1) - post.y_fair_.reshape(1, len(p.x), -1)
    apart = np.where(outer > 0, apart.abs().amax(2).numpy(), 0.0)
    np.testing.assert_allclose(found.largest_gap, apart.max(1), rtol=1e-12)
    assert found.num_neighbors.tolist() == (outer > 0).sum(1).tolist()
    assert found.own_share[-1] == 1.0
    assert found.largest_gap[-1] == 0.0  # nobody near


@pytest.mark.parametrize("rule", RULES)
def test_gap_of_newcomers_with_the_same_peers_shrinks_by_the_contraction(rule):
    p = people(columns=2)
    post = p.fit(link=Logit(), **{"theta": None, **RULES[rule]})
    info = post.transform_info(p.x_new, p.y_new)
    one = info.value
    two = post.transform(p.x_new, p.y_new.flip(0))
    odds = Logit().to_dual
    before = odds(p.y_new) - odds(p.y_new.flip(0))
    after = odds(one) - odds(two)
    expected = before / info.certificate.contraction.unsqueeze(1)
    torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-9)


def test_certificate_of_batches_and_of_nobody(monkeypatch):
    from pyg_glif.fit import fit as fit_module

    p = people()
    post = p.fit()
    whole = post.transform_info(p.x_new, p.y_new).certificate
    monkeypatch.setattr(fit_module, "_BLOCK", 4)
    parts = post.transform_info(p.x_new, p.y_new).certificate
    for name in ("own_share", "largest_gap", "num_neighbors"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    info = post.transform_info(p.x_new[:0], p.y_new[:0])
    assert info.certificate.own_share.shape == (0,)
    assert repr(info.certificate) == (
        "Certificate(num_samples=0, own_share=0, largest_gap=0)"
    )
    joint = post.transform_info(p.x_new, p.y_new, joint=True)
    assert joint.certificate is None


def _by_sorting(y, own, value, weight):
    """The largest average over a box: upper ends for the k largest values, each k."""
    value, low = np.append(value, y), np.append(weight[0], own[0])
    high, best = np.append(weight[1], own[1]), -np.inf
    order = np.argsort(-value)
    for k in range(len(value) + 1):
        w = low.copy()
        w[order[:k]] = high[order[:k]]
        best = max(best, (w * value).sum() / w.sum())
    return best


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**20), num=st.integers(0, 7), columns=st.integers(1, 3))
def test_box_is_solved_exactly(seed, num, columns):
    rng = np.random.default_rng(seed)
    m = 4
    count = rng.integers(0, num + 1, m)
    row = np.repeat(np.arange(m), count)
    low = rng.uniform(0, 1, len(row)) * (rng.random(len(row)) < 0.6)
    high = low + rng.exponential(1.0, len(row))
    own_low = rng.uniform(0.1, 1, m)
    own_high = own_low + rng.uniform(0, 1, m) * rng.integers(0, 2)
    f, y = rng.normal(size=(9, columns)), rng.normal(size=(m, columns))
    col = rng.integers(0, 9, len(row))
    parts = (row, col, low, high, own_low, own_high)
    box = _weight_box.Box(*(torch.as_tensor(part) for part in parts))
    ends = box.extremes(torch.tensor(y), torch.tensor(y), torch.tensor(f))
    smallest, largest = (end.numpy() for end in ends)
    for i, c in itertools.product(range(m), range(columns)):
        own, here = (own_low[i], own_high[i]), row == i
        weight = low[here], high[here]
        value = f[col[here], c]
        assert largest[i, c] == pytest.approx(
            _by_sorting(y[i, c], own, value, weight), rel=1e-12, abs=1e-12
        )
        corners = itertools.product(own, *zip(*weight, strict=True))
        averages = [(w[0] * y[i, c] + np.dot(w[1:], value)) / sum(w) for w in corners]
        assert largest[i, c] == pytest.approx(max(averages), rel=1e-12, abs=1e-12)
        assert smallest[i, c] == pytest.approx(min(averages), rel=1e-12, abs=1e-12)


def test_box_is_the_same_in_small_parts(monkeypatch):
    p = people()
    post = p.fit()
    whole = certify(post.fit_, p.x_new, 0.2)
    monkeypatch.setattr(_weight_box, "_ENTRIES", 12)
    monkeypatch.setattr(_weight_box, "_ROWS", 3)
    assert torch.equal(certify(post.fit_, p.x_new, 0.2).gap, whole.gap)


def _adversary(post, x, y, delta, generator, rounds=6, tries=40):
    """Searches places within delta for the largest difference: random, then nearer."""
    size, dims = x.shape
    base = post.transform(x, y).reshape(size, -1)
    best, found = torch.zeros(size, dtype=x.dtype), torch.zeros_like(x)
    spread = delta
    for _ in range(rounds):
        step = torch.randn(size, tries, dims, generator=generator, dtype=x.dtype)
        step = found.unsqueeze(1) + spread * step / step.norm(dim=2, keepdim=True)
        length = step.norm(dim=2, keepdim=True)
        step = step * (delta * (1 - 1e-9) / length).clamp(max=1.0)
        moved = (x.unsqueeze(1) + step).reshape(-1, dims)
        out = post.transform(moved, y.repeat_interleave(tries, 0))
        gap = (out.reshape(size, tries, -1) - base.unsqueeze(1)).abs().amax(2)
        value, at = gap.max(1)
        better = value > best
        best = torch.where(better, value, best)
        chosen = step[torch.arange(size), at]
        found = torch.where(better.unsqueeze(1), chosen, found)
        spread *= 0.6
    return best


@pytest.mark.filterwarnings("ignore:.*newcomers have no neighbour")
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**16), delta=st.floats(1e-3, 0.5), lam=st.floats(0.1, 9.0))
@pytest.mark.parametrize("rule", RULES)
def test_nobody_within_delta_exceeds_the_bound(rule, seed, delta, lam):
    generator = torch.Generator().manual_seed(seed)
    p = people(num=40, num_new=6, columns=2, seed=seed)
    post = p.fit(**{"theta": None, **RULES[rule], "lam": lam, "solver": CG()})
    bound = certify(post.fit_, p.x_new, delta, p.y_new, dy=0.0)
    found = _adversary(post, p.x_new, p.y_new, delta, generator)
    assert bool((found <= bound.gap.amax(1) + 1e-12).all())
    assert bool((bound.num_shared <= bound.num_possible).all())


@pytest.mark.filterwarnings("ignore:.*newcomers have no neighbour")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "link", [None, Identity(), Logit(), Log(), Softmax(), Softmax(inputs="logits")]
)
def test_bounds_hold_for_any_output_of_the_range(link, dtype, generator):
    p = people(columns=3, dtype=dtype)
    y = p.y / p.y.sum(1, keepdim=True)
    y_new = y[: len(p.x_new)].flip(0)
    post = GLIFPostProcessor(tau=0.8, lam=2.0, link=link).fit(p.x, y)
    delta = 0.3
    bound, known = (
        certify(post.fit_, p.x_new, delta),
        certify(post.fit_, p.x_new, delta, y_new),
    )
    first = post.transform(p.x_new, y_new).double()
    # Other people's outputs, within the range of those seen.
    for _ in range(20):
        step = torch.randn(p.x_new.shape, generator=generator)
        step = 0.999 * delta * step / step.norm(dim=1, keepdim=True)
        other = y[torch.randint(0, len(y), (len(y_new),), generator=generator)]
        second = post.transform(p.x_new + step.to(dtype), other).double()
        for found in (bound, known):
            assert bool((second >= found.low).all())
            assert bool((second <= found.high).all())
            assert bool(((second - first).abs() <= found.gap).all())
    assert bool((known.gap <= bound.gap + 1e-12).all())


@pytest.mark.filterwarnings("ignore:.*newcomers have no neighbour")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize(
    "link", [Logit(eps=0.1), Logit(eps=0.4), Softmax(eps=0.1), Softmax(eps=0.4)]
)
def test_bounds_hold_for_outputs_that_a_link_clamps(link, lam, dtype, generator):
    # Isolated samples keep their outputs as they were.
    p = people(num=60, num_new=30, columns=2, dtype=dtype)
    y = torch.rand(60, 2, generator=generator, dtype=dtype).round(decimals=1)
    y[:, 1] = 1 - y[:, 0]
    y_new = y[:30].flip(0)
    post = GLIFPostProcessor(tau=0.35, lam=lam, link=link).fit(p.x, y)
    delta, by_row = 0.1, isinstance(link, Softmax)
    options = [{}, {"y_hat_new": y_new}, {"y_hat_new": y_new, "dy": 0.0}]
    if not by_row:
        options += [{"y_hat_new": y_new, "dy": 0.15}, {"y_range": (0.0, 1.0)}]
    first = post.transform(p.x_new, y_new).double()
    seen = 0
    for told in options:
        found = certify(post.fit_, p.x_new, delta, **told)
        for _ in range(10):
            step = torch.randn(p.x_new.shape, generator=generator)
            step = 0.999 * delta * step / step.norm(dim=1, keepdim=True)
            other = y[torch.randint(0, 60, (30,), generator=generator)]
            if "dy" in told:
                move = told["dy"] * (2 * torch.rand(30, 2, generator=generator) - 1)
                other = (y_new + move.to(dtype)).clamp(y.min(), y.max())
            info = post.transform_info(p.x_new + step.to(dtype), other)
            second = info.value
            second, seen = second.double(), seen + int((info.num_neighbors == 0).sum())
            assert bool((second >= found.low).all())
            assert bool((second <= found.high).all())
            assert bool(((second - first).abs() <= found.gap).all())
    assert seen > 0


def test_bound_is_attained_by_one_peer_on_a_line():
    x, y = torch.zeros(1, 1).double(), torch.tensor([1.0]).double()
    post = GLIFPostProcessor(tau=2.0, theta=0.3, lam=3.0).fit(x, y)
    x_new, y_new = torch.tensor([[1.0]]).double(), torch.tensor([0.0]).double()
    found = certify(post.fit_, x_new, 0.5, y_new, dy=0.0)
    ends = post.transform(x_new + torch.tensor([[-0.5], [0.5]]), y_new.expand(2))
    torch.testing.assert_close(found.high[0], ends[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.low[0], ends[1], rtol=1e-9, atol=0)
    assert (found.num_shared.tolist(), found.num_possible.tolist()) == ([1], [1])
    gone = certify(post.fit_, x_new, 1.01, y_new, dy=0.0)  # the peer may be lost
    assert (gone.num_shared.tolist(), float(gone.low)) == ([0], pytest.approx(0.0))


@pytest.mark.parametrize("dy", [0.0, 0.1, 0.4, 5.0])
def test_unknown_outputs_are_the_worst_of_known_ones(dy):
    p = people(columns=1)
    post = GLIFPostProcessor(tau=0.9, lam=1.5).fit(p.x, p.y[:, 0])
    unknown = certify(post.fit_, p.x_new, 0.2, dy=dy)
    low, high = float(p.y.min()), float(p.y.max())
    worst = torch.zeros(len(p.x_new), dtype=torch.float64)
    ends = [low + dy, high - dy] if dy < high - low else []
    for value in [*np.linspace(low, high, 21), *ends]:
        y = torch.full((len(p.x_new),), value, dtype=torch.float64)
        found = certify(post.fit_, p.x_new, 0.2, y, dy=dy)
        worst = torch.maximum(worst, found.gap)
    assert bool((worst <= unknown.gap + 1e-12).all())
    torch.testing.assert_close(worst, unknown.gap, rtol=1e-9, atol=1e-9)


def test_no_distance_leaves_what_outputs_do():
    p = people(columns=1)
    post = GLIFPostProcessor(tau=0.9, lam=1.5).fit(p.x, p.y[:, 0])
    y = p.y_new[:, 0]
    share = post.transform_info(p.x_new, y).certificate.own_share
    found = certify(post.fit_, p.x_new, 0.0, y, dy=0.05, y_range=(-9.0, 9.0))
    torch.testing.assert_close(found.gap, 0.05 * share, rtol=1e-6, atol=1e-9)


def test_bound_uses_the_fair_distance(generator):
    # Whoever differs only in the sensitive direction is at distance zero.
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    basis = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    y = torch.rand(50, generator=generator, dtype=torch.float64)
    post = GLIFPostProcessor(tau=1.0, distance=SensitiveSubspace(basis)).fit(x, y)
    found = certify(post.fit_, x[:5], 0.0, y[:5], dy=0.0)
    other = x[:5] + 100.0 * basis
    gap = (post.transform(other, y[:5]) - post.transform(x[:5], y[:5])).abs()
    assert bool((gap <= found.gap).all())
    assert float(found.gap.max()) < 1e-9


def test_columns_of_frames_come_in_their_order():
    pandas = pytest.importorskip("pandas")
    p = people(columns=2)
    frame = pandas.DataFrame(p.y.numpy(), columns=["a", "b"])
    new = pandas.DataFrame(p.y_new.numpy(), columns=["a", "b"])
    post = GLIFPostProcessor(tau=0.9).fit(p.x, frame)
    plain = certify(post.fit_, p.x_new, 0.1, new)
    turned = certify(post.fit_, p.x_new, 0.1, new[["b", "a"]])
    assert torch.equal(plain.gap, turned.gap.flip(1))


def test_outputs_beyond_the_range_break_the_bound():
    """The assumption on outputs is one: whoever is told a range relies on it."""
    p = people(columns=1)
    y = p.y[:, 0]
    post = GLIFPostProcessor(tau=0.9, lam=0.5).fit(p.x, y)
    found = certify(post.fit_, p.x_new, 0.1, y_range=(0.0, 1.0))
    beyond = post.transform(p.x_new, torch.full((len(p.x_new),), 5.0).double())
    assert bool((beyond > found.high).all())
    with pytest.raises(ValueError, match="'y_hat_new' must be within 'y_range'"):
        certify(post.fit_, p.x_new, 0.1, 5.0 + p.y_new[:, 0], y_range=(0.0, 1.0))


def test_certify_refuses():
    p = people(columns=2)
    post = p.fit()
    for delta in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="'delta' must be"):
            certify(post.fit_, p.x_new, delta)
    with pytest.raises(ValueError, match="'dy' must be non-negative"):
        certify(post.fit_, p.x_new, 0.1, dy=-1.0)
    with pytest.raises(ValueError, match="'y_range' must be in ascending order"):
        certify(post.fit_, p.x_new, 0.1, y_range=(1.0, 0.0))
    with pytest.raises(ValueError, match="'x_new' must be finite"):
        certify(post.fit_, p.x_new * torch.nan, 0.1)
    with pytest.raises(ValueError, match="'normalization' must be one of"):
        certify(p.fit(normalization="nrw", lam=0.1).fit_, p.x_new, 0.1)
    with pytest.raises(ValueError, match="'normalization' must be one of"):
        sensitivity(p.fit(normalization="nrw", lam=0.1).fit_)

    def halved(a, b):  # no triangle inequality
        return torch.cdist(a, b).square()

    black = GLIFPostProcessor(tau=0.9, distance=CallableDistance(halved))
    with pytest.raises(ValueError, match="triangle inequality"):
        certify(black.fit(p.x, p.y).fit_, p.x_new, 0.1)
    logit = p.fit(link=Logit())
    with pytest.raises(ValueError, match="'y_hat_new' must be given with 'dy'"):
        certify(logit.fit_, p.x_new, 0.1, dy=0.1)
    rows = GLIFPostProcessor(tau=0.9, link=Softmax()).fit(
        p.x, p.y / p.y.sum(1, keepdim=True)
    )
    with pytest.raises(ValueError, match="'y_range' must be None with the link"):
        certify(rows.fit_, p.x_new, 0.1, y_range=(0.0, 1.0))
    with pytest.raises(ValueError, match="'dy' must be None or 0 with the link"):
        certify(rows.fit_, p.x_new, 0.1, p.y_new / p.y_new.sum(1, keepdim=True), dy=0.1)


def test_a_link_of_ones_own_must_map_intervals():
    class Cubed(Link):
        def to_dual(self, y_hat):
            return y_hat**3

        def from_dual(self, eta):
            return eta.sign() * eta.abs() ** (1 / 3)

    p = people(columns=1)
    post = GLIFPostProcessor(tau=0.9, link=Cubed()).fit(p.x, p.y[:, 0])
    with pytest.raises(TypeError, match="'Cubed' must override 'interval'"):
        certify(post.fit_, p.x_new, 0.1)


def _dense(post, x, theta=0.5):
    W = oracle.fitted_weights(x.numpy(), post.tau_, theta)
    return W, oracle.inverse(W, post.lam, post.normalization)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**16), lam=st.floats(1e-2, 1e2))
@pytest.mark.parametrize("normalization", [None, "density"])
def test_sensitivity_bounds_the_inverse(normalization, seed, lam):
    p = people(num=30, columns=1, seed=seed)
    post = p.fit(lam=lam, normalization=normalization)
    K = _dense(post, p.x)[1]
    found = sensitivity(post.fit_)
    own = np.diag(K)
    slack = 1 + 1e-9
    assert (K.max(0) <= found.own.numpy() * slack).all()
    assert (own >= found.own_low.numpy() / slack).all()
    others = (K - np.diag(own)).max(0)
    assert (others <= found.others.numpy() * slack + 1e-15).all()


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**16), lam=st.floats(1e-2, 1e2))
def test_leaving_moves_nobody_further_than_the_bound(seed, lam):
    p = people(num=25, columns=2, seed=seed)
    post = p.fit(lam=lam)
    W, K = _dense(post, p.x)
    f, bound = K @ p.y.numpy(), sensitivity(post.fit_).leaving.numpy()
    for i in range(len(W)):
        stay = np.arange(len(W)) != i
        inverse = oracle.inverse(W[np.ix_(stay, stay)], lam, None)
        moved = np.abs(inverse @ p.y.numpy()[stay] - f[stay]).max(0)
        assert (moved <= bound[i] * (1 + 1e-9) + 1e-9).all()


@pytest.mark.parametrize("rule", RULES)
def test_what_leaving_does_is_bounded_or_not_told(rule):
    """For every rule of neighbors, against a fit to those who stay."""
    p = people(num=30, columns=1)
    options = {"theta": None, "lam": 3.0, "solver": EXACT, **RULES[rule]}
    bound = sensitivity(p.fit(**options).fit_).leaving
    assert (bound is None) == ("k" in options or "normalization" in options)
    if bound is None:
        return
    theta = float(p.fit(**options).theta_)
    everybody = p.fit(**options).y_fair_
    for i in range(30):
        stay = torch.arange(30) != i
        post = GLIFPostProcessor(**{**options, "theta": theta})
        rest = post.fit(p.x[stay], p.y[stay]).y_fair_
        assert float((rest - everybody[stay]).abs().max()) <= float(bound[i]) + 1e-9


def test_sensitivity_of_a_star_is_exact():
    # One centre, leaves that do not know each other: the bound is the entry.
    angle = torch.linspace(0, 2 * torch.pi, 6, dtype=torch.float64)[:-1]
    leaves = torch.stack([angle.cos(), angle.sin()], 1)
    x = torch.cat([torch.zeros(1, 2, dtype=torch.float64), leaves])
    y = torch.arange(6.0, dtype=torch.float64)
    post = GLIFPostProcessor(tau=1.05, theta=0.5, lam=2.0, solver=EXACT).fit(x, y)
    K = _dense(post, x)[1]
    assert float(sensitivity(post.fit_).own[0]) == pytest.approx(K[0, 0], rel=1e-9)
    assert repr(sensitivity(post.fit_)).startswith("Sensitivity(num_samples=6, own=")


def test_certificate_repr():
    one = torch.ones(2, dtype=torch.float64)
    found = Certificate(0.5 * one, 0.25 * one, one.long(), one)
    assert repr(found) == (
        "Certificate(num_samples=2, own_share=0.5, largest_gap=0.25)"
    )
