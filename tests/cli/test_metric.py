from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.metric_learning import FACE, LogisticSubspace, SensitiveSVD
from tests.cli.calls import Array, Shell, smooth, write_csv

WORDS = ("smooth", "x.npy", "y.npy", "--tau", 1.1, "--out", "f.npy")


@pytest.fixture
def problem(shell: Shell) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 4)) * [1, 2, 3, 4], rng.random(60)
    np.save("x.npy", x)
    np.save("y.npy", y)
    return x, y


def complement(directions: Array) -> Array:
    """The projection on what is orthogonal to some rows, by least squares."""
    return np.eye(directions.shape[1]) - np.linalg.pinv(directions) @ directions


def test_mahalanobis(shell: Shell, problem: tuple[Array, Array]) -> None:
    x, y = problem
    root = np.random.default_rng(0).normal(size=(4, 2))
    np.save("m.npy", root @ root.T)
    shell(*WORDS, "--metric", "mahalanobis", {"matrix": "m.npy"})
    expected = smooth(x @ root, y, tau=1.1)
    np.testing.assert_allclose(np.load("f.npy"), expected, atol=1e-5)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("metric", ["subspace", "svd", "face", "logistic"])
def test_directions_are_ignored(
    shell: Shell, problem: tuple[Array, Array], metric: str, standardize: bool
) -> None:
    x, y = problem
    rng = np.random.default_rng(4)
    rows, group = rng.normal(size=(9, 4)), rng.integers(0, 20, 60)
    sex = (x[:, 0] + 0.1 * x[:, 1] + rng.normal(size=60) > 0).astype(int)
    np.save("rows.npy", rows)
    np.save("group.npy", group)
    np.save("sex.npy", np.array(["m" if s else "f" for s in sex]))
    mean, std = (x.mean(0), x.std(0)) if standardize else (0.0, 1.0)
    z, side = torch.from_numpy((x - mean) / std), torch.from_numpy((rows - mean) / std)
    if metric == "subspace":
        np.save("rows.npy", rows[:1])
        words = ({"directions": "rows.npy"},)
        directions = rows[:1] / std
    elif metric == "svd":
        words = ({"side_rows": "rows.npy"}, {"num_components": 1})
        directions = SensitiveSVD(1).fit(side).basis.numpy()
    elif metric == "face":
        words = ({"variants": "group.npy"}, {"num_factors": 2})
        directions = FACE(2).fit(z, torch.from_numpy(group)).basis.numpy()
    else:
        words = ("--sensitive", "sex.npy", {"ridge": 0.5})
        directions = LogisticSubspace(0.5).fit(z, torch.from_numpy(sex)).basis.numpy()
    extra = ("--scale", "standard") if standardize else ()
    call = shell(*WORDS, "--metric", metric, *words, *extra, "--save", "p.safetensors")
    assert call.code == 0, call.err
    expected = smooth(z.numpy() @ complement(directions), y, tau=1.1)
    np.testing.assert_allclose(np.load("f.npy"), expected, atol=1e-5)
    kept = GLIFPostProcessor.load("p.safetensors")
    np.testing.assert_array_equal(kept.y_fair_.numpy(), np.load("f.npy"))


def test_rows_follow_the_features_by_name(shell: Shell) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(40, 3)), rng.random(40)
    table = np.column_stack([x, y])
    write_csv(Path("p.csv"), ["a", "b", "c", "y"], table.tolist())
    write_csv(Path("side.csv"), ["c", "a", "z"], [(0.0, 1.0, 9.0)])
    words = ("smooth", "p.csv", "--outputs", "y", "--ignore", "b", "--tau", 0.5)
    words += ("--metric", "subspace", {"directions": "side.csv"}, "--out", "f.npz")
    assert shell(*words).code == 0
    with np.load("f.npz") as found:
        expected = smooth(x[:, 2:], y, tau=0.5)
        np.testing.assert_allclose(found["y"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (["--metric", metric], f"--metric {metric} needs {need}")
            for metric, need in {
                "mahalanobis": "'matrix' of --config",
                "subspace": "'directions' of --config",
                "svd": "'side_rows' of --config",
                "face": "'variants' of --config",
                "logistic": "--sensitive",
            }.items()
        ),
        (
            [{"matrix": "x.npy"}],
            "'matrix' of --config goes with --metric mahalanobis "
            "(got --metric euclidean)",
        ),
        (
            ["--metric", "svd", {"side_rows": "x.npy"}, {"num_factors": "2"}],
            "'num_factors' of --config goes with --metric face (got --metric svd)",
        ),
        (
            ["--metric", "mahalanobis", {"matrix": "x.npy"}, "--scale", "standard"],
            "--scale standard does not go with --metric mahalanobis: scale the matrix "
            "instead",
        ),
        (
            ["--metric", "mahalanobis", {"matrix": "x.npy"}],
            "'matrix' of --config: 'x.npy' must be 4 x 4, a row and a column per "
            "feature (got 60 x 4)",
        ),
        (
            ["--metric", "subspace", {"directions": "y.npy"}],
            "'directions' of --config: 'y.npy' must have one column per feature "
            "(got 1 for 4 features)",
        ),
        (
            ["--metric", "svd", {"side_rows": "x.npy"}, {"num_components": "4"}],
            "'num_components' must be below the number of features, 4 (got 4). Every "
            "pair would be at distance 0",
        ),
        (["--link", "log", {"eps": "0.1"}], "'eps' goes with --link softmax and "),
        (
            [{"variants": "x.npy"}],
            "'x.npy' must have a single column (it has '0', '1', '2', '3')",
        ),
        ([{"joint": True}], "'joint' of --config goes with --post"),
    ],
)
def test_options_that_make_no_sense(
    shell: Shell, problem: tuple[Array, Array], words: list[str], message: str
) -> None:
    call = shell(*WORDS, *words)
    assert call.code == 2
    assert call.err.startswith(f"pyg-glif: error: {message}")


def test_unknown_link(shell: Shell, problem: tuple[Array, Array]) -> None:
    call = shell(*WORDS, "--link", "probit")
    assert call.code == 2
    # Others may have been registered since.
    assert "--link must be one of none, identity, softmax, logit, log" in call.err
    assert call.err.endswith("(got 'probit')\n")


def test_unknown_metric(shell: Shell, problem: tuple[Array, Array]) -> None:
    call = shell(*WORDS, "--metric", "cosine")
    assert call.code == 2
    assert "argument --metric: invalid choice: 'cosine'" in call.err
    assert call.err.endswith("See 'pyg-glif smooth --help'\n")
