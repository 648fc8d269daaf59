"""The monitor: its bets against the formulas, its bookkeeping, its bad input."""

import copy
import json
import math
import re
import sqlite3
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.errors import ClockWarning, DamagedFileError
from pyg_glif.monitoring import DriftReference, TreatmentMonitor

HALF_LIVES = (math.inf, 1000.0, 100.0)


def capital(values: np.ndarray, limit: float) -> list[float]:
    """Capital after each sample, from the definition, in plain arithmetic."""
    out = []
    for t in range(1, len(values) + 1):
        total = 0.0
        for half in HALF_LIVES:
            share = [_put_in(s, half) for s in range(1, t + 1)]
            factors = [
                1 + _bet(values[:i], limit, half) * (values[i] - limit)
                for i in range(t)
            ]
            grown = sum(share[s] * math.prod(factors[s:]) for s in range(t))
            total += grown + (1 - sum(share))
        out.append(total / len(HALF_LIVES))
    return out


def _put_in(t: int, half: float) -> float:
    if math.isinf(half):
        return float(t == 1)
    return 1 / math.log2(t + 1) - 1 / math.log2(t + 2)


def _bet(past: np.ndarray, limit: float, half: float) -> float:
    age = np.arange(len(past))[::-1]
    weight = 0.5 ** (age / half)
    y = past - limit
    raw = (weight * y).sum() / (limit * (1 - limit) + (weight * y * y).sum())
    return min(max(0.0, raw), 0.5 / limit)


def refuted(values: np.ndarray, m: float, alpha: float) -> tuple[bool, bool]:
    """Whether a mean is refuted from below and from above, from the definition."""
    up = down = 1.0
    for t in range(1, len(values) + 1):
        past = values[: t - 1]
        means = [(0.5 + past[: i + 1].sum()) / (i + 2) for i in range(len(past))]
        variance = (0.25 + sum((past[i] - means[i]) ** 2 for i in range(len(past)))) / t
        bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(1 + t)))
        up *= 1 + min(bet, 0.5 / m) * (values[t - 1] - m)
        down *= 1 - min(bet, 0.5 / (1 - m)) * (values[t - 1] - m)
    return up >= 2 / alpha, down >= 2 / alpha


def test_capital_is_what_the_formula_says() -> None:
    values = np.random.default_rng(0).beta(0.6, 3.4, size=60)
    monitor = TreatmentMonitor(0.1)
    expected = capital(values, 0.1)
    for t, value in enumerate(values):
        monitor.update(value)
        found = monitor.to_dict()["streams"]["all"]
        assert found["log_capital"] == pytest.approx(math.log(expected[t]), abs=1e-9)
        best = max([1.0, *expected[: t + 1]])
        assert found["p_value"] == pytest.approx(1 / best)


def test_interval_is_the_refuted_means_and_one_step_of_the_grid() -> None:
    values = np.random.default_rng(1).beta(0.6, 3.4, size=120)
    monitor = TreatmentMonitor(0.1, alpha=0.1)
    monitor.update(values)
    low, high = monitor.interval
    assert 0.0 < low < values.mean() < high < 1.0
    # Every mean outside is refuted; two steps inside none is.
    for m in np.linspace(1e-6, low, 5):
        assert refuted(values, m, 0.1) == (True, False)
    for m in np.linspace(high, 1 - 1e-6, 5):
        assert refuted(values, m, 0.1) == (False, True)
    inside = [(math.sqrt(low) + 2 / 400) ** 2, (math.sqrt(high) - 2 / 400) ** 2]
    for m in np.linspace(*inside, 5):
        assert refuted(values, m, 0.1) == (False, False)


def test_alarm_is_raised_once_and_stays() -> None:
    monitor = TreatmentMonitor(0.05, alpha=0.01)
    monitor.update([0.4] * 50)
    (at,) = monitor.alarms.values()
    expected = capital(np.full(50, 0.4), 0.05)
    assert at == 1 + next(t for t, c in enumerate(expected) if c >= 100)
    monitor.update([0.0] * 500)
    assert monitor.alarms == {"all": at}
    assert str(monitor) == (
        f"TreatmentMonitor(epsilon=0.05, alpha=0.01, num=550, alarms: all at {at})"
    )
    monitor.reset()
    assert (monitor.alarm, monitor.num, monitor.to_dict()["runs"]) == (False, 0, 2)


