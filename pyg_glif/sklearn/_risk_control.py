"""A strength that people who were set aside certify."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.warn import warn_caller
from pyg_glif.model_selection import Guarantee, RiskControl, TunePoint
from pyg_glif.model_selection.risk_control import Losses
from pyg_glif.model_selection.selection import fairest
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.sklearn._input import ids_of


def fit_with_guarantee(
    model: Any,
    X: Any,  # noqa: N803
    y: Any,
    control: RiskControl,
    params: Mapping[str, Any],
) -> None:
    """Fits everything to some people, and takes a strength that the others certify.

    Model, table, radius and the order of the strengths come from the people who are
    fitted. The others come as newcomers do: by the model that will serve.

    Args:
        model (GLIFClassifier): What is fitted, in place.
        X (DataFrame or array-like): People, a row each.
        y (array-like): Their classes.
        control (RiskControl): The promise.
        params (dict): Further arguments for ``fit``.
    """
    num = len(y)
    seed = model._seed()
    control.check_enough(int(control.share * num), num)
    by_person = [name for name, value in params.items() if _is_by_person(value, num)]
    columns = [X, y, np.arange(num), *(params[name] for name in by_person)]
    parts = train_test_split(*columns, test_size=control.share, random_state=seed)
    (known, x_new, truth, y_new, rows, aside), rest = parts[:6], parts[6::2]
    inner = clone(model).set_params(guarantee=None)
    inner.fit(known, truth, **{**params, **dict(zip(by_person, rest, strict=True))})
    mine = model.get_params(deep=False)
    vars(model).update({k: v for k, v in vars(inner).items() if k not in mine})
    arrivals = _Arrivals(model, x_new, y_new)
    found, limits = model.tune_, control.limits
    points = [p for p in found.points if not p.status.is_failure]
    points = [p for p in points if p.unfairness < found.baseline.unfairness]
    if "loss" in limits:
        points.sort(key=lambda p: (p.loss - limits["loss"]) / ((p.loss_se or 0) + 1e-6))
    else:
        points = sorted([found.baseline, *points], key=fairest)
    tests = control.certify(points, arrivals)
    certified = [test for test in tests if test.certified]
    best = min(certified, key=lambda test: fairest(test.point), default=None)
    fitted, new = (torch.from_numpy(np.asarray(part)) for part in (rows, aside))
    model.guarantee_ = Guarantee(control, tests, best, fitted, new, len(new))
    if best is None:
        warn_caller(model.guarantee_.to_text())
    choice = found.baseline if best is None else best.point
    # The part that is fitted has an index, and so ids, only if all samples have.
    frame = model._read(known).frame
    ids = None if ids_of(model._read(X).frame) is None else ids_of(frame)
    model._keep(arrivals.fitted(choice), frame, ids)
    model.tune_ = replace(found, best=choice, guarantee=model.guarantee_)


class _Arrivals:
    """Losses of people who come to a fitted model, by strength."""

    def __init__(self, model: Any, X: Any, y: Any) -> None:  # noqa: N803
        people = model._read(X)
        self._post: GLIFPostProcessor = model.post_
        self._x, self._before = model._coordinates(people), model._before(people)
        places = np.searchsorted(model.classes_, np.asarray(y))
        places = np.minimum(places, len(model.classes_) - 1)
        known = model.classes_[places] == np.asarray(y)
        # A class that nobody of the fit has is never decided for.
        self._truth = torch.from_numpy(np.where(known, places, -1))

    def fitted(self, point: TunePoint) -> GLIFPostProcessor:
        """The correction with another strength."""
        post = self._post
        graph = post.similarity_ if post.k is None else None
        new = GLIFPostProcessor(**{**post.get_params(), "lam": point.lam})
        return new.fit(post.x_, post.y_hat_, graph)

    def __call__(self, point: TunePoint) -> dict[str, Losses]:
        """Losses of everybody, in the order in which they come."""
        info = self.fitted(point).transform_info(self._x, self._before)
        after = info.value
        right = [decisions(p) == self._truth for p in (self._before, after)]
        lost = right[0].double() - right[1].double()
        assert info.neighbors is not None
        unlike = info.neighbors.disparity(after, threshold=0.5).nan_to_num()
        return {"loss": lost.numpy(), "unlike": unlike.numpy()}


def _is_by_person(value: Any, num: int) -> bool:
    """Whether an argument has an entry for each person."""
    sized = hasattr(value, "__len__") and not isinstance(value, str)
    return sized and len(value) == num
