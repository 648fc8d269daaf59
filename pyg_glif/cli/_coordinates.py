"""From the columns of a table to coordinates in which distances mean something."""

import argparse
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.target_names import outcome_like
from pyg_glif.cli._options import UsageError, listed, nearest_name

if TYPE_CHECKING:
    from pyg_glif.tables import FairTable

# More texts than this, and one for more than half of all people, are no categories.
_FREE_TEXT = 20


def free_texts(frame: Any) -> list[str]:
    """Columns in which nearly everybody has a text of their own, such as names."""
    texts = frame.select_dtypes(exclude=["number", "bool", "datetime"])
    limit = texts.notna().sum().clip(lower=2 * _FREE_TEXT) / 2
    return list(texts.columns[texts.nunique() > limit])


def warn_of_outcomes(columns: dict[str, NDArray[Any]]) -> None:
    """Warns about features that are probably what somebody wants to predict."""
    found = [
        name
        for name, value in columns.items()
        if outcome_like(name)
        and value.dtype.kind in "fiub"
        and set(np.unique(value[~np.isnan(value.astype(np.float64))])) == {0, 1}
    ]
    if found:
        it = "it says" if len(found) == 1 else "they say"
        msg = f"{listed(found)} looks like an outcome (0 and 1 only), and {it} who is"
        remedy = f"Leave it out with --ignore {','.join(found)}"
        warnings.warn(f"{msg} similar. {remedy}", stacklevel=2)


def fitted_table(
    args: argparse.Namespace,
    scale: str,
    frame: Any,
    features: list[str],
    y: Any,
    rows: Any = slice(None),
) -> "FairTable":
    """The table that puts features on the scale of some rows of a frame.

    Columns that are no features are sensitive.
    """
    from pyg_glif.tables import FairTable

    table = FairTable(
        sensitive=[name for name in frame if name not in features],
        scale=scale,  # type: ignore[arg-type]
        equivalent=_equivalent(args.equivalent or [], frame, features),
    )
    return table.fit(frame.iloc[rows], y_hat=None if scale == "standard" else y[rows])


def _equivalent(
    words: list[str], frame: Any, features: list[str]
) -> dict[str, list[list[Any]]]:
    """Values that count as one, by column; raises on any that is not there."""
    found: dict[str, list[list[Any]]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if name not in features:
            raise UsageError(
                f"--equivalent: '{name}' is no feature{_meant(name, features)}"
            )
        # True and False are no texts, and are typed as some.
        value_of = {str(value): value for value in frame[name].dropna().unique()}
        group, known = values.split("/"), sorted(value_of)
        lost = [value for value in group if value not in known]
        if lost:
            msg = f"--equivalent: '{name}' has no value {listed(lost)}"
            raise UsageError(f"{msg} (it has {listed(known)}){_meant(lost[0], known)}")
        found.setdefault(name, []).append([value_of[value] for value in group])
    return found


def _meant(name: str, known: list[str]) -> str:
    """The end of a message about a name that is not there."""
    found = nearest_name(name, known)
    return "" if found is None else f". Did you mean '{found}'?"
