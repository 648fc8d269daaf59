"""Columns are known by their names, not by their places."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_glif.postprocessing import GLIFPostProcessor
from tests.frames import Frame
from tests.postprocessing.people import people

NAMES, CLASSES = ["age", "income"], ["low", "mid", "high"]


def pandas_frame(values: np.ndarray, names: list[Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(values, columns=names)


def polars_frame(values: np.ndarray, names: list[str]) -> Any:
    return pytest.importorskip("polars").DataFrame(values, schema=names)


KINDS = {"pandas": pandas_frame, "polars": polars_frame, "protocol": Frame}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def fitted(kind: Any) -> tuple[Any, GLIFPostProcessor, torch.Tensor]:
    """People, a fit on frames of them, and what the same fit without names gives."""
    group = people()
    expected = group.fit().transform(group.x_new, group.y_new)
    post = group.fit()
    post.fit(kind(group.x.numpy(), NAMES), kind(group.y.numpy(), CLASSES))
    return group, post, expected


@kinds
@pytest.mark.parametrize("joint", [False, True])
def test_columns_come_in_any_order(kind: Any, joint: bool) -> None:
    group, post, expected = fitted(kind)
    if joint:
        expected = group.fit().transform(group.x_new, group.y_new, joint=True)
    x, y = group.x_new.numpy(), group.y_new.numpy()
    turned = kind(y[:, [2, 0, 1]], ["high", "low", "mid"])
    out = post.transform(kind(x[:, ::-1], NAMES[::-1]), turned, joint=joint)
    assert list(out.columns) == ["high", "low", "mid"]
    np.testing.assert_array_equal(out.to_numpy(), expected.numpy()[:, [2, 0, 1]])
    out = post.transform(kind(x, NAMES), kind(y, CLASSES), joint=joint)
    np.testing.assert_array_equal(out.to_numpy(), expected.numpy())


@kinds
def test_every_method_goes_by_names(kind: Any) -> None:
    group, post, _ = fitted(kind)
    plain = group.fit()
    x, y = group.x_new.numpy(), group.y_new.numpy()
    found = post.explain_new(kind(x[:1, ::-1], NAMES[::-1]))
    assert torch.equal(found.weight, plain.explain_new(x[:1]).weight)
    post.partial_fit(kind(x[:, ::-1], NAMES[::-1]), kind(y[:, ::-1], CLASSES[::-1]))
    plain.partial_fit(x, y)
    assert torch.equal(post.y_fair_, plain.y_fair_)
    assert post.feature_names_in_.tolist() == NAMES
    # A new fit has the names, and the order, of its own people.
    post.fit(kind(x[:, ::-1], NAMES[::-1]), kind(y[:, ::-1], CLASSES[::-1]))
    assert post.feature_names_in_.tolist() == NAMES[::-1]
    out = post.fit_transform(kind(x, NAMES), kind(y[:, ::-1], CLASSES[::-1]))
    assert list(out.columns) == CLASSES[::-1]
    expected = plain.fit(x, y).y_fair_
    np.testing.assert_allclose(out.to_numpy()[:, ::-1], expected, rtol=1e-12)


@kinds
def test_names_survive_saving(kind: Any, tmp_path: Path) -> None:
    group, post, expected = fitted(kind)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert other.feature_names_in_.tolist() == NAMES
    assert other.output_names_.tolist() == CLASSES
    x, y = group.x_new.numpy(), group.y_new.numpy()
    turned = kind(x[:, ::-1], NAMES[::-1]), kind(y[:, ::-1], CLASSES[::-1])
    np.testing.assert_array_equal(
        other.transform(*turned).to_numpy()[:, ::-1], expected.numpy()
    )


@kinds
def test_missing_and_new_names_are_all_listed(kind: Any) -> None:
    group, post, _ = fitted(kind)
    x, y = group.x_new.numpy(), group.y_new.numpy()
    wide = kind(np.concatenate([x, x, x], 1), ["a", "age", "b", "c", "d", "e"])
    good = kind(x, NAMES)
    message = (
        "'{}' must have the columns of the fit "
        "(got 'income' missing, 'a', 'b', 'c', 'd', 'e' new)"
    )
    for call, name in (
        (lambda: post.transform(wide, kind(y, CLASSES)), "x_new"),
        (lambda: post.partial_fit(wide, kind(y, CLASSES)), "x"),
        (lambda: post.explain_new(wide), "x_new"),
    ):
        with pytest.raises(ValueError, match="columns of the fit") as caught:
            call()
        assert str(caught.value) == message.format(name)
    with pytest.raises(ValueError, match="'low', 'mid' missing, 'x', 'y' new"):
        post.transform(good, kind(y, ["high", "x", "y"]))
    with pytest.raises(ValueError, match=r"\(got 'income' missing\)"):
        post.transform(kind(x[:, :1], ["age"]), kind(y, CLASSES))


@kinds
def test_columns_without_names_are_taken_by_position_with_a_warning(kind: Any) -> None:
    group, post, expected = fitted(kind)
    x, y = group.x_new.numpy(), group.y_new.numpy()
    with pytest.warns(UserWarning, match="'x_new' has no column names") as caught:
        out = post.transform(x, kind(y, CLASSES))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(out.to_numpy(), expected.numpy())
    with pytest.warns(UserWarning, match="'y_hat_new' has no column names") as caught:
        out = post.transform(kind(x, NAMES), y)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(out, expected.numpy())
    plain = group.fit()
    with pytest.warns(UserWarning, match="'x_new' has column names, while the fit had"):
        out = plain.transform(kind(x, NAMES), y)
    np.testing.assert_array_equal(out, expected.numpy())
    assert not hasattr(plain, "feature_names_in_")
    post.fit(x, y)  # a fit without names forgets those of an earlier one
    assert not hasattr(post, "feature_names_in_")


def test_numbered_columns() -> None:
    group = people()
    x, y = group.x_new.numpy(), group.y_new.numpy()
    expected = group.fit().transform(x, y)
    post = group.fit()
    numbered = pandas_frame(group.x.numpy(), [0, 1])
    post.fit(numbered, pandas_frame(group.y.numpy(), np.arange(3)))
    # Numbers that pandas gives itself say no more than an array does ...
    np.testing.assert_array_equal(post.transform(x, y), expected)
    assert not hasattr(post, "feature_names_in_")
    # ... until they come in another order.
    turned = pandas_frame(x[:, ::-1], [1, 0]), pandas_frame(y[:, ::-1], [2, 1, 0])
    np.testing.assert_array_equal(post.transform(*turned).to_numpy()[:, ::-1], expected)
    plain = group.fit()
    np.testing.assert_array_equal(plain.transform(pandas_frame(x, [0, 1]), y), expected)


def test_names_of_several_levels_survive_saving(tmp_path: Path) -> None:
    group = people()
    names = [("pay", 2020), ("pay", 2021)]
    post = group.fit()
    post.fit(pandas_frame(group.x.numpy(), names), group.y)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    expected = group.fit().transform(group.x_new, group.y_new)
    turned = pandas_frame(group.x_new.numpy()[:, ::-1], names[::-1])
    assert torch.equal(other.transform(turned, group.y_new), expected)


def test_names_that_cannot_tell_columns_apart() -> None:
    group = people()
    with pytest.raises(ValueError, match="'x' must have columns of different names"):
        group.fit().fit(pandas_frame(group.x.numpy(), ["a", "a"]), group.y)
    with pytest.raises(TypeError, match="'x' must have columns named by text or whole"):
        group.fit().fit(pandas_frame(group.x.numpy(), [0.5, 1.5]), group.y)


def test_series_are_not_matched_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    group = people()
    y, y_new = group.y[:, 0].numpy(), group.y_new[:, 0].numpy()
    post = group.fit().fit(group.x, pandas.Series(y, name="score"))
    out = post.transform(group.x_new, pandas.Series(y_new, name="risk"))
    assert out.name == "risk"
    np.testing.assert_array_equal(out, post.transform(group.x_new, y_new))
