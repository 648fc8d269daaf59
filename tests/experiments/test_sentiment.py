import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import (
    SENTIMENT,
    Run,
    SentimentConfig,
    SentimentExperiment,
)
from experiments.sentiment import SentimentTrial
from experiments.training import Recipe, fit, logits_of
from pyg_glif.datasets import Sentiment
from pyg_glif.lightning import FairClassifier
from tests.experiments.small import RECIPE, SENTIMENT as SMALL

pytestmark = pytest.mark.lightning

METHODS = [
    "Baseline",
    "GLIF",
    "GLIF-NRW",
    "GLIF-density",
    "IF-constraints",
    "In-processing",
    "SenSeI",
]


def run_sentiment(seed: int, config: SentimentConfig) -> Run:
    return SentimentExperiment(config).run(seed)


class Watched(SentimentTrial):
    """Keeps the outputs behind each record."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[torch.Tensor] = []

    def measure(self, outputs: torch.Tensor) -> dict[str, float]:
        self.seen.append(outputs)
        return super().measure(outputs)


@pytest.fixture(scope="module")
def people() -> Watched:
    """Words and names of seed 0, with all outputs once ``runs`` is there."""
    return Watched(SMALL, 0, None)


@pytest.fixture(scope="module")
def runs(people: Watched) -> list[Run]:
    """Two seeds."""
    watched = SentimentExperiment(SMALL)
    watched.prepare = lambda seed, progress: people  # type: ignore[method-assign]
    return [watched.run(0), run_sentiment(1, SMALL)]


def fair_distances(people: SentimentTrial) -> np.ndarray:
    """Outside the span of the side set's leading right singular vectors."""
    side = Sentiment(seed=0).side_x.double().numpy()
    basis = np.linalg.svd(side, full_matrices=False)[2][:50]
    x = people.x.double().numpy()
    z = x - x @ basis.T @ basis
    return np.sqrt(((z[:, None] - z[None]) ** 2).sum(-1))


def test_every_method_has_one_chosen_setting(runs: list[Run]) -> None:
    for run in runs:
        assert [r.method for r in run.records if r.chosen] == METHODS
    # Three radii and the chosen one, at which there is one more strength.
    glif = [r.setting for r in runs[0].records if r.method == "GLIF"]
    assert len(glif) == 5
    assert {"tau": 8**0.5, "lam": 1.0} in glif


def test_same_seed_same_numbers_on_any_threads_and_default_dtype(
    runs: list[Run],
) -> None:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        again = run_sentiment(1, SMALL)
        assert torch.get_num_threads() == 2
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
    assert again.records == runs[1].records
    assert again.extras == runs[1].extras
    assert again.records != runs[0].records


def test_global_randomness_is_neither_used_nor_changed(runs: list[Run]) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    small = replace(SMALL, recipe=replace(RECIPE, num_steps=3), rhos=())
    first = run_sentiment(0, small)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    assert run_sentiment(0, small).records == first.records


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_examples_of_the_tutorial_hold_for_other_seeds(seed: int) -> None:
    """What docs/sentiment.md says of two names, the page's own seed apart."""
    dataset = Sentiment()
    data = dataset[0]
    recipe = Recipe(hidden_channels=1000, num_steps=300, lr=1e-3, batch_size=200)
    classifier = fit(
        FairClassifier(recipe.network(100, 2, seed)), data, recipe, seed=seed
    )
    outputs = logits_of(classifier, data.x)
    score = dict(zip(dataset.words, outputs[:, 1] - outputs[:, 0], strict=True))
    assert score["frank"] > 4
    assert score["marcellus"] < -7


def test_measures_match_their_formulas(people: SentimentTrial) -> None:
    generator = torch.Generator().manual_seed(3)
    logit = torch.randn(len(people.y), generator=generator, dtype=torch.float64)
    y, names = logit.numpy(), people.is_name.numpy()
    race, gender = people.race.numpy()[names], people.gender.numpy()[names]
    found = SentimentTrial.measure(people, logit)
    right = (y[~names] > 0) == (people.y.numpy()[~names] == 1)
    assert found["accuracy"] == pytest.approx(right.mean())
    n = y[names]
    assert found["name_std"] == pytest.approx(n.std(ddof=1))
    assert found["relative_std"] == pytest.approx(n.std(ddof=1) / y[~names].std(ddof=1))
    assert found["race_gap"] == pytest.approx(
        abs(n[race == 0].mean() - n[race == 1].mean())
    )
    assert found["gender_gap"] == pytest.approx(
        abs(n[gender == 0].mean() - n[gender == 1].mean())
    )


def test_smoothed_records_match_the_closed_form(
    runs: list[Run], people: Watched
) -> None:
    y, sq_dist = people.seen[0].double().numpy(), fair_distances(people) ** 2
    weight = np.where(sq_dist <= 8.0, np.exp(-1e-4 * sq_dist), 0.0)
    lap = np.diag(weight.sum(1)) - weight
    fair = np.linalg.solve(np.eye(len(y)) + 0.1 * lap, y)
    chosen = next(r for r in runs[0].records if r.method == "GLIF" and r.chosen)
    expected = SentimentTrial.measure(people, torch.from_numpy(fair))
    assert chosen.metrics == pytest.approx(expected, rel=1e-3)


