"""People as the user has them, as the model takes them, as the table takes them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from pyg_glif._arrays import column_names
from pyg_glif._validate import check_choice
from pyg_glif.sklearn._versions import check_array, check_names, traits


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


def ids_of(frame: Any) -> list[Any] | None:
    """What the index of a pandas frame calls people; :obj:`None` if it only counts."""
    index = getattr(frame, "index", None)
    if index is None or type(index).__name__ == "RangeIndex" or not index.is_unique:
        return None
    found = index.tolist()
    plain = all(isinstance(one, (str, int)) for one in found)
    return found if plain else None
