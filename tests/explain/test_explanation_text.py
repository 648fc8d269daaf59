"""Explanations: numbers that add up, differences and reasons by NumPy, no names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import GLIFPostProcessor
from pyg_glif._utils.disclosure import MIN_SHARED
from pyg_glif.links import Logit
from pyg_glif.reporting.words import whole_percents
from pyg_glif.solvers import CG
from pyg_glif.tables import FairTable
from tests import oracles_inductive as oracle

EXACT = CG(rtol=1e-12)
NUM = 120


def frame(num: int = NUM, seed: int = 5) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 40, num),
            "job": random.choice(["clerk", "nurse"], num),
            "hours": np.where(
                random.random(num) < 0.1, np.nan, random.integers(20, 50, num)
            ),
            "sex": random.choice(["f", "m"], num),
        },
        index=[f"P{i}" for i in range(num)],
    )


def predict(people: pd.DataFrame) -> Any:
    logit = 0.1 * (people["age"] - 30) + (people["job"] == "nurse") * 0.6
    logit = (
        logit + 0.02 * (people["hours"].fillna(35) - 35) + 0.3 * (people["sex"] == "m")
    )
    return 1 / (1 + np.exp(-logit))


class Scene:
    """A table, its people and a fit to the model's log-odds."""

    def __init__(self) -> None:
        self.frame = frame()
        self.table = FairTable(["sex"]).fit(self.frame, predict)
        self.x = self.table.transform(self.frame)
        noise = np.random.default_rng(1).normal(size=NUM) / 2
        logit = np.log(predict(self.frame) / (1 - predict(self.frame))) + noise
        self.y = torch.tensor((1 / (1 + np.exp(-logit))).to_numpy())
        self.post = GLIFPostProcessor(
            tau=0.8, theta=0.3, lam=0.5, link=Logit(1e-6), solver=EXACT
        ).fit(self.x, self.y, ids=list(self.frame.index))
        self.post.describe(self.frame, table=self.table)
        self.W = oracle.fitted_weights(self.x.numpy(), 0.8, 0.3)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def logit(p: Any) -> Any:
    return np.log(p / (1 - p))


@pytest.mark.parametrize("i", [0, 17, 61])
def test_numbers_add_up_to_the_result(scene: Scene, i: int) -> None:
    why = scene.post.explain(i)
    R = oracle.inverse(scene.W, 0.5, None)
    peers = scene.W[i] > 0
    others = ~peers & (np.arange(NUM) != i) & (R[i] > 1e-13)
    y = scene.y.numpy()
    for part, which in ((why.neighbors, peers), (why.others, others)):
        assert part.share == pytest.approx(R[i][which].sum(), abs=1e-6)
        mean = (R[i] * logit(y))[which].sum() / R[i][which].sum()
        assert logit(part.mean) == pytest.approx(mean, abs=1e-4)
    assert why.num_neighbors == peers.sum()
    assert why.own_share == pytest.approx(R[i, i], abs=1e-6)
    assert why.own.share + why.neighbors.share + why.others.share == pytest.approx(
        1, abs=1e-12
    )
    total = sum(part.share * logit(part.mean) for part in why.parts.values())
    assert total == pytest.approx(logit(why.y_fair), abs=1e-5)
    assert why.y_hat == pytest.approx(y[i])
    assert why.y_fair == pytest.approx(float(scene.post.y_fair_[i]))
    assert why.sample == f"P{i}"


def test_numbers_add_up_for_newcomers(scene: Scene) -> None:
    new = frame(6, seed=9)
    x, y = scene.table.transform(new), torch.rand(6, dtype=torch.float64)
    fair = scene.post.transform(x, y)
    for at in range(6):
        rows = slice(at, at + 1)
        why = scene.post.explain_new(x[rows], y_hat_new=y[rows], features=new[rows])
        assert why.y_fair == pytest.approx(float(fair[at]))
        assert why.sample is None
        total = sum(p.share * logit(p.mean) for p in why.parts.values() if p.share)
        assert total == pytest.approx(logit(why.y_fair), abs=1e-5)
        shares = [part.share for part in why.parts.values()]
        assert sum(shares) == pytest.approx(1.0, abs=1e-12)
        dist = torch.cdist(x[rows], scene.x)[0]
        assert why.num_neighbors == int((dist <= 0.8).sum())
        assert why.closest is not None
        bare = scene.post.explain_new(x[rows])
        assert (bare.y_hat, bare.y_fair, bare.reasons, bare.closest) == (None,) * 4
        assert bare.to_text().startswith("This is what your result is made of.")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=6))
