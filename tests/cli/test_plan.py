"""``pyg-glif plan`` and ``pyg-glif smooth --engine``."""

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.calls import Shell, smooth
from tests.distributed.samples import embedding_like, write_rows, write_scores


def test_plan_says_what_a_run_takes(shell: Shell) -> None:
    np.save("rows.npy", embedding_like(3000, 16))
    words = ("plan", "rows.npy", "--people", "1e6", "--workers", 10, "--cores", 8)
    found = shell(*words, "--json").json
    assert found["num_samples"] == 1_000_000
    assert 1.0 <= found["exponent"] <= 2.0
    assert found["degree"] == pytest.approx(40, rel=0.3)
    again = shell(*words[:4], "--tau", found["tau"], "--json").json
    assert again["degree"] == pytest.approx(found["degree"])
    text = shell(*words).out
    assert "search grows as" in text
    assert "over 80 cores at 70%" in text


def test_plan_needs_enough_people(shell: Shell) -> None:
    np.save("rows.npy", np.zeros((5, 2), np.float32))
    call = shell("plan", "rows.npy", "--people", 100)
    call.fails(2, "'rows' must hold at least 64 rows to plan from (got 5)")


def test_smooth_in_blocks(shell: Shell, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = embedding_like(400, 6), random.random((400, 1))
    ids = np.array([f"p{i}" for i in range(400)])
    write_rows(tmp_path / "rows", x, ids)
    (tmp_path / "scores").mkdir()
    order = random.permutation(400)
    write_scores(tmp_path / "scores" / "s.parquet", y[order], ids[order])
    words = ("smooth", "rows", "scores/", "--features", "emb", "--id", "id")
    words = (*words, "--tau", 0.5, "--lam", 2.0, "--engine", "process", "--out", "fair")
    found = shell(*words, "--json").json
    assert (found["people"], found["status"]) == (400, "CONVERGED")
    table = pq.read_table(tmp_path / "fair" / "outputs" / "part-00000.parquet")
    assert table.column("id").to_pylist() == list(ids)
    expected = smooth(x.astype(np.float64), y, 0.5, 2.0)
    values = table.column("score_0").to_numpy()
    np.testing.assert_allclose(values, expected[:, 0], atol=1e-4)
    again = shell(*words).out
    assert re.search(r"^tasks run +0$", again, re.MULTILINE)
    assert "fair/outputs (1 files)" in again


def test_smooth_in_blocks_finds_a_radius(shell: Shell) -> None:
    np.save("x.npy", embedding_like(500, 6))
    np.save("y.npy", np.random.default_rng(0).random(500))
    words = ("smooth", "x.npy", "y.npy", "--engine", "process", "--target-degree", 10)
    assert shell(*words, "--json").json["neighbors_each"] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([{"address": "h:1"}], "'address' of --config goes with --engine ray"),
        (
            ["--engine", "process", {"num_workers": 2}],
            "'num_workers' of --config goes with --engine ray",
        ),
        (["--engine", "ray", "--k", "3"], "--k does not go with --engine"),
        (
            ["--engine", "process"],
            "--features and --outputs must be given without OUTPUTS",
        ),
    ],
)
def test_smooth_in_blocks_rejects(shell: Shell, words: list[str], message: str) -> None:
    np.save("x.npy", np.zeros((3, 2), np.float32))
    shell("smooth", "x.npy", *words).fails(2, message)


def test_an_address_nobody_answers_at(shell: Shell) -> None:
    np.save("x.npy", np.zeros((3, 2), np.float32))
    words = ("smooth", "x.npy", "x.npy", "--engine", "ray", {"address": "127.0.0.1:9"})
    call = shell(*words)
    assert call.code == 1
    assert "does not answer" in call.err
