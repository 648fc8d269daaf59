"""What goes in as one kind comes out as the same kind."""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from pyg_glif._utils.arrays import like, to_labels, to_tensor
from pyg_glif._utils.validation import (
    check_edges,
    check_group,
    check_labels,
    check_pairs,
)
from pyg_glif.audit import Bootstrap
from pyg_glif.postprocessing import GLIFPostProcessor
from tests.frames import Frame, Series

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
    torch.testing.assert_close(out, torch.tensor(EXPECTED, dtype=torch.float32))
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
    days = np.array(["2021-01-02", "2021-01-01"], dtype="M8[D]")
    assert to_labels("g", days).tolist() == [1, 0]
    for bad in ([0.5], [np.inf], [1j]):
        with pytest.raises(TypeError, match="'g' must hold labels"):
            to_labels("g", bad)
    for bad in (["a", None], [1.0, np.nan], np.array(["NaT"], dtype="M8[D]")):
        with pytest.raises(ValueError, match="'g' must not have missing values"):
            to_labels("g", bad)
    mixed = np.array([1, "a"], dtype=object)
    message = r"'g' must hold labels of one kind \(got 'int', 'str'\)"
    with pytest.raises(TypeError, match=message):
        to_labels("g", mixed)


WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", [*WHOLE, "bool"])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_every_kind_of_whole_number_is_accepted(kind: Any, dtype: str) -> None:
    value = kind(np.array([1, 0, 1, 0], dtype=dtype))
    assert to_tensor("x", value).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert to_labels("g", value).tolist() == [1, 0, 1, 0]
    x = np.arange(4.0).reshape(4, 1)
    post = GLIFPostProcessor(tau=1.0).fit(kind(x.astype(dtype)), value)
    few = Bootstrap(num_samples=10)
    report = post.audit(
        sensitive={"sex": value}, variants=value, num_nearest=1, bootstrap=few
    )
    assert report["gap_by_sex"].before.value == 1.0
    label = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
    assert check_labels("label", label, 4).tolist() == [1, 0, 1, 0]
    assert check_group("group", label, 4).tolist() == [1, 0, 1, 0]
    if dtype != "bool":
        assert check_edges(label.view(2, 2), 2).tolist() == [[1, 0], [1, 0]]
        assert check_pairs("pairs", label.view(2, 2)).tolist() == [[1, 0], [1, 0]]


def test_large_whole_numbers_keep_their_sign() -> None:
    large = np.array([2**64 - 1, 0, 2**63], dtype=np.uint64)
    for value in (large, torch.from_numpy(large)):
        assert to_tensor("y", value).tolist() == [2.0**64, 0.0, 2.0**63]
        assert to_labels("g", value).tolist() == [2, 0, 1]


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("text", ["2", b"2", np.str_("2")], ids=["str", "bytes", "np"])
def test_text_is_found_wherever_it_is(row: int, column: int, text: object) -> None:
    x = X.astype(object)
    x[row, column] = text
    with pytest.raises(TypeError, match=r"'x' must hold numbers \(got object\)"):
        smooth(x, Y)


def test_numbers_of_any_kind_in_objects() -> None:
    values = [Decimal("1.5"), Fraction(1, 4), True, np.int8(3), np.float32(0.5), 2]
    found = to_tensor("x", np.array(values, dtype=object))
    assert found.tolist() == [1.5, 0.25, 1.0, 3.0, 0.5, 2.0]
    with pytest.raises(TypeError, match="'x' must hold real numbers"):
        to_tensor("x", np.array([1.0, 2j], dtype=object))
    with pytest.raises(
        ValueError, match=r"'y_hat' must be finite \(got nan at index 1"
    ):
        smooth(X, [0.0, None, 1.0])


