import json
import math
from pathlib import Path
from statistics import mean, stdev

import pytest

from experiments.records import (
    Record,
    Run,
    fairest,
    summarize,
    summarize_chosen,
)


def run_of(seed: int, *records: Record) -> Run:
    return Run("sentiment", "us", seed, {"lam": 0.1}, records)


def record(
    method: str, lam: float, score: float, *, chosen: bool = False, status: str = ""
) -> Record:
    metrics = {"score": score, "gap": 1 - score}
    return Record(method, {"lam": lam}, metrics, status or "CONVERGED", chosen)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    lost = Record("b", {}, {"score": math.nan}, "INDEFINITE")
    run = run_of(3, record("a", 0.1, 0.25, chosen=True), lost)
    path = run.write(tmp_path)
    assert path.name == "sentiment_us_seed_3.json"
    assert json.loads(path.read_text())["records"][1]["metrics"] == {"score": None}
    back = Run.read(path)
    assert back.records[0] == run.records[0]
    assert math.isnan(back.records[1].metrics["score"])
    assert (back.seed, back.config, back.variant) == (3, {"lam": 0.1}, "us")


def test_summaries_are_means_and_sample_deviations() -> None:
    scores = [0.5, 0.75, 0.9]
    runs = [run_of(i, record("a", 1.0, s)) for i, s in enumerate(scores)]
    (found,) = summarize(runs)
    assert found.mean["score"] == pytest.approx(mean(scores))
    assert found.std["score"] == pytest.approx(stdev(scores))
    assert found.num_seeds == 3
    assert found.cell("score") == "0.717 ± 0.202"


def test_one_seed_has_no_spread() -> None:
    (found,) = summarize([run_of(0, record("a", 1.0, 0.5))])
    assert math.isnan(found.std["score"])
    assert found.cell("score", 2) == "0.50"


def test_settings_are_kept_apart_and_in_order() -> None:
    run = run_of(0, record("b", 1.0, 0.1), record("a", 1.0, 0.2), record("b", 2.0, 0.3))
    found = [(s.method, s.setting["lam"]) for s in summarize([run, run])]
    assert found == [("b", 1.0), ("a", 1.0), ("b", 2.0)]


def test_what_was_chosen_may_differ_between_seeds() -> None:
    runs = [
        run_of(0, record("a", 1.0, 0.4, chosen=True), record("a", 3.0, 0.0)),
        run_of(1, record("a", 1.0, 0.0), record("a", 3.0, 0.6, chosen=True)),
    ]
    (found,) = summarize_chosen(runs)
    assert found.setting == {"lam": 2.0}
    assert found.mean["score"] == pytest.approx(0.5)


def test_one_saddle_marks_the_setting() -> None:
    bad = record("a", 1.0, 0.5, status="INDEFINITE")
    (found,) = summarize([run_of(0, record("a", 1.0, 0.5)), run_of(1, bad)])
    assert (found.num_failed, found.num_seeds) == (1, 2)


def test_runs_without_an_answer_do_not_spoil_the_mean() -> None:
    lost = Record("a", {"lam": 1.0}, {"score": math.nan, "gap": 0.5}, "INDEFINITE")
    runs = [run_of(0, record("a", 1.0, 0.25)), run_of(1, lost)]
    (found,) = summarize(runs)
    assert found.mean == {"score": 0.25, "gap": pytest.approx(0.625)}
    assert math.isnan(found.std["score"])
    (nothing,) = summarize(runs[1:])
    assert math.isnan(nothing.mean["score"])


def test_the_fairest_keeps_to_its_floor_and_is_no_saddle() -> None:
    run = run_of(
        0,
        record("a", 1.0, 0.8),
        record("a", 2.0, 0.9),
        record("a", 3.0, 0.99, status="INDEFINITE"),
        record("b", 1.0, 0.1),
    )
    (found,) = fairest(summarize([run]), "score", "gap", floor=0.5)
    assert (found.method, found.setting) == ("a", {"lam": 2.0})
