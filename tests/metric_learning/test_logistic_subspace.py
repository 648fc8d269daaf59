import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.metric_learning import LogisticSubspace
from tests import oracles_metric_learning


def _samples(
    generator: torch.Generator, num_rows: int = 2_000, num_classes: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels drawn from a softmax model; directions are differences of classes."""
    dtype = torch.float64
    x = torch.randn(num_rows, 6, generator=generator, dtype=dtype)
    weight = torch.randn(num_classes, 6, generator=generator, dtype=dtype)
    noise = -torch.rand(num_rows, num_classes, generator=generator, dtype=dtype)
    noise = -(-noise).log().neg().log()  # Gumbel: the maximum is a softmax draw
    label = (x @ weight.T + noise).argmax(dim=1)
    return x, label, weight[1:] - weight[0]


@pytest.mark.parametrize("num_classes", [2, 4])
def test_logistic_subspace_recovers_planted_directions(
    num_classes: int, generator: torch.Generator
) -> None:
    x, label, truth = _samples(generator, 50_000, num_classes)
    distance = LogisticSubspace().fit(x, label)
    assert distance.rank == num_classes - 1
    assert oracles_metric_learning.largest_angle(distance.basis, truth) < 0.05
    fit = distance.fit_result[0]
    assert fit.classes == tuple(range(num_classes))
    assert fit.accuracy > fit.majority + 0.1
    assert fit.converged


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
def test_coefficients_match_scikit_learn(
    num_classes: int, ridge: float, generator: torch.Generator
) -> None:
    x, label, _ = _samples(generator, 500, num_classes)
    x = x * torch.tensor([1, 10, 0.1, 1, 1, 1]) + 3
    fit = LogisticSubspace(ridge=ridge, rtol=1e-9).fit(x, label).fit_result[0]
    peer = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000)
    peer.fit(x.numpy(), label.numpy())
    np.testing.assert_allclose(fit.coefficients, peer.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        fit.intercepts - fit.intercepts.mean() * (num_classes > 2),
        peer.intercept_ - peer.intercept_.mean() * (num_classes > 2),
        rtol=1e-3,
        atol=1e-3,
    )
    assert fit.accuracy == pytest.approx(peer.score(x.numpy(), label.numpy()), abs=0.01)
    ours, theirs = (
        oracles_metric_learning.softmax_objective(
            x.numpy(), label.numpy(), *model, ridge
        )
        for model in (
            (fit.coefficients.numpy(), fit.intercepts.numpy()),
            (peer.coef_, peer.intercept_),
        )
    )
    assert ours <= theirs + 1e-8 * abs(theirs)
    penalty = ridge / 2 * float(fit.coefficients.square().sum())
    assert fit.log_likelihood == pytest.approx((penalty - ours) / 500, rel=1e-9)


def test_several_attributes_add_their_directions(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator, num_classes=3)
    _, other, _ = _samples(generator)
    learner = LogisticSubspace(rtol=1e-9)
    both = learner.fit(x, torch.stack([label * 5 - 7, other], dim=1))
    assert both.rank == 3
    assert both.fit_result[0].classes == (-7, -2, 3)
    one, two = learner.fit(x, label), learner.fit(x, other.bool())
    rows = torch.cat([one.basis, two.basis])
    assert oracles_metric_learning.largest_angle(both.basis, rows) < 1e-6


def test_complementary_attributes_count_once(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator)
    coded = torch.stack([label, 1 - label], dim=1)
    distance = LogisticSubspace().fit(x, coded)
    assert distance.rank == 1
    expected = LogisticSubspace().fit(x, label).basis
    assert oracles_metric_learning.largest_angle(distance.basis, expected) < 1e-5


def test_protected_columns_are_ignored_and_not_regressed_on(
    generator: torch.Generator,
) -> None:
    x, label, _ = _samples(generator)
    with_column = torch.cat([x[:, :2], label[:, None], x[:, 2:]], dim=1)
    distance = LogisticSubspace(protected_columns=(2,)).fit(with_column, label)
    assert distance.rank == 2
    inner = LogisticSubspace().fit(x, label).fit_result[0].coefficients
    found = distance.fit_result[0].coefficients
    torch.testing.assert_close(found[:, [0, 1, 3, 4, 5, 6]], inner)
    assert float(found[0, 2]) == 0
    flipped = with_column.clone()
    flipped[:, 2] = 1 - flipped[:, 2]
    assert float(distance(with_column[:50], flipped[:50]).diagonal().max()) < 1e-12


def test_projected_samples_cannot_be_classified(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator)
    distance = LogisticSubspace().fit(x, label)
    again = LogisticSubspace().fit(distance.embed(x), label).fit_result[0]
    assert distance.fit_result[0].accuracy > 0.8
    assert again.accuracy < again.majority + 0.05


def test_order_and_names_of_classes_do_not_matter(
    generator: torch.Generator,
) -> None:
    x, label, _ = _samples(generator, num_classes=3)
    order = torch.randperm(len(x), generator=generator)
    one = LogisticSubspace(rtol=1e-9).fit(x, label)
    other = LogisticSubspace(rtol=1e-9).fit(
        x[order], torch.tensor([4, -1, 2])[label[order]]
    )
    assert oracles_metric_learning.largest_angle(other.basis, one.basis) < 1e-6


def test_separable_data_has_a_solution(generator: torch.Generator) -> None:
    x = torch.randn(200, 4, generator=generator)
    distance = LogisticSubspace(ridge=1e-3).fit(x, x[:, 0] > 0)
    assert distance.fit_result[0].accuracy == 1
    assert float(distance.basis[0, 0].abs()) > 0.99


def test_collinear_and_constant_columns_are_no_trouble(
    generator: torch.Generator,
) -> None:
    x, label, _ = _samples(generator, 300)
    wide = torch.cat([x, x[:, :1], torch.ones(300, 1)], dim=1)
    coefficients = LogisticSubspace().fit(wide, label).fit_result[0].coefficients[0]
    torch.testing.assert_close(coefficients[6], coefficients[0])
    assert float(coefficients[7].abs()) < 1e-12


@pytest.mark.filterwarnings("ignore")  # of inFairness
def test_logistic_subspace_approaches_infairness_as_rows_grow(
    generator: torch.Generator,
) -> None:
    reference = pytest.importorskip("inFairness.distances")
    x, label, _ = _samples(generator, 20_000)
    peer = reference.LogisticRegSensitiveSubspace()
    np.random.seed(0)  # noqa: NPY002 - its solver is randomised
    peer.fit(x.float(), label[:, None].float())
    basis = LogisticSubspace().fit(x, label).basis
    # It penalises absolute values, we squares: equal in the limit of many rows.
    assert oracles_metric_learning.largest_angle(basis, peer.basis_vectors_.T) < 1e-3


def test_logistic_subspace_reports_failure_to_converge(
    generator: torch.Generator,
) -> None:
    x, label, _ = _samples(generator, 200)
    message = (
        r"LogisticSubspace stopped after 1 iterations on 'attributes\[:, 0\]': "
        r"relative gradient .*, 'rtol' is 1e-06. Raise 'max_iter' or 'ridge'"
    )
    with pytest.raises(ConvergenceError, match=message):
        LogisticSubspace(max_iter=1).fit(x, label)
    with pytest.warns(ConvergenceWarning, match=message):
        distance = LogisticSubspace(max_iter=1, throw=False).fit(x, label)
    assert not distance.fit_result[0].converged


def test_unreachable_tolerance_ends(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator, 50)
    message = r"stopped after \d+ iterations .* 'rtol' is 1e-30. Raise 'rtol'"
    with pytest.raises(ConvergenceError, match=message):
        LogisticSubspace(rtol=1e-30, max_iter=500).fit(x, label)


def _raw(
    generator: torch.Generator, scale: torch.Tensor, offset: float, dtype: torch.dtype
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Features in odd units, labels, and the features centred in long double."""
    x, label, _ = _samples(generator, 400)
    x = (x * scale + offset).to(dtype)
    exact = x.numpy().astype(np.longdouble)
    centred = (exact - exact.mean(axis=0)) / scale.numpy()
    return x, label.numpy(), centred.astype(np.float64)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e6, -1e8])
