"""A rehearsal of a fit: every fold comes to models and scales that never saw it.

Out-of-fold outputs are fair to the person whose they are, but not to the newcomers of a
fold: the models behind the outputs of the others, and the effects behind everybody's
coordinates, have learnt from the newcomers' labels. Where people are few, that flatters
what a correction seems to cost. Here the newcomers of a fold meet outputs of models
trained without them, in coordinates by the effects of such a model.
"""

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import cross_validate
from sklearn.utils import _safe_indexing
from torch import Tensor

from pyg_glif.sklearn._input import Form, People
from pyg_glif.tables import FairTable

Rows = NDArray[np.int64]
#: Who is fitted, and who comes.
Fold = tuple[Rows, Rows]


class Stage(NamedTuple):
    """The people of all folds, each fold far from the others."""

    x: Tensor  # [M, D]
    outputs: NDArray[np.float64]  # [M] or [M, C]
    person: Rows  # [M], whose row it is
    folds: list[Fold]

    @property
    def new(self) -> Rows:
        """The rows of those who come."""
        return np.concatenate([new for _, new in self.folds])


def fitted_in_two(folds: Sequence[Fold]) -> dict[tuple[int, ...], Rows]:
    """Who is fitted in both of every two folds."""
    pairs = itertools.combinations(range(len(folds)), 2)
    return {(i, j): np.intersect1d(folds[i][0], folds[j][0]) for i, j in pairs}


class Rehearsal:
    """Models without each fold, and without every two folds.

    Args:
        model (object): Its ``predict`` gives outputs.
        people (People): Everybody.
        y (numpy.ndarray): What is true of them.
        folds (sequence): Who is fitted and who comes; everybody comes once.
        params (dict): Further arguments for the ``fit`` of the model.
        n_jobs (int, optional): Processes that train models.
    """

    def __init__(
        self,
        model: Any,
        people: People,
        y: NDArray[Any],
        folds: Sequence[Fold],
        params: Mapping[str, Any],
        n_jobs: int | None,
    ) -> None:
        self._people, self._folds = people, folds
        fitted: dict[tuple[int, ...], Rows] = {
            (k,): others for k, (others, _) in enumerate(folds)
        }
        fitted |= fitted_in_two(folds)
        found = cross_validate(
            model,
            people.given,
            y,
            cv=[(rows, rows[:1]) for rows in fitted.values()],
            scoring=_nothing,
            return_estimator=True,
            params=dict(params),
            n_jobs=n_jobs,
            error_score="raise",
        )
        self._without = dict(zip(fitted, found["estimator"], strict=True))
        #: Out-of-fold outputs of everybody.
        self.outputs = self._collected(
            [self._ask((k,), new) for k, (_, new) in enumerate(folds)]
        )

    def stage(
        self,
        new_table: Callable[[], FairTable],
        form: Form,
        apart: float | None,
    ) -> Stage:
        """Coordinates and outputs of the people of every fold.

        Args:
            new_table (callable): Gives a table that is not fitted.
            form (Form): How the model takes people.
            apart (float, optional): How far folds are from each other at least.
                (default: farther than any two people of a fold)
        """
        blocks, outputs, person, folds, start = [], [], [], [], 0
        for k, (others, new) in enumerate(self._folds):
            rows, model = np.concatenate([others, new]), self._without[(k,)]

            def predict(frame: Any, model: Any = model) -> Any:
                return model.predict(form.given(frame))

            with warnings.catch_warnings():
                # A table of some people has not seen all values; that of all has.
                warnings.simplefilter("ignore", UserWarning)
                table = new_table().fit(
                    _safe_indexing(self._people.frame, others), predict
                )
                blocks.append(table.transform(_safe_indexing(self._people.frame, rows)))
            told = [
                self._ask((k,) if i == k else (min(i, k), max(i, k)), came)
                for i, (_, came) in enumerate(self._folds)
            ]
            outputs.append(self._collected(told)[rows])
            person.append(rows)
            at = start + np.arange(len(rows))
            folds.append((at[: len(others)], at[len(others) :]))
            start += len(rows)
        if not apart:
            apart = 1.0 + max(float(x.abs().max()) * x.size(1) for x in blocks)
        width = max(x.size(1) for x in blocks)  # tables may have other columns
        x = blocks[0].new_zeros(start, width + 1)
        for k, (block, fold) in enumerate(zip(blocks, folds, strict=True)):
            rows = np.concatenate(fold)
            x[rows, : block.size(1)] = block
            x[rows, -1] = 2.0 * apart * k
        return Stage(x, np.concatenate(outputs), np.concatenate(person), folds)

    def _ask(self, without: tuple[int, ...], rows: Rows) -> NDArray[np.float64]:
        """What the model without some folds says of some people."""
        told = self._without[without].predict(_safe_indexing(self._people.given, rows))
        out: NDArray[np.float64] = np.asarray(told)
        return out

    def _collected(self, parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """What was said of the newcomers of every fold, in the order of people."""
        rows = np.concatenate([new for _, new in self._folds])
        out: NDArray[np.float64] = np.concatenate(parts)[rows.argsort()]
        return out


def _nothing(*_: Any) -> float:
    """Models are not scored."""
    return 0.0