def test_false_alarms_are_rare_and_a_naive_test_fails() -> None:
    from pyg_glif.guarantees.betting import Capital, MeanSequence

    rng, num, limit, mean = np.random.default_rng(2), 2000, 0.05, 0.05
    test, held = Capital(limit, num), MeanSequence(0.05, np.full(num, mean), num)
    wrong = np.zeros(num, dtype=bool)
    total = np.zeros(num)
    naive = np.zeros(num, dtype=bool)
    for t in range(1, 401):
        x = (rng.random(num) < mean).astype(float)
        test.step(x)
        held.step(x)
        wrong |= (held.above >= math.log(40)) | (held.below >= math.log(40))
        total += x
        # A one-sided test of five per cent, looked at after every tenth sample.
        if t >= 30 and t % 10 == 0:
            error = math.sqrt(mean * (1 - mean) / t)
            naive |= total / t - mean > 1.645 * error
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / num)
    assert np.mean(test.peak >= math.log(20)) <= allowed
    assert wrong.mean() <= allowed
    assert naive.mean() > 2 * allowed


def test_a_late_change_is_found() -> None:
    rng = np.random.default_rng(3)
    monitor = TreatmentMonitor(0.05)
    monitor.update(rng.beta(0.12, 3.88, size=3000))
    assert not monitor.alarm
    monitor.update(rng.beta(0.8, 3.2, size=200))
    assert monitor.alarm


def test_groups_share_alpha() -> None:
    monitor = TreatmentMonitor(0.05, alpha=0.06, groups=["f", "m"])
    rng = np.random.default_rng(4)
    unfair, fair = rng.beta(1.2, 2.8, size=60), rng.beta(0.04, 3.96, size=60)
    monitor.update(np.r_[unfair, fair], ["f"] * 60 + ["m"] * 60)
    streams = monitor.to_dict()["streams"]
    assert {stream["level"] for stream in streams.values()} == {0.06 / 3}
    numbers = {name: stream["num"] for name, stream in streams.items()}
    assert numbers == {"all": 120, "group f": 60, "group m": 60}
    assert "group f" in monitor.alarms
    assert "group m" not in monitor.alarms
    single = TreatmentMonitor(0.05, alpha=0.02)
    single.update(unfair)
    assert monitor.intervals["group f"] == single.interval


def test_an_unknown_group_counts_for_all_samples_only() -> None:
    monitor = TreatmentMonitor(0.05, groups=["None", 1])
    monitor.update([0.1, 0.2], [None, 1])
    streams = monitor.to_dict()["streams"]
    assert [streams[n]["num"] for n in ("all", "group None", "group 1")] == [2, 0, 1]


def test_ids_count_once() -> None:
    monitor = TreatmentMonitor(0.05, window=3)
    assert monitor.update([0.1, 0.2, 0.1], id=["a", "b", "a"]) == 2
    assert monitor.update(0.1, id="b") == 0
    assert monitor.update(0.1, id=7) == 1
    assert monitor.update(0.1, id="7") == 0
    assert monitor.to_dict()["num_repeated"] == 3
    # The window holds a, b and 7; b was asked for after a.
    assert monitor.update(0.1, id="new") == 1
    assert monitor.update(0.1, id="b") == 0
    assert monitor.update(0.1, id="a") == 1
    assert monitor.update(0.1) == monitor.update(0.1) == 1


def test_memory_does_not_grow() -> None:
    monitor = TreatmentMonitor(0.05, window=50)
    monitor.update([0.1] * 100, id=range(100))
    before = {
        name: one.numel() for name, one in monitor.state_dict()["streams"].items()
    }
    monitor.update([0.1] * 2000, id=range(100, 2100))
    state = monitor.state_dict()
    assert {name: one.numel() for name, one in state["streams"].items()} == before
    assert len(state["recent"]) == 50


