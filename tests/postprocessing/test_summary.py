"""What a fit says about itself, and what it warns of."""

import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Euclidean, Mahalanobis, SensitiveSubspace
from pyg_glif.errors import NotFittedError, SimilarityWarning
from pyg_glif.tables import FairTable
from tests.postprocessing.people import people


def test_summary_counts_what_the_definition_says() -> None:
    group = people(num=61)
    post = group.fit(tau=0.6)
    found = post.summary()
    x = group.x.numpy()
    near = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) <= 0.6
    np.fill_diagonal(near, False)
    degree = near.sum(1)
    levels = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
    for name, level in levels.items():
        expected = np.quantile(degree, level, method="higher")
        assert found.degree[name] == expected
    assert found.degree["mean"] == pytest.approx(degree.mean())
    assert found.isolated.tolist() == np.flatnonzero(degree == 0).tolist()
    assert post.isolated_.tolist() == found.isolated.tolist()
    assert post.num_isolated_ == len(found.isolated) > 0
    assert found.share_isolated == pytest.approx((degree == 0).mean())
    assert found.share_joined == pytest.approx(near.sum() / (61 * 60))
    assert found.error_bound == float(post.solution_.error_bound.max())
    assert (found.num_people, found.tau, found.theta, found.lam) == (61, 0.6, 0.5, 0.7)


def test_summary_as_text_and_data() -> None:
    x = torch.tensor([[0.0, 0.0], [0.1, 9.0], [0.2, 0.0], [5.0, 0.0]])
    distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
    post = GLIFPostProcessor(tau=0.5, theta=0.0, distance=distance)
    found = post.fit(x, torch.tensor([0.9, 0.2, 0.7, 0.4])).summary(unit="years")
    lines = str(found).splitlines()
    assert lines[:-1] == [
        "people               4",
        "who is similar       within 0.5 (SensitiveSubspace, in years)",
        "compared by          1 column: 0",
        "not looked at        1",
        "weights              all equal",
        "strength             lam = 1",
        "neighbours each      mean 1.5, least 0, 10% 2, median 2, 90% 2, most 2",
        "without a neighbour  1 (25.0%), rows 3",
        "pairs joined         50.000% of all",
    ]
    assert lines[-1].startswith("solve                CONVERGED, error bound ")
    assert "| without a neighbour | 1 (25.0%), rows 3 |" in found.to_markdown()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["isolated"] == [3]
    assert data["degree"]["median"] == 2
    assert (data["columns"], data["ignored"], data["unit"]) == ([0], [1], "years")


def test_summary_says_how_neighbours_are_counted() -> None:
    group = people()
    rules = {
        "the 3 nearest (Euclidean, in units of the distance)": {},
        "the 3 nearest of each other (": {"mutual": True},
        "the 3 nearest, within 0.5 (": {"tau": 0.5},
    }
    for words, case in rules.items():
        post = group.fit(**{"k": 3, "tau": None, "theta": None, **case})
        text = str(post.summary())
        assert words in text
        assert "by each person's distance from their k-th nearest" in text
    assert post.summary().to_dict()["theta"] is None
    assert group.fit(k=3, tau=None).summary().to_dict()["tau"] == "Infinity"


def test_summary_names_columns_and_lists_a_few() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"column {at}" for at in range(20)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 20, generator=generator, dtype=torch.float64)
    frame = pandas.DataFrame(x.numpy(), columns=names)
    found = GLIFPostProcessor(tau=0.1).fit(frame, np.zeros(30)).summary()
    assert found.columns == tuple(names)
    assert found.isolated.tolist() == list(range(30))
    text = str(found)
    assert "20 columns: column 0, " in text
    assert "column 11 and 8 more" in text
    assert "30 (100.0%), rows 0, 1, " in text
    assert "11 and 18 more" in text


def test_summary_needs_a_fit() -> None:
    with pytest.raises(NotFittedError, match="summary' needs a fit"):
        GLIFPostProcessor().summary()
    assert not hasattr(GLIFPostProcessor(), "isolated_")


