"""People as the user has them, as the model takes them, as the table takes them."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.validation import check_choice
from pyg_glif.sklearn._sklearn_compat import check_array, check_names, traits

# Types of columns that hold text, as pandas and polars call them.
_TEXT = ("object", "str", "string", "String", "Utf8")
# Rows on which a model is tried, and classes among them.
_NUM_TRIED = 20


@dataclass(frozen=True)
class People:
    """The same people twice.

    Args:
        given (array or DataFrame): As the model takes them: in the form of the fit.
        frame (DataFrame): As the table takes them.
    """

    given: Any
    frame: Any


@dataclass(frozen=True)
class Form:
    """The form in which the people of a fit came.

    Args:
        names (tuple): Names of columns; their positions, if they have none.
        is_frame (bool): Whether they came in a frame.
        allow_nan (bool): Whether arrays may have missing values.
        allow_text (bool): Whether arrays may hold anything but numbers.
    """

    names: tuple[Any, ...]
    is_frame: bool
    allow_nan: bool
    allow_text: bool

    def __post_init__(self) -> None:
        for name in ("is_frame", "allow_nan", "allow_text"):
            check_choice(name, getattr(self, name), (True, False))

    @classmethod
    def of(cls, host: Any, x: Any) -> "Form":
        """The form of people to fit; the host learns names and number of columns."""
        names = column_names("X", x)
        if names is not None:
            check_names(host, x, reset=True)
            return cls(names, True, *traits(host.estimator))
        form = cls((), False, *traits(host.estimator))
        size = form._array(host, x, reset=True).shape[1]
        return cls(tuple(range(size)), False, form.allow_nan, form.allow_text)

    def read(self, host: Any, x: Any) -> People:
        """New people; raises or warns about their columns as scikit-learn does."""
        if column_names("X", x) is not None:
            check_names(host, x, reset=False)
            if self.is_frame:
                return People(x, x)
            array = np.asarray(x)
        else:
            array = self._array(host, x, reset=False)
        import pandas

        frame = pandas.DataFrame(array, columns=list(self.names))
        return People(frame if self.is_frame else array, frame)

    def given(self, frame: Any) -> Any:
        """A frame of the table as the model takes it."""
        return frame if self.is_frame else frame.to_numpy()

    def named(self, columns: Any) -> Any:
        """Columns by name that may be given by position.

        What is neither a dictionary nor a list of columns is left to the table.
        """
        if isinstance(columns, Mapping):
            return {self._name(key): value for key, value in columns.items()}
        if columns is None or isinstance(columns, str):
            return columns
        return [self._name(column) for column in columns]

    def to_config(self) -> dict[str, Any]:
        """The form as plain data."""
        return asdict(self)

    def _name(self, column: Any) -> Any:
        if not isinstance(column, Integral) or column in self.names:
            return column
        inside = -len(self.names) <= int(column) < len(self.names)
        return self.names[int(column)] if inside else column

    def _array(self, host: Any, x: Any, *, reset: bool) -> Any:
        """An array of people, of numbers unless the model takes text."""
        dtype = None if self.allow_text else "numeric"
        return check_array(host, x, reset=reset, allow_nan=self.allow_nan, dtype=dtype)


def check_takes_text(estimator: Any, given: Any, y: Any) -> None:
    """Raises with a remedy if a model cannot be trained because columns hold text.

    It is tried on a few rows. What fails without the text as well has another reason,
    and fails in training.

    Args:
        estimator (object): The model; copies are trained.
        given (array or DataFrame): Samples as the model takes them.
        y (numpy.ndarray): Targets.
    """
    names = getattr(given, "columns", [])
    texts = [name for name in names if str(given[name].dtype) in _TEXT]
    rest = [name for name in names if name not in texts]
    if not texts:
        return
    _, first = np.unique(y, return_index=True)
    rows = np.union1d(first[:_NUM_TRIED], np.arange(min(len(y), _NUM_TRIED)))
    few, y = _safe_indexing(given, rows), y[rows]
    error = _failure(estimator, few, y)
    if error is None:
        return
    remedies = {"Put an encoder before it, as 'skrub.tabular_pipeline' does": few[rest]}
    if hasattr(few, "astype"):
        categories = dict.fromkeys(texts, "category")
        remedies = {
            f"Pass 'X.astype({categories})'": few.astype(categories),
            **remedies,
        }
    for remedy, other in remedies.items():
        if _failure(estimator, other, y) is None:
            kind, names = type(estimator).__name__, ", ".join(map(repr, texts))
            msg = f"'estimator' must take the text in {names} (got {kind}: {error})"
            raise ValueError(f"{msg}. {remedy}") from error


def _failure(estimator: Any, x: Any, y: Any) -> Exception | None:
    """What training a copy of a model raises, if it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(estimator).fit(x, y)
    except Exception as error:  # a model of any make
        return error
    return None


def ids_of(frame: Any) -> list[Any] | None:
    """What the index of a pandas frame calls people; :obj:`None` if it only counts."""
    index = getattr(frame, "index", None)
    if index is None or type(index).__name__ == "RangeIndex" or not index.is_unique:
        return None
    found = index.tolist()
    plain = all(isinstance(one, (str, int)) for one in found)
    return found if plain else None