def test_percents_add_up_to_a_hundred(parts: list[float]) -> None:
    total = sum(parts)
    if total <= 1e-9:
        return
    shares = [part / total for part in parts]
    found = whole_percents(shares)
    assert sum(found) == 100
    for share, percent in zip(shares, found, strict=True):
        assert abs(100 * share - percent) < 1 + 1e-6


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000), st.floats(0.01, 100.0), st.sampled_from([None, "density"])
)
def test_shares_add_up(seed: int, lam: float, normalization: Any) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(30, 2, generator=random, dtype=torch.float64)
    y = torch.rand(30, generator=random, dtype=torch.float64)
    post = GLIFPostProcessor(tau=0.3, lam=lam, normalization=normalization).fit(x, y)
    why = post.explain(seed % 30)
    assert sum(p.share for p in why.parts.values()) == pytest.approx(1.0, abs=1e-12)
    assert min(p.share for p in why.parts.values()) >= 0.0
    total = sum(p.share * p.mean for p in why.parts.values() if p.share)
    bound = why.error_bound * float(y.norm()) + float(post.solution_.error_bound.max())
    assert abs(total - why.y_fair) <= bound + 1e-12


def test_what_the_closest_differ_in(scene: Scene) -> None:
    why = scene.post.explain(3)
    dist = np.linalg.norm(scene.x.numpy() - scene.x[3].numpy(), axis=1)
    peers = np.flatnonzero(scene.W[3] > 0)
    near = peers[np.argsort(dist[peers], kind="stable")[:MIN_SHARED]]
    theirs, mine = scene.frame.iloc[near], scene.frame.iloc[3]
    told = {one.feature: one for one in why.closest}
    assert set(told) <= {"age", "job", "hours"}  # never what must not count
    for name in ("age", "hours"):
        value = mine[name]
        differing = [
            not (v == value or (v != v and value != value)) for v in theirs[name]
        ]
        if sum(differing):
            one = told[name]
            assert one.num_differing == sum(differing)
            assert one.others == pytest.approx(theirs[name].mean())
            spread = scene.frame[name].std(ddof=0)
            assert one.size == pytest.approx(abs(theirs[name].mean() - value) / spread)
    assert (theirs["job"] != mine["job"]).sum() == (
        told["job"].num_differing if "job" in told else 0
    )
    sizes = [one.size for one in why.closest]
    assert sizes == sorted(sizes, reverse=True)


def test_reasons_are_effects_that_higher_scored_peers_have_more_of(
    scene: Scene,
) -> None:
    i = int(scene.post.y_fair_.argsort()[30])
    why = scene.post.explain(i)
    fair = scene.post.y_fair_.numpy()
    peers = np.flatnonzero((scene.W[i] > 0) & (fair > fair[i]))
    R = oracle.inverse(scene.W, 0.5, None)[i]
    weight = R[peers] / R[peers].sum()
    gain = weight @ (scene.x.numpy()[peers] - scene.x.numpy()[i])
    assert why.num_higher == len(peers) >= MIN_SHARED
    names = ["age", "job", "hours"]
    expected = sorted(
        ((g, n) for g, n in zip(gain, names, strict=True) if g > 0), reverse=True
    )
    assert [one.feature for one in why.reasons] == [n for _, n in expected]
    for one, (size, _) in zip(why.reasons, expected, strict=True):
        assert one.size == pytest.approx(size, abs=1e-5)
        assert one.unit == "log-odds"
    text, reasons = why.to_text(reasons=True).split("\n\n")
    assert text == why.to_text()
    assert reasons.startswith("What sets you apart from the")


def test_a_text_names_no_other_sample(scene: Scene) -> None:
    why = scene.post.explain("P7")
    text = why.to_text(reasons=True) + why._repr_html_() + why.to_markdown()
    text += json.dumps(why.to_dict()) + why.to_frame().to_csv()
    text = text.replace('"P7"', "").replace("P7", "")
    assert not [name for name in scene.frame.index if f"{name}" in text.split()]
    assert "contributors" not in why.to_dict()
    named = why.to_dict(names=True)["contributors"]
    assert {one["sample"] for one in named} <= set(scene.frame.index)
    assert why.to_frame(names=True)["share"].sum() == pytest.approx(1.0)
    assert named[0]["sample"] in why.to_text(names=True)


