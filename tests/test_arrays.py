"""What goes in as one kind comes out as the same kind."""

import numpy as np
import pytest
import torch

from pyg_glif._arrays import like, to_labels, to_tensor
from pyg_glif.postprocessor import GLIFPostProcessor

X = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0]])
Y = np.array([0.0, 3.0, 7.0])
EXPECTED = [1.0, 2.0, 7.0]


def smooth(x: object, y: object) -> object:
    return GLIFPostProcessor(tau=1.0, theta=0.0).fit_transform(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_arrays(dtype: type) -> None:
    out = smooth(X.astype(dtype), Y.astype(dtype))
    assert isinstance(out, np.ndarray)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, EXPECTED, rtol=1e-3)


def test_tensors_and_lists() -> None:
    out = smooth(X, torch.from_numpy(Y).float())
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, torch.tensor(EXPECTED))
    assert isinstance(smooth(X.tolist(), Y.tolist()), np.ndarray)


def test_awkward_arrays() -> None:
    x = X.astype(">f8")[::-1]
    frozen = Y[::-1].copy()
    frozen.setflags(write=False)
    np.testing.assert_allclose(smooth(x, frozen), EXPECTED[::-1], rtol=1e-6)
    assert to_tensor("x", X).data_ptr() == X.ctypes.data  # no copy where none is due
    assert to_tensor("x", np.uint16([3])).tolist() == [3.0]
    assert to_tensor("x", np.longdouble([3])).dtype == torch.float64
    assert to_tensor("x", torch.tensor([True])).dtype == torch.float64


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    index = ["ann", "bob", "cyd"]
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1] > 1}, index=index)
    y = pandas.Series(Y, index=index, name="risk")
    out = smooth(frame, y)
    expected = pandas.Series(EXPECTED, index=index, name="risk")
    pandas.testing.assert_series_equal(out, expected)
    wide = pandas.DataFrame({"no": Y, "yes": -Y}, index=index)
    out = smooth(frame, wide)
    expected = pandas.DataFrame({"no": EXPECTED, "yes": EXPECTED}, index=index)
    expected["yes"] *= -1
    pandas.testing.assert_frame_equal(out, expected)
    text = pandas.DataFrame({"a": ["1", "2", "3"], "b": Y})
    with pytest.raises(TypeError, match="'x' must hold numbers"):
        smooth(text, y)


def test_polars_by_its_protocol() -> None:
    class Series:
        def __init__(self, name: str, values: np.ndarray) -> None:
            self.name, self.values = name, values

        def to_numpy(self) -> np.ndarray:
            return self.values

    class Frame:
        def __init__(self, values: np.ndarray, schema: list[str]) -> None:
            self.values, self.columns = values, schema

        def to_numpy(self) -> np.ndarray:
            return self.values

    Series.__module__ = Frame.__module__ = "polars.dataframe"
    out = smooth(Frame(X, ["a", "b"]), Series("risk", Y))
    assert type(out) is Series
    assert out.name == "risk"
    np.testing.assert_allclose(out.values, EXPECTED)
    out = smooth(Frame(X, ["a", "b"]), Frame(Y[:, None], ["risk"]))
    assert type(out) is Frame
    assert out.columns == ["risk"]
    np.testing.assert_allclose(out.values[:, 0], EXPECTED)


def test_real_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    out = smooth(frame, polars.Series("risk", Y))
    assert isinstance(out, polars.Series)
    assert out.name == "risk"
    np.testing.assert_allclose(out.to_numpy(), EXPECTED)


def test_labels() -> None:
    assert to_labels("g", ["m", "f", "m"]).tolist() == [1, 0, 1]
    assert to_labels("g", np.array(["b", "a"], dtype=object)).tolist() == [1, 0]
    assert to_labels("g", [True, False]).tolist() == [1, 0]
    assert to_labels("g", torch.tensor([2.0, 0.0])).tolist() == [2, 0]
    with pytest.raises(TypeError, match="'g' must hold labels"):
        to_labels("g", [0.5])


def test_like_keeps_the_device_of_tensors() -> None:
    out = like(torch.zeros(2, dtype=torch.int64), torch.ones(2))
    assert out.dtype == torch.float32