def test_state_dict_goes_on_where_it_was() -> None:
    values = np.random.default_rng(5).random(300) / 5
    whole = TreatmentMonitor(0.08, groups=["a"])
    half = TreatmentMonitor(0.08, groups=["a"])
    whole.update(values, ["a"] * 300, range(300))
    half.update(values[:140], ["a"] * 140, range(140))
    state = half.state_dict()
    later = TreatmentMonitor(0.08, groups=["a"])
    later.load_state_dict(state)
    half.update(0.9)  # the state is a copy
    later.update(values[100:], ["a"] * 200, range(100, 300))  # 40 come again
    expected = whole.to_dict() | {"num_repeated": 40}
    assert later.to_dict() == expected
    for name, one in whole.state_dict()["streams"].items():
        assert torch.equal(one, later.state_dict()["streams"][name])


def test_journal_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "monitor.db"
    drift = DriftReference(isolated=0.1, nearest=0.3, reach=2.0)
    first = TreatmentMonitor(0.05, groups=["a"], drift=drift, journal=path)
    first.update([0.1, None], ["a", None], ["p", "q"], nearest=[1.0, math.inf])
    second = TreatmentMonitor.open(path)
    assert second.to_dict() == first.to_dict()
    # Both write to it, and neither counts what the other has counted.
    assert second.update([0.3, 0.1], id=["r", "p"]) == 1
    assert first.update([0.3, 0.2], id=["r", "s"]) == 1
    second.refresh()
    assert second.to_dict() == first.to_dict()
    assert first.num == 4
    first.reset()
    assert first.update(0.3, id="s") == 0
    assert second.update(0.3, id="t") == 1
    assert (second.num, second.to_dict()["runs"]) == (1, 2)
    first.close()
    second.close()


class Fails:
    """A connection on which a kind of statement fails."""

    def __init__(self, link: Any, word: str) -> None:
        self._link, self._word = link, word

    def execute(self, statement: str, values: Any = ()) -> Any:
        if statement.startswith(self._word):
            raise sqlite3.OperationalError("disk I/O error")
        return self._link.execute(statement, values)

    def close(self) -> None:
        self._link.close()


CHANGES: dict[str, Callable[[TreatmentMonitor], object]] = {
    "update": lambda one: one.update([0.1, 0.4], id=[7, 8], time=[1.0, 2.0]),
    "repeated": lambda one: one.update(0.1, id=0),
    "reset": lambda one: one.reset(),
}