def test_fewer_than_a_crowd_are_not_described() -> None:
    x = pd.DataFrame({"age": [1.0, 1.1, 1.2, 1.3, 1.4]})
    y = np.array([0.1, 0.9, 0.9, 0.9, 0.9])
    why = GLIFPostProcessor(tau=1.0).fit(x, y).explain(0)
    assert (why.num_neighbors, why.num_higher) == (4, 4)
    assert why.closest is why.reasons is None
    assert why.neighbors_mean == pytest.approx(0.9)
    assert why.to_dict()["neighbors_mean"] is None
    assert "average 0" not in why.to_text()
    assert why.to_frame().empty  # two scores and the own share would tell the average
    more = GLIFPostProcessor(tau=1.0).fit(pd.concat([x, x]), np.concatenate([y, y]))
    assert more.explain(0).closest is not None


def test_the_text() -> None:
    x = pd.DataFrame({"hours per week": [40.0, 38, 38, 38, 38, 38]})
    y = np.array([0.62, 0.5, 0.5, 0.5, 0.5, 0.5])
    post = GLIFPostProcessor(tau=3.0, theta=0.0, lam=1.0).fit(x, y)
    # Six who are all similar: 2/7 is one's own, 1/7 that of each other.
    assert post.explain(0).to_text().split("\n") == [
        "Your score went from 0.62 to 0.53. It is an average: 29% is your own score "
        "and",
        "71% comes from 5 people like you, whose scores average 0.50. The 5 closest",
        "differ from you in hours per week (38 on average instead of 40). Figures are",
        "rounded.",
    ]
    alone = GLIFPostProcessor(tau=0.1).fit(x[:1], y[:1]).explain(0)
    assert alone.to_text(noun="premium") == (
        "Your premium stayed at 0.62. Nobody like you was found, so it is your own\n"
        "premium alone."
    )


def test_small_changes_are_not_rounded_away() -> None:
    x, y = torch.zeros(2, 1), torch.tensor([0.5, 0.50001])
    text = GLIFPostProcessor(tau=1.0, theta=0.0).fit(x, y).explain(0).to_text()
    assert text.startswith("Your score went from 0.500000 to 0.500003.")


def test_several_outputs() -> None:
    x, y = torch.zeros(3, 1), torch.tensor([[0.9, 0.1], [0.0, 1.0], [0.0, 1.0]])
    post = GLIFPostProcessor(tau=1.0, theta=0.0).fit(x, y)
    why = post.explain(0)
    assert why.neighbors_mean == (0.0, 1.0)
    assert why.to_text().startswith(
        "Your scores went: 0 from 0.90 to 0.45; 1 from 0.10"
    )
    assert (why.reasons, why.num_higher) == (None, None)


def test_descriptions_are_saved_and_forgotten(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "fit.safetensors"
    scene.post.save(path)
    loaded = GLIFPostProcessor.load(path)
    assert loaded.explain("P9").to_dict(names=True) == scene.post.explain(9).to_dict(
        names=True
    )
    loaded.forget(["P0", "P1"])
    why = loaded.explain("P9")
    assert why.closest is not None
    assert why.sample == "P9"
    kept = loaded.fit_.sample_info.features
    assert kept.row(0) == {
        name: None if value != value else value
        for name, value in scene.frame.iloc[2][["age", "job", "hours"]].items()
    }


def test_a_fit_is_described_by_its_named_columns() -> None:
    x = frame()[["age"]].reset_index(drop=True)
    post = GLIFPostProcessor(tau=2.0).fit(x, np.linspace(0, 1, NUM))
    assert {one.feature for one in post.explain(0).closest} <= {"age"}
    nameless = GLIFPostProcessor(tau=2.0).fit(x.to_numpy(), np.linspace(0, 1, NUM))
    assert nameless.explain(0).closest is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.describe(frame(3)), "'features' must have a row for each fitted"),
        (lambda p: p.describe(frame(), ids=["a"]), "'ids' must have one entry per row"),
        (lambda p: p.explain("Q1"), "'ids' must be ids of the fit"),
        (
            lambda p: p.explain_new(p.fit_.x[:1], features=frame(1)[["age"]]),
            "'features' must have the columns 'age', 'job', 'hours' .*none named 'job'",
        ),
    ],
)
def test_explanations_reject(scene: Scene, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(scene.post)


def test_plot_and_figures(scene: Scene) -> None:
    pytest.importorskip("matplotlib")
    figure = scene.post.explain(0).plot()
    assert len(figure.axes[0].patches) == 3
    pytest.importorskip("altair")
    (chart,) = scene.post.explain(0).figures()
    assert chart.rows[0][0] == "own output"
