"""Sources of effects: a model, or trees fitted to its outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import (
    check_callable,
    check_finite,
    check_num_rows,
    check_rank,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import SimilarityWarning
from pyg_glif.tables._columns import Column, take, with_column
from pyg_glif.tables._effects import Effects, Inquiry, Rows

Outputs = Literal["probabilities", "values"]

# No probability is closer to 0 or 1 than this.
_CLOSEST = 1e-6
_ROUNDING = 1e-6  # of probabilities in single precision
_NUM_FOLDS = 5
# A surrogate that explains less of the outputs' variance says little about the model.
_LEAST_EXPLAINED = 0.5
_MAX_CELLS = 2**21  # of tables that are handed to the model at once
_MAX_CATEGORIES = 255  # that histogram gradient boosting takes


@dataclass(frozen=True)
class Unit:
    """Unit of effects, and the way to it from outputs.

    Args:
        name (str): ``"log-odds"``, ``"log-probability"`` or ``"output"``.
        num_outputs (int): Columns of the effects.
    """

    name: str
    num_outputs: int

    @classmethod
    def of(cls, name: str, raw: Effects, outputs: Outputs | None) -> "Unit":
        """The unit of outputs ``raw``, :math:`(N, C)`; raises on decisions."""
        width = raw.shape[1]
        sums = raw.sum(axis=1) if width > 1 else np.ones(len(raw))
        likely = bool(
            (raw >= -_ROUNDING).all()
            and (raw <= 1 + _ROUNDING).all()
            and (np.abs(sums - 1) <= 1e-3).all()
        )
        if outputs == "probabilities" and not likely:
            got = f"{raw.min():g} to {raw.max():g}"
            got = got if width == 1 else f"{got}, rows that sum to {sums.min():g}"
            raise ValueError(f"'{name}' must give probabilities (got {got})")
        if outputs == "values" or not likely:
            return cls("output", width)
        if outputs is None and bool(np.isin(raw, (0.0, 1.0)).all()):
            msg = f"'{name}' must give probabilities or scores (got 0 and 1 only)"
            remedy = "Use 'predict_proba', or say by 'outputs' what they are"
            raise ValueError(f"{msg}. {remedy}")
        if width <= 2:
            return cls("log-odds", 1)
        return cls("log-probability", width)

    def effects(
        self, raw: Effects, eps: float
    ) -> Effects:  # [..., C] -> [..., num_outputs]
        """Outputs as they are, their log-odds, or their centered log-probabilities."""
        if self.name == "output":
            return raw
        out: Effects = raw.clip(eps, 1 - eps)
        if self.name == "log-odds":
            out = out[..., -1:]
            out = np.log(out) - np.log1p(-out)
        else:
            out = np.log(out)
            out -= out.mean(axis=-1, keepdims=True)
        return out


def distance_kept(raw: list[Effects]) -> float:
    """Distance of outputs from 0 and 1: half of the least among the others."""
    gaps = [np.minimum(values, 1 - values) for values in raw]
    least = min((float(g[g > 0].min()) for g in gaps if (g > 0).any()), default=0.0)
    return max(least / 2, _CLOSEST)


def as_rows(name: str, value: Any, num_rows: int) -> Effects:
    """Outputs as :math:`(N, C)`; raises on other shapes, NaN and infinity."""
    raw = to_tensor(name, value)
    check_rank(name, raw, 1, 2)
    if len(raw) != num_rows or raw.numel() == 0:
        msg = f"'{name}' must give one row per sample"
        got = f"shape {tuple(raw.shape)} for {num_rows} samples"
        raise ValueError(f"{msg} (got {got})")
    check_finite(name, raw)
    return raw.double().reshape(num_rows, -1).cpu().numpy()


class Source:
    """A model whose outputs give effects."""

    score: float | None = None  # of a surrogate

    def __init__(
        self,
        df: Any,
        predict: Callable[[Any], Any],
        background: Rows,
        outputs: Outputs | None,
        eps: float | None,
    ) -> None:
        if not callable(predict) and hasattr(predict, "predict"):
            msg = f"'predict' must be callable (got {type(predict).__name__})"
            raise TypeError(f"{msg}. Pass its method 'predict_proba' or 'predict'")
        check_callable("predict", predict)
        self.df, self.predict, self.eps = df, predict, eps
        self.num_columns = len(df.columns)
        self.outputs = outputs
        first = as_rows("predict", predict(take(df, background)), len(background))
        # Before anything that takes long; the unit of all outputs is known at the end.
        self.width, self.unit = first.shape[1], Unit.of("predict", first, outputs)

    def ask(self, name: Any, samples: Rows, holders: Rows) -> Effects:
        """Outputs for samples whose value of a column is that of as many holders."""
        frame = with_column(take(self.df, samples), name, self.df, holders)
        out = as_rows("predict", self.predict(frame), len(samples))
        if out.shape[1] != self.width:
            msg = "'predict' must give as many columns at each call"
            raise ValueError(f"{msg} (got {out.shape[1]} after {self.width})")
        return out

    def effects(self, raw: list[Effects]) -> list[Effects]:
        """The effects behind all outputs."""
        self.unit = Unit.of("predict", np.concatenate(raw), self.outputs)
        eps = distance_kept(raw) if self.eps is None else self.eps
        return [self.unit.effects(values, eps) for values in raw]


class Surrogate(Source):
    """Boosted trees fitted to outputs, where these are all that is known.

    There is one set of trees for each fold, fitted to the samples outside it. Outputs
    of a sample come from the trees that have not seen it, so a mean over samples is
    one over all sets.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        y_hat: Any,
        outputs: Outputs | None,
        eps: float | None,
        random: np.random.RandomState,
    ) -> None:
        from sklearn.metrics import r2_score
        from sklearn.model_selection import KFold

        raw = as_rows("y_hat", y_hat, len(columns[0].values))
        check_num_rows("df", len(raw), 2)
        if (raw == raw[0]).all():
            raise ValueError(f"'y_hat' must vary (got {raw[0].tolist()} only)")
        self.unit = Unit.of("y_hat", raw, outputs)
        eps = distance_kept([raw]) if eps is None else eps
        target = self.unit.effects(raw, eps)
        self.names = [column.name for column in columns]
        self.num_columns = len(columns)
        self.x = np.column_stack([column.values for column in columns])
        self.fold = np.empty(len(raw), dtype=np.intp)
        self.models: list[list[Any]] = []
        folds = KFold(min(_NUM_FOLDS, len(raw)), shuffle=True, random_state=random)
        for train, test in folds.split(self.x):
            self.fold[test] = len(self.models)
            models = _trees(columns, self.x[train], target[train], random)
            self.models.append(models)
        held_out = self._predict(self.x, self.fold)
        score = r2_score(target, held_out, multioutput="variance_weighted")
        self.score = float(score)
        if score < _LEAST_EXPLAINED:
            share = f"{max(score, 0.0):.0%}"
            msg = f"The columns explain {share} of the variance of 'y_hat'"
            least = f"less than {_LEAST_EXPLAINED:.0%}: their effects are uncertain"
            remedy = "Pass the model as 'predict', or use 'scale=\"standard\"'"
            warn_caller(f"{msg}, {least}. {remedy}", SimilarityWarning)

    def ask(self, name: Any, samples: Rows, holders: Rows) -> Effects:
        """Effects for samples whose value of a column is that of as many holders."""
        column = self.names.index(name)
        x = self.x[samples]
        x[:, column] = self.x[holders, column]
        return self._predict(x, self.fold[samples])

    def effects(self, raw: list[Effects]) -> list[Effects]:
        """The outputs of the trees, which are effects."""
        return raw

    def _predict(self, x: Effects, fold: Rows) -> Effects:
        """Effects by the trees of each row's fold, :math:`(N, C)`."""
        out = np.empty((len(x), self.unit.num_outputs))
        for k, models in enumerate(self.models):
            rows = np.flatnonzero(fold == k)
            if len(rows):
                out[rows] = np.column_stack(
                    [model.predict(x[rows]) for model in models]
                )
        return out


def measured(inquiries: Sequence[Inquiry], source: Source) -> list[Effects]:
    """The effects of the points of each inquiry's grid, asked for in batches."""
    size = max(1, _MAX_CELLS // source.num_columns)
    raw = []
    with Progress(len(inquiries), "effects") as bar:
        for inquiry in inquiries:
            name, num = inquiry.grid.column.name, len(inquiry.samples)
            batches = [slice(k, k + size) for k in range(0, num, size)]
            outputs = [
                source.ask(name, inquiry.samples[b], inquiry.holders[b])
                for b in batches
            ]
            raw.append(np.concatenate(outputs))
            bar.update()
    effects = zip(inquiries, source.effects(raw), strict=True)
    return [inquiry.reduce(values) for inquiry, values in effects]


def _trees(
    columns: Sequence[Column],
    x: Effects,
    target: Effects,
    random: np.random.RandomState,
) -> list[Any]:
    """Boosted trees for each column of the target."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    mask = [
        c.kind == "category" and len(c.categories) <= _MAX_CATEGORIES for c in columns
    ]
    options = {"categorical_features": mask, "random_state": random}
    return [
        HistGradientBoostingRegressor(**options).fit(x, column) for column in target.T
    ]