@pytest.mark.parametrize("word", ["BEGIN", "REPLACE", "COMMIT"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_not_written_is_not_made(
    tmp_path: Path, change: str, word: str
) -> None:
    path = tmp_path / "monitor.db"
    monitor = TreatmentMonitor(0.05, journal=path)
    monitor.update([0.1] * 12, id=range(12))
    before = monitor.to_dict()
    monitor._journal._link = Fails(monitor._journal._link, word)  # type: ignore
    with pytest.raises(OSError, match="disk I/O error"):
        CHANGES[change](monitor)
    assert monitor.to_dict() == before
    # Another process counts one, and both know the same.
    other = TreatmentMonitor.open(path)
    assert other.update(0.3, id="new") == 1
    monitor.refresh()
    assert monitor.to_dict() == other.to_dict()
    assert monitor.num == 13
    CHANGES[change](monitor)
    other.refresh()
    assert monitor.to_dict() == other.to_dict()
    monitor.close()
    other.close()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("at", [*range(1, 9), "warning"])
def test_a_call_that_fails_anywhere_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Any, kept: bool
) -> None:
    from pyg_glif.monitoring._stream import Stream

    options: dict[str, Any] = {"journal": tmp_path / "monitor.db"} if kept else {}
    monitor = TreatmentMonitor(0.05, groups=["a"], **options)
    monitor.update(0.1, "a", 0, time=9.0)
    before = monitor.state_dict()
    step, calls = Stream.step, []

    def failing(self: Stream, x: float) -> None:
        calls.append(x)
        if len(calls) == at:
            raise MemoryError
        step(self, x)

    samples: dict[str, Any] = {"disparity": [0.2] * 4, "group": ["a"] * 4}
    samples |= {"id": range(1, 5), "time": [10.0, 11.0, 3.0, 12.0]}
    with monkeypatch.context() as patch, warnings.catch_warnings():
        patch.setattr(Stream, "step", failing)
        # With warnings as errors, the clock that goes back is one.
        warnings.simplefilter("error" if at == "warning" else "ignore")
        with pytest.raises((MemoryError, ClockWarning)):
            monitor.update(**samples)
    after = monitor.state_dict()
    for name, state in before.pop("streams").items():
        assert torch.equal(state, after["streams"][name])
    assert {name: after[name] for name in before} == before
    with pytest.warns(ClockWarning):
        assert monitor.update(**samples) == 4
    assert monitor.to_dict()["streams"]["all"]["mean"] == pytest.approx(0.9 / 5)
    monitor.close()


def test_drift_counts_far_and_isolated_samples() -> None:
    drift = DriftReference(isolated=0.1, nearest=0.3, reach=2.0)
    monitor = TreatmentMonitor(0.05, drift=drift)
    # Neighbors near, far, and at an unknown distance; then an isolated sample.
    monitor.update([0.1, 0.1, 0.0, None], nearest=[1.0, 3.0, None, None])
    found = monitor.to_dict()["streams"]
    assert found["drift isolated"]["num"] == 4
    assert found["drift isolated"]["mean"] == 0.25
    assert found["drift nearest"]["num"] == 3
    assert found["drift nearest"]["mean"] == (0.5 + 1.0 + 1.0) / 3
    assert found["all"]["num"] == 3
    assert {found[f"drift {n}"]["level"] for n in ("isolated", "nearest")} == {0.0125}


def uniform(num: int, shift: float, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(num, 2, generator=generator, dtype=torch.float64) + shift


@pytest.mark.parametrize("options", [{"tau": 0.05}, {"k": 5}])
def test_drift_is_found_where_there_is_some(
    options: dict[str, Any], generator: torch.Generator
) -> None:
    x = uniform(600, 0.0, generator)
    post = GLIFPostProcessor(**options).fit(x, x.mean(1) / 2)
    drift = DriftReference.of(post)
    same = TreatmentMonitor(0.5, drift=drift)
    new = uniform(600, 0.0, generator)
    fair = same.observe(post, new, new.mean(1) / 2)
    assert torch.equal(fair, post.transform(new, new.mean(1) / 2))
    assert not same.drift_alarm
    moved = TreatmentMonitor(0.5, drift=drift)
    new = uniform(600, 0.2, generator)
    moved.observe(post, new, new.mean(1) / 2)
    assert moved.drift_alarm
    assert not moved.alarm


def test_drift_reference_bounds_distances_of_new_samples(
    generator: torch.Generator,
) -> None:
    """Against the distribution itself, from very many new samples."""
    wrong = 0
    for _ in range(60):
        x = uniform(150, 0.0, generator)
        post = GLIFPostProcessor(tau=0.06).fit(x, x[:, 0])
        found = DriftReference.of(post, alpha=0.4, generator=generator)
        dist = torch.cdist(uniform(2000, 0.0, generator), x).min(1).values
        isolated = float((dist > 0.06).double().mean())
        near = float((dist / 0.06).clamp(max=1.0).mean())
        wrong += isolated > found.isolated or near > found.nearest
    # Each bound fails with probability at most 0.1.
    assert wrong / 60 <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 60)


@pytest.mark.parametrize(
    "options", [{"tau": 0.04}, {"k": 1}, {"k": 2}, {"k": 1, "tau": 0.04}]
)
def test_drift_reference_is_of_the_nearest_that_were_not_drawn(
    options: dict[str, Any], generator: torch.Generator
) -> None:
    """Also where all of the k nearest were drawn, and in the order of the draw."""
    x = uniform(300, 0.0, generator)
    post = GLIFPostProcessor(**options).fit(x, x[:, 0])
    found = DriftReference.of(post, generator=torch.Generator().manual_seed(4))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(4))
    drawn, others = x[order[:60]], x[order[60:]]
    dist = torch.cdist(drawn, others).min(1).values
    apart = torch.cdist(others, others).fill_diagonal_(math.inf).min(1).values
    reach = options.get("tau", 2 * float(np.quantile(apart.numpy(), 0.95)))
    assert found.reach == pytest.approx(reach)
    far = int((dist > options.get("tau", math.inf)).sum())
    assert found.isolated == pytest.approx(binomial_bound(far, 60, 0.0125))
    # A mean that is refuted, and one a step of the grid below that is not.
    scaled = (dist / reach).clamp(max=1.0).numpy()
    below = (math.sqrt(found.nearest) - 1 / 400) ** 2
    assert refuted(scaled, found.nearest, 0.025) == (False, True)
    assert refuted(scaled, below, 0.025) == (False, False)