LAYOUTS = {
    "reversed": lambda a: a[::-1].copy()[::-1],
    "columns first": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "big-endian": lambda a: a.astype(">f8"),
    "little-endian": lambda a: a.astype("<f4"),
    "long": lambda a: a.astype(np.longdouble),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("frozen", [False, True])
def test_memory_layout_is_irrelevant(layout: str, frozen: bool) -> None:
    x, y = LAYOUTS[layout](X), LAYOUTS[layout](Y)
    if frozen:
        x.setflags(write=False)
        y.setflags(write=False)
    np.testing.assert_allclose(smooth(x, y), EXPECTED, rtol=1e-5)


def test_values_that_are_no_dense_array() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix):
        message = (
            rf"'x' must be a dense array \(got {kind.__name__}\). Use 'x.toarray\(\)'"
        )
        with pytest.raises(TypeError, match=message):
            smooth(kind(X), Y)
        with pytest.raises(TypeError, match="'g' must be a dense array"):
            to_labels("g", kind(X))
    message = r"'x' must be a dense tensor \(got layout sparse_coo\). Use 'x.to_dense"
    with pytest.raises(TypeError, match=message):
        smooth(torch.from_numpy(X).to_sparse(), Y)
    with pytest.raises(ValueError, match=r"'x' must not be masked .* index \(1, 0\)"):
        smooth(np.ma.masked_equal(X, 0.1), Y)
    assert to_tensor("x", np.ma.masked_array(X, False)).shape == (3, 2)
    with pytest.raises(ValueError, match="'x' must have rows of the same length"):
        smooth([[1.0, 2.0], [3.0], [4.0, 5.0]], Y)
    with pytest.raises(ValueError, match=r"'x' must be 2-dimensional .*shape \(\)"):
        smooth(3.0, Y)
    with pytest.raises(TypeError, match="'x' must hold numbers"):
        smooth(np.zeros(3, dtype=[("a", float), ("b", float)]), Y)


def frames() -> list[Any]:
    """Constructors of frames from a mapping of columns."""
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    return [pandas.DataFrame, polars.DataFrame]


def test_frames_name_every_column_that_is_no_number() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "age": [1, 2, 3],
            "job": ["a", "b", "c"],
            "since": pandas.to_datetime(["2020", "2021", "2022"]),
            "class": pandas.Categorical([1, 2, 1]),
            "wave": [1.0, 2j, 3.0],
            "big": np.array([2**63, 0, 1], dtype=np.uint64),
        }
    )
    with pytest.raises(TypeError) as caught:
        smooth(frame, Y)
    assert re.sub(r"of \S+?(?=[,)])", "of", str(caught.value)) == (
        "'x' must hold numbers (got 'job' of, 'since' of, 'class' of, 'wave' of). "
        "Encode text, categories and dates first, or use 'pyg_glif.tables.FairTable'"
    )
    found = to_tensor("x", frame[["age", "big"]])
    assert found.tolist() == [[1.0, 2.0**63], [2.0, 0.0], [3.0, 1.0]]


def test_frames_name_every_missing_value() -> None:
    for kind in frames():
        frame = kind({"a": [1, None, 3], "b": [0.5, 1.0, 2.0], "c": [None, None, 1.0]})
        with pytest.raises(ValueError, match="missing") as caught:
            smooth(frame, Y)
        assert str(caught.value) == (
            "'x' must not have missing values (got 1 in 'a' from row 1, 2 in 'c' from "
            "row 0). Fill them in, drop these rows, or use "
            "'pyg_glif.tables.FairTable'"
        )
    pandas = pytest.importorskip("pandas")
    for dtype in ("Int64", "boolean", "Float32"):
        frame = pandas.DataFrame({"a": pandas.array([1, 0, None], dtype=dtype)})
        with pytest.raises(ValueError, match="1 in 'a' from row 2"):
            smooth(frame, Y)
        whole = to_tensor("x", frame[:2])
        assert whole.tolist() == [[1.0], [0.0]]
        assert to_labels("g", frame["a"][:2]).tolist() == [1, 0]
        with pytest.raises(ValueError, match="'g' must not have missing values"):
            to_labels("g", frame["a"])


def test_like_keeps_the_device_of_tensors() -> None:
    out = like(torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.float32))
    assert out.dtype == torch.float32