def test_offsets_and_units_do_not_stop_the_solver(
    scale: float, offset: float, generator: torch.Generator
) -> None:
    scales = torch.full((6,), scale, dtype=torch.float64)
    x, label, centred = _raw(generator, scales, offset, torch.float64)
    fit = LogisticSubspace(rtol=1e-9).fit(x, torch.from_numpy(label)).fit_result[0]
    # A coefficient of scaled features is the scale times as large, and so its
    # square in the penalty.
    peer = LogisticRegression(C=scale**2, tol=1e-10, max_iter=10_000)
    peer.fit(centred, label)
    found = fit.coefficients.numpy() * scale
    np.testing.assert_allclose(found, peer.coef_, rtol=1e-4, atol=1e-6 * scale)
    assert fit.converged


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e8])
def test_columns_in_unequal_units(offset: float, generator: torch.Generator) -> None:
    scale = torch.tensor([1e-6, 1e-3, 1.0, 1e3, 1e6, 2.0], dtype=torch.float64)
    x, label, centred = _raw(generator, scale, offset, torch.float64)
    distance = LogisticSubspace(rtol=1e-10).fit(x, torch.from_numpy(label))
    fit = distance.fit_result[0]
    penalty = 1 / scale.numpy() ** 2
    expected, bias = oracles_metric_learning.ridge_logistic(centred, label, penalty)
    found = fit.coefficients.numpy()[0] * scale.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-12)
    centre = x.numpy().astype(np.longdouble).mean(axis=0)
    shift = float(centre @ fit.coefficients.numpy()[0].astype(np.longdouble))
    # The intercept of features as given is that large number short of a small one.
    slack = 1e-13 * abs(shift) + 1e-7
    assert float(fit.intercepts[0]) + shift == pytest.approx(bias, abs=slack)
    scores = centred @ expected + bias
    assert fit.accuracy == np.mean((scores > 0) == label)