def binomial_bound(count: int, num: int, level: float) -> float:
    """The chance at which so few have just the probability ``level``, by bisection."""
    low, high = count / num, 1.0
    for _ in range(60):
        p = (low + high) / 2
        few = sum(
            math.comb(num, k) * p**k * (1 - p) ** (num - k) for k in range(count + 1)
        )
        low, high = (p, high) if few > level else (low, p)
    return high


def test_drift_without_a_radius_to_speak_of() -> None:
    """With a radius of zero, samples are at the same place or isolated."""
    x = torch.arange(400.0).unsqueeze(1) // 4
    drift = DriftReference.of(GLIFPostProcessor(tau=0.0).fit(x, x[:, 0] / 100))
    monitor = TreatmentMonitor(0.5, drift=drift)
    monitor.update([0.0, None], nearest=[0.0, math.inf])
    assert monitor.to_dict()["streams"]["drift nearest"]["mean"] == 0.5


def test_watch_counts_what_a_transform_knows(generator: torch.Generator) -> None:
    x = uniform(80, 0.0, generator)
    y = torch.rand(80, 3, generator=generator, dtype=torch.float64)
    y /= y.sum(1, keepdim=True)
    post = GLIFPostProcessor(tau=0.2, theta=3.0, lam=0.3).fit(x, y)
    new = torch.cat([uniform(9, 0.0, generator), uniform(1, 9.0, generator)])
    info = post.transform_info(new, y[:10])
    fair = info.value
    fitted, expected = post.y_fair_.numpy(), []
    for i in range(9):
        dist = np.linalg.norm(x.numpy() - new[i].numpy(), axis=1)
        weight = np.exp(-3.0 * dist**2) * (dist <= 0.2)
        gap = np.abs(fitted - fair[i].numpy()).sum(1) / 2
        expected.append((weight * gap).sum() / weight.sum())
    found = info.neighbors.disparity(fair)
    np.testing.assert_allclose(found[:9], expected, rtol=1e-9)
    assert math.isnan(found[9])
    monitor = TreatmentMonitor(0.5)
    assert monitor.watch(fair, info, id=range(10)) == 10
    shown = monitor.to_dict()
    assert shown["streams"]["all"]["mean"] == pytest.approx(np.mean(expected))
    assert shown["num_isolated"] == 1
    decided = TreatmentMonitor(0.5, threshold=0.5)
    decided.watch(fair, info)
    differ = info.neighbors.disparity(fair, threshold=0.5)[:9]
    one = (fitted.argmax(1) != fair[0].numpy().argmax()).astype(float)
    dist = np.linalg.norm(x.numpy() - new[0].numpy(), axis=1)
    weight = np.exp(-3.0 * dist**2) * (dist <= 0.2)
    assert float(differ[0]) == pytest.approx((weight * one).sum() / weight.sum())


def test_clock_that_goes_back_warns_once() -> None:
    monitor = TreatmentMonitor(0.05)
    moment = datetime(2026, 3, 1, tzinfo=timezone.utc)
    monitor.update(0.1, time=moment)
    with pytest.warns(ClockWarning, match="^'time' went back by 60 seconds: samples"):
        monitor.update(0.1, time=moment.timestamp() - 60)
    monitor.update([0.1, 0.1], time=[moment.timestamp() - 5, moment.timestamp() + 5])
    found = monitor.to_dict()
    assert (found["num"], found["num_steps_back"]) == (4, 2)
    assert found["last_time"] == moment.timestamp() + 5


