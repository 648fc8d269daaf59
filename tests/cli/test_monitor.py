"""``pyg-glif monitor`` on logs, in one go and night by night."""

from pathlib import Path

import numpy as np
import pytest

from pyg_glif import GLIFPostProcessor
from pyg_glif.monitoring import DriftReference, TreatmentMonitor
from tests.cli.calls import Shell, Table, people, write_csv

FIT = ("people.csv", "--outputs", "score", "--features", "age,income", "--tau", "9000")
LOG = ("monitor", "log.csv", "--fit", "fit.safetensors", "--outputs", "score")


@pytest.fixture
def log(shell: Shell, tmp_path: Path) -> Table:
    """A fit, and a log of people who came later."""
    known = people(200)
    known.y = known.y.clip(0, 1)
    known.write(tmp_path / "people.csv")
    assert shell("smooth", *FIT, "--save", "fit.safetensors").code == 0
    later = people(120, seed=1)
    later.y = later.y.clip(0, 1)
    later.write(tmp_path / "log.csv")
    return later


def test_monitor_is_that_of_the_library(shell: Shell, log: Table) -> None:
    found = shell(*LOG, "--epsilon", 0.02, "--sensitive", "sex", "--json").json
    post = GLIFPostProcessor.load("fit.safetensors")
    monitor = TreatmentMonitor(0.02, groups=["f", "m"], drift=DriftReference.of(post))
    monitor.observe(post, log.x, log.y, group=log.sex)
    expected = monitor.to_dict()
    assert found["num_new"] == found["num"] == 120
    assert found["alarm"] is expected["alarm"]
    for name, stream in expected["streams"].items():
        assert found["streams"][name]["mean"] == pytest.approx(stream["mean"])
        assert found["streams"][name]["num"] == stream["num"]


def test_outputs_that_people_got(shell: Shell, log: Table) -> None:
    found = shell(*LOG, "--epsilon", 0.05, "--served", "--no-drift", "--json").json
    post = GLIFPostProcessor.load("fit.safetensors")
    info = post.transform_info(log.x, log.y)
    gaps = info.neighbors.disparity(log.y)
    assert found["streams"]["all"]["mean"] == pytest.approx(float(gaps.nanmean()))
    assert list(found["streams"]) == ["all"]


def test_journal_counts_nobody_twice(shell: Shell, log: Table, tmp_path: Path) -> None:
    words = (*LOG, "--id", "name", "--journal", "monitor.db")
    log.write(tmp_path / "log.csv", slice(0, 70))
    first = shell(*words, "--epsilon", 0.05).out
    assert first.startswith("70 of 70 rows counted, 70 people so far\n")
    log.write(tmp_path / "log.csv")  # the log has grown
    assert shell(*words).out.startswith("50 of 120 rows counted, 120 people so far\n")
    assert shell(*words).out.startswith("0 of 120 rows counted, 120 people so far\n")
    shell(*words, "--epsilon", 0.1).fails(
        2, "--epsilon must be 0.05, as 'monitor.db' has it (got 0.1)"
    )


def test_times_and_plot(shell: Shell, log: Table, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = zip(log.name, *log.x.T, log.y, strict=True)
    times = [f"2026-03-01T08:{k % 60:02}:00Z" for k in range(120)]
    cells = [(*row, time) for row, time in zip(rows, times, strict=True)]
    header = ["name", "age", "income", "score", "at"]
    write_csv(tmp_path / "log.csv", header, cells)
    words = (*LOG, "--epsilon", 0.05, "--time", "at", "--plot", "monitor.png")
    call = shell(*words)
    assert "the clock went back 59 times" in call.out
    assert "written  monitor.png" in call.out
    assert Path("monitor.png").stat().st_size > 1000
    cells[5] = (*cells[5][:-1], "yesterday")
    write_csv(tmp_path / "log.csv", header, cells)
    shell(*words).fails(
        2,
        "--time must hold seconds or dates like 2026-03-01T08:00:00 (got 'yesterday')",
    )


def test_bad_calls(shell: Shell, log: Table) -> None:
    shell("monitor", "log.csv", "--epsilon", 0.1).fails(
        2, "--fit must name the fit that serves people"
    )
    shell(*LOG).fails(2, "--epsilon must say which mean disparity is all right")
    words = ("monitor", "log.csv", "--fit", "absent.safetensors", "--epsilon", 0.1)
    shell(*words).fails(2, "'absent.safetensors' does not exist")
    shell(*LOG, "--epsilon", 0.1, "--sensitive", "sex,name").fails(
        2, "--sensitive must name one column: a row is in one group"
    )


def test_outputs_that_are_no_probabilities(
    shell: Shell, log: Table, tmp_path: Path
) -> None:
    log.y = np.linspace(-5, 5, 120)
    log.write(tmp_path / "log.csv")
    call = shell(*LOG, "--epsilon", 0.05, "--served")
    assert call.code == 2
    assert "'disparity' must be between 0 and 1" in call.err
    assert shell(*LOG, "--epsilon", 0.05, "--served", "--threshold", 0.5).code == 0