def test_violations_count_every_pair_once(
    runs: list[Run], people: SentimentTrial
) -> None:
    found = runs[0].extras["violations"]
    n, names = len(people.y), int(people.is_name.sum())
    assert sum(found["pairs"]) == n * (n - 1) // 2
    assert sum(found["name_pairs"]) == names * (names - 1) // 2
    assert found["lipschitz"] == 2.25
    for part, whole in (("after", "pairs"), ("name_after", "name_pairs")):
        assert all(p <= w for p, w in zip(found[part], found[whole], strict=True))


def test_projected_outputs_break_no_constraint(
    runs: list[Run], people: Watched
) -> None:
    pairs = zip(runs[0].records, people.seen, strict=True)
    projected = {r.setting["L"]: y for r, y in pairs if r.method == "IF-constraints"}
    assert sorted(projected) == [1.0, 2.25]
    dist, before = fair_distances(people), people.seen[0].double().numpy()
    for lipschitz, value in projected.items():
        y = value.double().numpy()
        gap = np.abs(y[:, None] - y[None]) - lipschitz * dist
        assert gap.max() <= 1e-4 * np.ptp(before)
        # The constraints bind: outputs as they were break them by far.
        assert (np.abs(before[:, None] - before[None]) - lipschitz * dist).max() > 1


def test_report_and_plots(runs: list[Run]) -> None:
    report = SENTIMENT.report(runs)
    assert repr(report) == "Report('sentiment', variant='us', seeds=[0, 1])"
    assert [row.method for row in report.tables[0].rows] == METHODS
    assert "Means over the seeds ±" in report.to_markdown()
    assert "seeds" not in SENTIMENT.report(runs[:1]).to_markdown()
    floor = report.tables[0].rows[0].mean["accuracy"] - 0.01
    assert all(row.mean["accuracy"] >= floor for row in report.tables[1].rows)
    figures = SENTIMENT.draw(runs)
    assert sorted(figures) == ["figure2", "radius", "strength"]
    names, race, broken, where = figures["figure2"].axes
    assert names.get_xlabel() == "test accuracy"
    (legend,) = figures["figure2"].legends
    assert [t.get_text() for t in legend.get_texts()] == METHODS
    assert race.get_ylabel() == "race gap"
    assert broken.get_ylabel() == "share that breaks L = 2.25"
    assert where.get_ylabel() == "share of the pairs of names"


def test_one_seed_is_not_called_a_mean(runs: list[Run]) -> None:
    means = "Means over the seeds ± their standard deviation."
    assert SENTIMENT.report(runs).to_markdown().rstrip().endswith(means)
    alone = SENTIMENT.report(runs[:1]).to_markdown()
    assert "±" not in alone
    assert "over the seeds" not in alone


def test_reproduce_writes_what_it_says(tmp_path: Path) -> None:
    config = replace(SMALL, recipe=replace(RECIPE, num_steps=5))
    report = SentimentExperiment(config)([4], out=tmp_path / "new" / "out")
    assert {path.name for path in report.files} == {
        "sentiment_us_seed_4.json",
        "sentiment_us.md",
        "sentiment_us_figure2.png",
        "sentiment_us_radius.png",
        "sentiment_us_strength.png",
    }
    for path in report.files:
        assert path.stat().st_size > 100
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "new/out/sentiment_us.md").read_text() == report.to_markdown()
    plain = json.loads((tmp_path / "new/out/sentiment_us_seed_4.json").read_text())
    assert plain["config"]["recipe"]["num_steps"] == 5
    assert "torch" in plain["versions"]


@pytest.mark.dataset
@pytest.mark.parametrize("variant", ["us", "nyc", "word2vec"])
def test_the_default_radius_gives_about_16_neighbours(
    variant: str, shared_data: Callable[[str], Path]
) -> None:
    shared_data("sentiment")
    config = replace(SMALL, variant=variant)
    people, tau = SentimentTrial(config, seed=0), config.radius
    z = people.distance.embed(people.x).double().numpy()
    within = ((z[:, None] - z[None]) ** 2).sum(-1) <= tau**2
    assert within.sum() / len(z) - 1 == pytest.approx(16, abs=0.6)


@pytest.mark.dataset
@pytest.mark.parametrize("variant", ["nyc", "word2vec"])
def test_other_variants_run(
    variant: str, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    shared_data("sentiment")
    config = replace(SMALL, recipe=replace(RECIPE, num_steps=3), rhos=())
    report = SentimentExperiment(config)([0], variant=variant, out=tmp_path)
    assert report.variant == variant


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_are_different_and_not_none(seeds: list[int], tmp_path: Path) -> None:
    msg = f"'seeds' must hold one or more different seeds \\(got \\{seeds}\\)"
    with pytest.raises(ValueError, match=msg):
        SENTIMENT(seeds, out=tmp_path)