def test_plot_has_a_panel_for_drift() -> None:
    pytest.importorskip("matplotlib")
    drift = DriftReference(isolated=0.1, nearest=0.3, reach=2.0)
    monitor = TreatmentMonitor(0.05, groups=["a"], drift=drift)
    assert len(monitor.plot().axes) == 4  # without samples
    monitor.update([0.3] * 400, ["a"] * 400, nearest=[0.5] * 400)
    figure = monitor.plot()
    assert "alarm: all, group a" in figure.axes[0].get_title()
    assert "no alarm" in figure.axes[1].get_title()
    (line, *_) = figure.axes[0].get_lines()
    assert line.get_xdata()[-1] == 400
    assert len(line.get_xdata()) <= 129


def update(disparity: Any = 0.1, groups: Any = ("a", "b"), **options: Any) -> None:
    """Refuses before any sample counts."""
    monitor = TreatmentMonitor(0.05, groups=groups)
    try:
        monitor.update(disparity, **options)
    finally:
        assert monitor.num == 0


def make(epsilon: float = 0.05, **options: Any) -> TreatmentMonitor:
    return TreatmentMonitor(epsilon, **options)


def reference(num: int = 30, options: Any = (("tau", 1.0),), **of: Any) -> object:
    x = torch.arange(float(num)).unsqueeze(1)
    post = GLIFPostProcessor(**dict(options)).fit(x, x[:, 0])
    return DriftReference.of(post, **of)