def test_summary_survives_saving(tmp_path: Any) -> None:
    post = people().fit(k=3, tau=None, theta=None)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert other.summary().to_dict() == post.summary().to_dict()


def quiet(call: Any) -> None:
    """Calls, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


def test_newcomers_without_peers_are_told() -> None:
    group = people()
    post = group.fit()
    far, y = group.x_new[:12] + 100.0, group.y_new[:12]
    message = (
        "12 of 12 newcomers have no neighbour among the fitted people and keep their "
        "outputs. Fit on people like them, or use a larger 'tau' or 'k'"
    )
    for joint in (False, True):
        # Newcomers may be each other's neighbours; these are too far apart for that.
        x = far + 100.0 * torch.arange(12.0).double().unsqueeze(1)
        with pytest.warns(SimilarityWarning) as caught:
            post.transform(x, y, joint=joint)
        assert [str(one.message) for one in caught] == [message]
        assert caught[0].filename == __file__
    half = torch.cat([far[:6], group.x[:6]])
    quiet(lambda: post.transform(half, y))  # not more than half
    quiet(lambda: post.transform(far[:9], y[:9]))  # too few to tell
    quiet(lambda: post.transform(far[:0], y[:0]))


def test_a_radius_that_joins_almost_everybody_is_told() -> None:
    x = torch.arange(20.0).unsqueeze(1)
    y = torch.zeros(20)
    message = r"'tau' = 18 joins 99.5% of all pairs: .*Use a smaller 'tau'"
    with pytest.warns(SimilarityWarning, match=message) as caught:
        GLIFPostProcessor(tau=18.0).fit(x, y)
    assert len(caught) == 1
    with pytest.warns(SimilarityWarning, match="joins"):
        GLIFPostProcessor(target_degree=18.5).fit(x, y)
    with pytest.warns(SimilarityWarning, match="'k' = 18 joins"):
        GLIFPostProcessor(k=18).fit(x, y)
    quiet(lambda: GLIFPostProcessor(tau=12.0).fit(x, y))  # 84%
    quiet(lambda: GLIFPostProcessor(tau=float("inf")).fit(x, y))  # as it was asked to
    quiet(lambda: GLIFPostProcessor(tau=30.0).fit(x[:19], y[:19]))  # too few to tell


def table(num: int = 40) -> dict[str, np.ndarray]:
    """A table as people have them."""
    generator = np.random.default_rng(0)
    return {
        "age": generator.integers(18, 80, num),
        "pay": generator.integers(10_000, 90_000, num),
        "rate": generator.random(num),
        "member": (np.arange(num) == 3).astype(int),
        "constant": np.ones(num),
    }


def test_uneven_columns_are_told() -> None:
    pandas = pytest.importorskip("pandas")
    frame, y = pandas.DataFrame(table()), np.zeros(40)
    post = GLIFPostProcessor(target_degree=5)
    with pytest.warns(SimilarityWarning) as caught:
        post.fit(frame, y)
    (only,) = caught
    spread = np.array([frame[name].std() for name in ("age", "pay", "rate")])
    ratio = f"{spread[1] / spread[2]:.3g}"
    assert str(only.message) == (
        f"Nothing was standardised: column 'pay' of 'x' spreads {ratio} times as far "
        "as column 'rate', which has next to no say in who is similar. Divide columns "
        "by their standard deviation, or use 'pyg_glif.tables.FairTable'"
    )
    # As an array it is recognised by its whole numbers.
    with pytest.warns(SimilarityWarning, match="column 1 of 'x' .* column 2"):
        post.fit(frame.to_numpy(), y)
    with pytest.warns(SimilarityWarning, match="Nothing was standardised"):
        post.set_params(distance=Euclidean()).fit(torch.from_numpy(frame.to_numpy()), y)


def test_columns_that_may_be_uneven_are_not() -> None:
    pandas = pytest.importorskip("pandas")
    frame, y = pandas.DataFrame(table()), np.zeros(40)
    post = GLIFPostProcessor(target_degree=5)
    spread = frame.std().replace(0.0, 1.0)
    quiet(lambda: post.fit(frame / spread, y))
    # One 1 among zeros is rare, not small.
    quiet(lambda: post.fit(frame[["age", "member", "constant"]], y))
    quiet(lambda: post.fit(frame[["pay"]], y))
    quiet(lambda: post.fit(frame[:19], y[:19]))
    # Principal components are uneven by nature, and a distance is a decision.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=generator) * torch.logspace(0, 5, 5)
    quiet(lambda: post.fit(x, y))
    sigma = torch.diag(1.0 / torch.tensor(spread.tolist()) ** 2)
    quiet(lambda: post.set_params(distance=Mahalanobis(sigma)).fit(frame, y))
    wide = torch.cat([x, torch.arange(40.0).unsqueeze(1).expand(40, 60)], 1)
    quiet(lambda: GLIFPostProcessor(target_degree=5).fit(wide, y))


@pytest.mark.parametrize(
    "name", ["y", "Label", "TARGET", "repaid", "Loan Status", "two_year_recid", "churn"]
)
@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_outcomes_among_the_features_are_told(name: str, package: str) -> None:
    frames = pytest.importorskip(package)
    columns = {"age": np.arange(8.0), name: np.arange(8) % 2}
    with pytest.warns(SimilarityWarning) as caught:
        GLIFPostProcessor(tau=1.0).fit(frames.DataFrame(columns), np.zeros(8))
    assert [str(one.message) for one in caught] == [
        f"'x' has columns of 0 and 1 named like an outcome ('{name}'), and they say "
        "who is similar. Leave them out of 'x'"
    ]


@pytest.mark.parametrize("name", ["years", "yes", "defaults_so_far", "class", "sex"])
def test_other_columns_are_no_outcomes(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"age": np.arange(8.0), name: np.arange(8) % 2}
    post, y = GLIFPostProcessor(tau=1.0), np.zeros(8)
    quiet(lambda: post.fit(pandas.DataFrame(columns), y))
    # An amount is not decided upon, whatever its name.
    columns = {"age": np.arange(8.0), "income": np.arange(8.0) / 4}
    quiet(lambda: post.fit(pandas.DataFrame(columns), y))
    # Where the caller chose the distance, too, the column is one of the features.
    columns = {"age": np.arange(8.0), "label": np.arange(8) % 2}
    with pytest.warns(SimilarityWarning, match="'label'"):
        post.set_params(distance=Mahalanobis(torch.eye(2))).fit(
            pandas.DataFrame(columns), y
        )


def test_a_fit_to_a_table_is_summarized_by_its_columns() -> None:
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "age": rng.integers(20, 60, 80),
            "job": rng.choice(["clerk", "nurse"], 80),
            "idle": rng.normal(size=80),
        }
    )

    def predict(frame: pd.DataFrame) -> Any:
        logit = (frame["age"] - 40) / 10 + (frame["job"] == "nurse")
        return 1 / (1 + np.exp(-logit.to_numpy(float)))

    table = FairTable().fit(people, predict)
    post = GLIFPostProcessor(tau=0.5).fit(table.transform(people), predict(people))
    found = post.describe(people, table=table).summary()
    assert (found.columns, found.ignored) == (("age", "job"), ("idle",))
    assert "2 columns: age, job" in str(found)


def test_warnings_point_at_the_callers_line() -> None:
    wide = torch.tensor([[0.0, 0.0], [1.0, 1e6], [2.0, 2e6]] * 10)
    calls = [
        lambda: GLIFPostProcessor(tau=1.0).fit(wide, torch.rand(30)),
        lambda: GLIFPostProcessor(tau=1e9).fit(wide, torch.rand(30)),
        lambda: (
            GLIFPostProcessor(tau=2.0)
            .fit(pd.DataFrame({"a": [0.0, 1.0]}), torch.rand(2))
            .transform(torch.rand(2, 1), torch.rand(2))
        ),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call()
        words = ("standardised", "joins", "taken by position")
        ours = [one for one in told if any(w in str(one.message) for w in words)]
        assert ours
        assert {one.filename for one in ours} == {__file__}