def test_the_oracle_agrees_with_scikit_learn(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator, 400)
    found = oracles_metric_learning.ridge_logistic(
        x.numpy(), label.numpy(), np.full(6, 0.7)
    )
    peer = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=10_000)
    peer.fit(x.numpy(), label.numpy())
    np.testing.assert_allclose(found[0], peer.coef_[0], rtol=1e-5)
    assert found[1] == pytest.approx(float(peer.intercept_[0]), rel=1e-4)


def test_single_precision_features_far_from_zero(generator: torch.Generator) -> None:
    scale = torch.ones(6, dtype=torch.float64)
    x, label, centred = _raw(generator, scale, 1e6, torch.float32)
    fit = LogisticSubspace(rtol=1e-9).fit(x, torch.from_numpy(label)).fit_result[0]
    peer = LogisticRegression(tol=1e-10, max_iter=10_000).fit(centred, label)
    np.testing.assert_allclose(fit.coefficients, peer.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
)
def test_labels_of_every_integer_kind(kind: str, generator: torch.Generator) -> None:
    x, label, _ = _samples(generator, 200, 3)
    expected = LogisticSubspace().fit(x, label)
    for given in (label.to(getattr(torch, kind)), label.numpy().astype(kind)):
        assert torch.equal(LogisticSubspace().fit(x, given).basis, expected.basis)


def test_arrays_and_text_labels(generator: torch.Generator) -> None:
    x, label, _ = _samples(generator, 200)
    expected = LogisticSubspace().fit(x, label)
    text = np.array(["blue", "red"])[label.numpy()]
    found = LogisticSubspace().fit(x.numpy(), text)
    assert torch.equal(found.basis, expected.basis)
    assert found.fit_result[0].classes == (0, 1)