NAN = math.nan
MUTUAL = (("k", 3), ("mutual", True))
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: make(0.0), "'epsilon' must be positive (got 0.0)"),
    (lambda: make(1.0), "'epsilon' must be below 1.0 (got 1.0)"),
    (lambda: make(alpha=0.0), "'alpha' must be positive (got 0.0)"),
    (lambda: make(alpha=1.5), "'alpha' must be below 1.0 (got 1.5)"),
    (lambda: make(alpha=NAN), "'alpha' must be finite (got nan)"),
    (lambda: make(groups=["a", "a"]), "'groups' must be different (got ['a', 'a'])"),
    (lambda: make(window=0), "'window' must be at least 1 (got 0)"),
    (lambda: update([0.1, NAN]), "'disparity' must be a number (got NaN at index 1)"),
    (lambda: update(1.5), "'disparity' must be between 0 and 1 (got 1.5 at index 0)"),
    (lambda: update(-0.1), "'disparity' must be between 0 and 1 (got -0.1 at index"),
    (lambda: update(math.inf), "'disparity' must be between 0 and 1 (got inf at index"),
    (lambda: update(group="c"), "'group' must be of 'a', 'b' (got 'c')"),
    (
        lambda: update(groups=(), group="a"),
        "'group' must not be given without 'groups'",
    ),
    (lambda: update([0.1] * 2, id=["x"]), "'id' must have one entry per sample (got 1"),
    (
        lambda: update([0.1] * 2, id="xy"),
        "'id' must have one entry per sample (got one",
    ),
    (lambda: update(id=NAN), "'id' must be a text or a whole number (got nan)"),
    (lambda: update(id=""), "'id' must not be empty (got '')"),
    (lambda: update(nearest=-1.0), "'nearest' must be non-negative (got -1.0)"),
    (lambda: update(nearest=NAN), "'nearest' must be finite (got nan)"),
    (lambda: update(time=NAN), "'time' must be finite (got nan)"),
    (lambda: reference(alpha=0.0), "'alpha' must be positive (got 0.0)"),
    (lambda: reference(share=1.0), "'share' must be below 1.0 (got 1.0)"),
    (lambda: reference(5), "'post' must have at least 10 rows (got 5)"),
    (lambda: reference(options=MUTUAL), "'post' must not have mutual neighbors (got"),
    (lambda: DriftReference(0.1, 0.3, 2.0, alpha=1.0), "'alpha' must be below 1.0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        call()


def test_outputs_that_are_no_numbers_are_not_isolated_samples() -> None:
    x = torch.arange(10.0).unsqueeze(1)
    post = GLIFPostProcessor(tau=1.0).fit(x, x[:, 0] / 10)
    info = post.transform_info(x[:3], x[:3, 0] / 10)
    fair = info.value
    fair[1] = math.nan
    monitor = TreatmentMonitor(0.05)
    message = "'y_fair' must be finite (got nan at index 1, 1 such values)"
    with pytest.raises(ValueError, match=re.escape(message)):
        monitor.watch(fair, info)
    assert monitor.num == 0


def test_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "monitor.db"
    TreatmentMonitor(0.05, journal=path).close()
    message = "'journal' must be of a monitor with epsilon=0.1 (got 0.05)"
    with pytest.raises(ValueError, match=re.escape(message)):
        TreatmentMonitor(0.1, journal=path)
    state = TreatmentMonitor(0.05, groups=["a"]).state_dict()
    with pytest.raises(ValueError, match="must be of a monitor with groups"):
        TreatmentMonitor(0.05).load_state_dict(state)
    message = "'state' must be what 'state_dict' returned (got one without 'recent')"
    with pytest.raises(ValueError, match=re.escape(message)):
        TreatmentMonitor(0.05).load_state_dict({})
    with pytest.raises(ValueError, match="must not be called with a journal"):
        TreatmentMonitor.open(path).load_state_dict(state)


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("age,score\n" * 50)
    with pytest.raises(DamagedFileError, match="is not the journal of a monitor"):
        TreatmentMonitor(0.05, journal=path)
    with pytest.raises(OSError, match="unable to open"):
        TreatmentMonitor(0.05, journal=tmp_path / "absent" / "monitor.db")
    with pytest.raises(ValueError, match="must be the journal of a monitor"):
        TreatmentMonitor.open(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def written(path: Path, statement: str, *values: Any) -> None:
    """Changes a journal behind the back of its monitor."""
    link = sqlite3.connect(path)
    link.execute(statement, values)
    link.commit()
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    link.close()


def journal_of(path: Path, num: int = 6) -> TreatmentMonitor:
    """A monitor with a journal in which everything is used."""
    drift = DriftReference(isolated=0.1, nearest=0.3, reach=2.0)
    found = TreatmentMonitor(0.05, groups=["a"], drift=drift, journal=path)
    found.update([0.1] * num, ["a"] * num, range(num), nearest=[1.0] * num)
    return found


JSON_VALUES = ["{", "[]", "7", "null", '"text"', "{}"]
NUMBERS = [-1, 0.5, "1", None, [], True]
TALLY = ("num", "num_isolated", "num_repeated", "num_steps_back", "runs", "version")
VALUE = "UPDATE about SET value = ? WHERE name = ?"
CELL = "UPDATE about SET value = json_set(value, '$.' || ?, json(?)) WHERE name = ?"
STATE = "UPDATE streams SET state = ? WHERE name = 'all'"
DAMAGE: list[tuple[Any, ...]] = [
    *((VALUE, text, name) for text in JSON_VALUES for name in ("tally", "settings")),
    *((CELL, k, json.dumps(v), "tally") for k in TALLY for v in NUMBERS),
    (CELL, "last_time", '"yesterday"', "tally"),
    (CELL, "extra", "1", "tally"),
    (CELL, "num", "3", "tally"),  # fewer than have come through its streams
    (CELL, "extra", "1", "settings"),
    *((CELL, "epsilon", json.dumps(v), "settings") for v in (2.0, "0.05", None)),
    *((CELL, "drift", text, "settings") for text in ("7", "{}", '{"isolated": 1}')),
    (CELL, "drift.isolated", "2", "settings"),
    (CELL, "format", "99", "settings"),
    (STATE, b""),
    (STATE, b"1234567"),
    (STATE, "text"),
    (STATE, 7),
    (STATE, np.zeros(8).tobytes()),
    (STATE.replace("?", "CAST(? AS TEXT)"), b"\xff\xfe"),
    ("DELETE FROM streams WHERE name = ?", "all"),
    ("DELETE FROM about WHERE name = ?", "tally"),
    ("DELETE FROM about WHERE name = ?", "settings"),
    ("ALTER TABLE about RENAME COLUMN value TO other",),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: " ".join(map(str, one))[:70])
def test_a_changed_journal_is_reported_with_its_path(
    tmp_path: Path, damage: tuple[Any, ...]
) -> None:
    path = tmp_path / "monitor.db"
    journal_of(path).close()
    written(path, *damage)
    with pytest.raises(DamagedFileError, match="Restore a copy of it") as found:
        TreatmentMonitor.open(path)
    assert str(path) in str(found.value)


@pytest.mark.parametrize("seed", range(40))
def test_bytes_that_were_overwritten_are_never_a_raw_error(
    tmp_path: Path, seed: int
) -> None:
    """Opened or in use: it works, or the error has the path of the file."""
    path, rng = tmp_path / "monitor.db", np.random.default_rng(seed)
    monitor = journal_of(path, 40)
    monitor.close()
    written(path, "DELETE FROM about WHERE name = 'nothing'")
    content = bytearray(path.read_bytes())
    for start in rng.integers(0, len(content) - 600, size=6).tolist():
        content[start : start + 600] = rng.bytes(600)
    path.write_bytes(content[: rng.integers(len(content) // 2, 2 * len(content))])
    samples: dict[str, Any] = {"disparity": [0.1] * 9, "id": range(36, 45)}
    messages = []
    for act in (
        lambda: TreatmentMonitor.open(path).update(**samples),
        lambda: monitor.update(**samples),
    ):
        try:
            act()
        except (DamagedFileError, OSError, ValueError) as error:
            messages.append(str(error))
    monitor.close()
    assert all(str(path) in text or "'journal' must be of" in text for text in messages)


def changed(state: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A state with one value, by a path with dots, replaced; ``del`` removes it."""
    state = copy.deepcopy(state)
    *parts, last = key.split(".")
    place = state
    for part in parts:
        place = place[part]
    if value is del_:
        del place[last]
    else:
        place[last] = value
    return state


del_ = object()
FULL = torch.zeros(1)
STATES: list[tuple[str, Any]] = [
    *((f"tally.{k}", v) for k in TALLY for v in (*NUMBERS, del_)),
    ("tally.last_time", "yesterday"),
    *((k, v) for k in ("tally", "streams", "settings") for v in (7, None, [], {})),
    *((f"settings.{k}", v) for k in ("format", "epsilon") for v in (None, 7, del_)),
    *(("streams.all", v) for v in (del_, None, [0.0], FULL, "text")),
    *(("recent", v) for v in (None, 7, ["xyz"], [7], ["00"], "0" * 32)),
]


@pytest.mark.parametrize(("key", "value"), STATES)
def test_a_state_that_was_changed_is_refused_and_changes_nothing(
    key: str, value: Any
) -> None:
    known = TreatmentMonitor(0.05)
    known.update([0.1] * 5, id=range(5))
    monitor = TreatmentMonitor(0.05)
    monitor.update(0.4, id="first")
    before = monitor.to_dict()
    with pytest.raises((ValueError, TypeError), match=r"^'.* must "):
        monitor.load_state_dict(changed(known.state_dict(), key, value))
    assert monitor.to_dict() == before
    assert monitor.update(0.4, id="first") == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_every_number_of_a_stream_must_be_finite(value: float) -> None:
    known = TreatmentMonitor(0.05)
    known.update([0.1] * 5)
    state = known.state_dict()
    size = state["streams"]["all"].numel()
    for place in range(0, size, 37):
        numbers = state["streams"]["all"].clone()
        numbers[place] = value
        with pytest.raises(ValueError, match="'state' must hold"):
            TreatmentMonitor(0.05).load_state_dict(
                changed(state, "streams.all", numbers)
            )


def test_isolated_samples_are_counted():
    x = torch.tensor([[0.0], [0.1], [9.0]])
    post = GLIFPostProcessor(tau=0.5, theta=0.0).fit(x, torch.tensor([0.1, 0.2, 0.9]))
    monitor = TreatmentMonitor(0.1)
    isolated = torch.tensor([[99.0]])
    fair = monitor.observe(post, isolated, torch.tensor([0.3]), id=["a"])
    assert fair.tolist() == pytest.approx([0.3])
    assert monitor.to_dict()["num_isolated"] == 1
    several = GLIFPostProcessor(tau=0.5).fit(x, torch.rand(3, 2))
    monitor.observe(several, isolated, torch.rand(1, 2), id=["b"])
    assert (monitor.num, monitor.to_dict()["num_isolated"]) == (2, 2)
