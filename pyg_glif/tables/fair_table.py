"""Frames of samples to coordinates in the units of a model.

Longer than most modules: one public class with its documentation, the checks of its
parameters and its form as plain data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.arrays import column_order
from pyg_glif._utils.json import is_subset
from pyg_glif._utils.params import ParamsMixin
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_exclusive,
    check_kind,
    check_known,
    check_scalar,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import NotFittedError, SimilarityWarning
from pyg_glif.tables._columns import (
    REMEDY,
    Column,
    check_array,
    equivalent_positions,
    frame_names,
    listed,
    plain_value,
    read_columns,
)
from pyg_glif.tables._effects import (
    EffectGrid,
    accumulated_local_effects,
    partial_dependence,
)
from pyg_glif.tables._proxies import Erasure
from pyg_glif.tables._scaled import (
    Scaled,
    ScaledColumn,
    by_effect,
    combined,
    in_units,
)
from pyg_glif.tables._sources import Outputs, Source, Surrogate, measured
from pyg_glif.tables.summary import ColumnSummary, TableSummary

Scale = Literal["effect", "conditional", "standard", "combined"]

_SCALES = ("effect", "conditional", "standard", "combined")
_HOW = {"effect": "effect on the model", "conditional": "conditional effect"}
_HOW["combined"] = _HOW["effect"]
# Spread of the effects beside a spread of one of the standardized columns. Chosen on
# validation splits, see docs/which_baseline.md.
_EFFECT_SPREAD = 0.35
_VERSION = 1
_NUM_SHOWN = 5
# One of so many columns that makes up this share of the variance is probably a leak.
_FEWEST_COLUMNS, _DOMINANT = 3, 0.95


class FairTable(ParamsMixin):
    r"""Puts the columns of a table on a scale in which distances mean something.

    Similarity is a question about the task. With ``scale="effect"``, the default,
    each value :math:`v` of a column :math:`k` becomes its partial dependence: the
    model's mean log-odds :math:`\eta` over some samples with that value in its place,

    .. math::
        z_k(v) = \frac{1}{B} \sum_{b=1}^{B} \eta(x_b \text{ with } x_{bk} = v) - c_k ,

    less the mean :math:`c_k` over the samples of the fit. Sensitive columns are left
    out. At a distance of 0.3, effects of columns differ by 0.3 log-odds as the root of
    the sum of their squares; the model's log-odds may differ by more or less.

    Args:
        sensitive (sequence): Columns that must not count for similarity. They are left
            out of the coordinates; new samples need not have them. :obj:`None` means
            none. (default: :obj:`()`)
        scale (str or dict): How values become coordinates. ``"effect"``: the partial
            dependence of the model's outputs. ``"conditional"``: their accumulated
            local effects, for columns that are strongly correlated. ``"standard"``:
            numbers less their mean in standard deviations, one-hot categories (two
            different ones are :math:`\sqrt 2` apart). ``"combined"``: effects beside
            standardized columns, with a total variance of :math:`0.35^2` beside 1. A
            dictionary gives each column the difference that counts one, in days for
            dates; two different categories are one over it apart.
            (default: :obj:`"effect"`)
        equivalent (dict, optional): For columns of categories, groups of values
            that count as one, as in ``{"relationship": [("Husband", "Wife")]}``. They
            get the mean of their effects, weighted by their frequency.
            (default: :obj:`None`)
        ignore (sequence): Columns that do not count either, such as names and
            numbers of files. New samples need not have them. (default: :obj:`()`)
        proxies (bool): Whether to remove from the coordinates what predicts the
            sensitive columns, linearly and in the samples of the fit; there are then
            fewer coordinates. (default: :obj:`False`)
        outputs (str, optional): What the model gives: ``"probabilities"`` or
            ``"values"`` of any size. (default: probabilities if all that are seen
            could be some)
        num_background (int): Samples over which effects are averaged.
            (default: :obj:`400`)
        num_grid (int): Numbers of a column at which its effect is measured; it
            is linear between them and constant beyond. (default: :obj:`32`)
        eps (float, optional): Distance that probabilities are kept from 0 and 1, which
            have no log-odds. (default: half of what those keep that are neither, and
            at least 1e-6)
        random_state (int, optional): Draws the background. (default: :obj:`0`)

    Attributes:
        unit_ (str): What a distance of one means: ``"log-odds"``,
            ``"log-probability"`` (more than two classes), ``"output"`` (values),
            ``"standard deviations"``, ``"units"`` or, combined, ``"spreads"``: the root
            of the mean squared distance to the mean.
        surrogate_score_ (float, optional): Share of the variance of ``y_hat`` that the
            surrogate explains, for samples it has not seen.
        feature_names_in_ (numpy.ndarray): Columns of the fit.
        n_features_in_ (int): Their number.

    Frames are of pandas or polars. Columns may hold numbers, dates (as numbers of
    days), truth values, text and categories, and missing values, which count as a value
    of their own. Several classes give one coordinate each per column: centered
    log-probabilities. Parameters follow scikit-learn's conventions, so its ``clone``
    works. No method but ``fit`` changes the object.

    Example:
        >>> import pandas
        >>> df = pandas.DataFrame({
        ...     "income": [20.0, 30.0, 40.0, 50.0],
        ...     "job": ["clerk", "clerk", "nurse", None],
        ...     "sex": ["f", "m", "f", "m"],
        ... })
        >>> def predict(df):  # log-odds of 0.1 per unit of income, 0.5 for men
        ...     score = 0.1 * df["income"] + 0.5 * (df["sex"] == "m") - 4
        ...     return 1 / (1 + (-score).map(math.exp))
        >>> import math
        >>> table = FairTable(sensitive=["sex"]).fit(df, predict)
        >>> table.transform(df)
        tensor([[-1.5000,  0.0000],
                [-0.5000,  0.0000],
                [ 0.5000,  0.0000],
                [ 1.5000,  0.0000]], dtype=torch.float64)
        >>> table.unit_
        'log-odds'
    """

    feature_names_in_: NDArray[np.object_]
    unit_: str
    surrogate_score_: float | None

    #: What messages call the frame: the argument of whoever fits the table.
    frame_name: str = "df"

    _columns: tuple[Scaled, ...] | None = None
    _erasure: Erasure | None = None

    def __init__(
        self,
        sensitive: Sequence[Any] | None = (),
        *,
        scale: Scale | Mapping[Any, float] = "effect",
        equivalent: Mapping[Any, Sequence[Sequence[Any]]] | None = None,
        ignore: Sequence[Any] = (),
        proxies: bool = False,
        outputs: Outputs | None = None,
        num_background: int = 400,
        num_grid: int = 32,
        eps: float | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.sensitive = sensitive
        self.scale = scale
        self.equivalent = equivalent
        self.ignore = ignore
        self.proxies = proxies
        self.outputs = outputs
        self.num_background = num_background
        self.num_grid = num_grid
        self.eps = eps
        self.random_state = random_state
        self._check_params()

    def fit(
        self,
        df: Any,
        predict: Callable[[Any], Any] | None = None,
        *,
        y_hat: Any = None,
    ) -> "FairTable":
        """Finds the scale of every column.

        Args:
            df (DataFrame): Samples, a row each, with all columns that the model takes.
            predict (callable, optional): The model, from such a frame to its outputs:
                probabilities or values :math:`(N)`, or a column per class or output.
                (default: :obj:`None`)
            y_hat (array-like, optional): Where there is no model, its outputs for
                ``df``. Effects are then those of boosted trees fitted to them.
                (default: :obj:`None`)

        Scales by effect, and ``"combined"``, need one of the two; others use none.
        By these, a :class:`~pyg_glif.errors.SimilarityWarning` names a column that
        makes up 95% or more of the variance beside two or more others.
        """
        names, columns, groups = self._read(df)
        unit, score = "standard deviations", None
        units: Mapping[Any, float] = {}
        if isinstance(self.scale, Mapping):
            unit, units = "units", self.scale
        scaled: list[Scaled] = []
        if not isinstance(self.scale, Mapping) and self.scale in _HOW:
            unit, scaled, score = self._by_effect(df, columns, groups, predict, y_hat)
        if self.scale not in ("effect", "conditional"):
            standard = [
                in_units(one, units.get(one.name), groups.get(one.name, []))
                for one in columns
            ]
            if self.scale == "combined":
                unit, scaled = "spreads", _combined(columns, scaled, standard)
            else:
                scaled = standard
        parts = _parts(columns, scaled)
        variances = _variances(parts)
        if not variances.any():
            msg = "All samples have the same coordinates: no column that counts matters"
            warn_caller(msg, SimilarityWarning)
        shares = variances / (variances.sum() or 1.0)
        erasure = None
        if self.proxies and variances.any():
            erasure = self._without_proxies(df, np.hstack(parts))
        described = [
            one.described(column, groups.get(one.name, []), float(share))
            for one, column, share in zip(scaled, columns, shares, strict=True)
        ]
        # All at once, so that a fit that fails leaves the one before.
        self._columns, self._erasure = tuple(described), erasure
        self._names, self._fit_params = names, self.get_params()
        self.unit_, self.surrogate_score_ = unit, score
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def check(self, df: Any) -> None:
        """Raises what :meth:`fit` would raise on these samples, whatever the model.

        Args:
            df (DataFrame): Samples, a row each.
        """
        self._read(df)

    def transform(self, df: Any) -> Tensor:
        """Coordinates of samples, float64, :math:`(N, D)`.

        Columns are matched by name, in any order; sensitive and ignored ones may be
        absent. A category that the fit has not seen, or a missing value where it saw
        none, has the mean effect (no coordinate, if one-hot), with a warning.

        Args:
            df (DataFrame): Samples, a row each.
        """
        readings = self._readings("transform", df)
        unseen = [
            f"{_values(one.unseen)} in {name!r}"
            for name, one in readings.items()
            if one.unseen
        ]
        if unseen:
            msg = f"'{self.frame_name}' has values that the fit has not seen"
            msg = f"{msg}: {'; '.join(unseen)}"
            warn_caller(f"{msg}. They count as average")
        z = np.hstack([one.table for one in readings.values()])
        return torch.from_numpy(z if self._erasure is None else self._erasure(z))

    def fit_transform(
        self, df: Any, predict: Callable[[Any], Any] | None = None, *, y_hat: Any = None
    ) -> Tensor:
        """Fits, and returns the coordinates of the samples of the fit."""
        return self.fit(df, predict, y_hat=y_hat).transform(df)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """What the coordinates are called; ``input_features`` is for scikit-learn."""
        columns = self._require_fit("get_feature_names_out")
        return np.array([name for one in columns for name in one.labels], dtype=object)

    def summary(self, df: Any = None) -> TableSummary:
        """Scale, reach and share of every column.

        Args:
            df (DataFrame, optional): New samples, whose missing and unseen values are
                counted in place of those of the fit. (default: :obj:`None`)
        """
        columns = {one.name: one for one in self._require_fit("summary")}
        readings = {} if df is None else self._readings("summary", df)
        out = []
        for name in self._names:
            if name not in columns:
                sensitive = name in (self._fit_params["sensitive"] or ())
                kind = "sensitive" if sensitive else "ignored"
                out.append(ColumnSummary(str(name), kind, "left out"))
                continue
            one = columns[name]
            found = ScaledColumn(one.table, [], one.num_missing)
            found = readings.get(name, found)
            out.append(
                ColumnSummary(
                    column=str(name),
                    kind=one.kind,
                    scaled_by=one.how,
                    reach=one.reach,
                    share=one.share,
                    missing=found.num_missing,
                    unseen=tuple(found.unseen),
                    note=one.note,
                )
            )
        removed = None if self._erasure is None else self._erasure.share
        return TableSummary(self.unit_, tuple(out), self.surrogate_score_, removed)

    def to_config(self) -> dict[str, Any]:
        """The fit as plain data, as JSON has it."""
        columns = self._require_fit("to_config")
        params = dict(self._fit_params)
        for name in ("sensitive", "ignore"):
            given = params[name] or ()
            params[name] = [one for one in self._names if one in given]
        # As pairs, because names may be numbers, which no key of JSON can be.
        if isinstance(params["scale"], Mapping):
            units = params["scale"]
            params["scale"] = [[one.name, float(units[one.name])] for one in columns]
        if params["equivalent"] is not None:
            params["equivalent"] = [
                [
                    name,
                    [
                        [plain_value(v) for v in group]
                        for group in params["equivalent"][name]
                    ],
                ]
                for name in self._names
                if name in params["equivalent"]
            ]
        return {
            "version": _VERSION,
            "params": params,
            "names": list(self._names),
            "unit": self.unit_,
            "surrogate_score": self.surrogate_score_,
            "columns": [one.to_config() for one in columns],
            "erasure": None if self._erasure is None else self._erasure.to_config(),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "FairTable":
        """The fitted table that :meth:`to_config` described.

        Raises :class:`ValueError` on anything that :meth:`to_config` does not return.
        """
        version = config.get("version") if isinstance(config, Mapping) else None
        if version != _VERSION:
            msg = f"'config' must be of version {_VERSION}, as 'to_config' writes it"
            raise ValueError(f"{msg} (got {version!r})")
        try:
            out = cls._of_config(config)
            if not is_subset(dict(config), out.to_config()):
                raise ValueError("another description of the table that it describes")
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            msg = "'config' must be what 'FairTable.to_config' returns"
            raise ValueError(f"{msg} (got {error})") from error
        return out

    @classmethod
    def _of_config(cls, config: Mapping[str, Any]) -> "FairTable":
        """The table of a description, whose parts check what they are given."""
        params = _tuples(config["params"])
        for name in ("scale", "equivalent"):
            if isinstance(params[name], tuple):
                params[name] = dict(params[name])
        out = cls(**params)
        out._fit_params = out.get_params()
        out._columns = tuple(map(Scaled.from_config, config["columns"]))
        out._names = _tuples(config["names"])
        left_out = {*(out.sensitive or ()), *out.ignore}
        check_known("sensitive", left_out, out._names)
        counted = [name for name in out._names if name not in left_out]
        if not counted or counted != [one.name for one in out._columns]:
            raise ValueError(f"'columns' must be {counted}")
        if len({*out._names}) < len(out._names):
            raise ValueError("'names' must be different")
        out.unit_ = config["unit"]
        check_kind("unit", out.unit_, str)
        out.surrogate_score_ = config["surrogate_score"]
        if out.surrogate_score_ is not None:
            check_scalar("surrogate_score", out.surrogate_score_)
        if config["erasure"] is not None:
            out._erasure = Erasure.from_config(config["erasure"])
            width = sum(len(one.labels) for one in out._columns)
            check_array("mean", out._erasure.mean, (width,))
        if (out._erasure is None) == bool(out.proxies):
            raise ValueError("'erasure' must be given if and only if 'proxies' is")
        out.n_features_in_ = len(out._names)
        out.feature_names_in_ = np.array(out._names, dtype=object)
        return out

    @property
    def _sensitive(self) -> Sequence[Any]:
        """The sensitive columns, of which there may be none."""
        return () if self.sensitive is None else self.sensitive

    def _check_params(self) -> None:
        """Raises on parameters that no data can make right."""
        for name in ("sensitive", "ignore"):
            value = self._sensitive if name == "sensitive" else self.ignore
            if isinstance(value, str) or not isinstance(value, Iterable):
                msg = f"'{name}' must be a sequence of columns (got {value!r})"
                raise TypeError(f"{msg}. Use '[{value!r}]'")
        if isinstance(self.scale, Mapping):
            for column, unit in self.scale.items():
                check_scalar(f"scale[{column!r}]", unit, above=0)
        else:
            check_choice("scale", self.scale, _SCALES)
        if self.equivalent is not None and not isinstance(self.equivalent, Mapping):
            msg = "'equivalent' must be a dictionary of columns"
            raise TypeError(f"{msg} (got {type(self.equivalent).__name__})")
        check_choice("outputs", self.outputs, (None, "probabilities", "values"))
        check_count("num_background", self.num_background)
        check_count("num_grid", self.num_grid, minimum=2)
        if self.eps is not None:
            check_scalar("eps", self.eps, above=0, below=0.5)
        if self.random_state is not None:
            check_count("random_state", self.random_state, minimum=0)
        if self.proxies and not len(self._sensitive):
            msg = "'sensitive' must name a column with 'proxies=True' (got none)"
            raise ValueError(msg)

    def _read(
        self, df: Any
    ) -> tuple[tuple[Any, ...], list[Column], dict[Any, list[list[int]]]]:
        """All names, the columns that count, and categories that are equivalent."""
        names = frame_names(df, called=self.frame_name)
        check_known("sensitive", self._sensitive, names)
        check_known("ignore", self.ignore, names)
        counted = [n for n in names if n not in {*self._sensitive, *self.ignore}]
        if not counted:
            msg = "'sensitive' and 'ignore' must leave a column that counts"
            raise ValueError(f"{msg} (got all {len(names)})")
        columns = read_columns(df, counted, self.frame_name)
        if all(one.is_constant() for one in columns):
            msg = f"'{self.frame_name}' must have a column that counts and that varies"
            raise ValueError(f"{msg} (got {listed(counted)}, all constant)")
        if isinstance(self.scale, Mapping):
            check_known("scale", self.scale, counted)
            without = [name for name in counted if name not in self.scale]
            if without:
                got = f"none for {listed(without)}"
                msg = f"'scale' must give every column a unit (got {got})"
                raise ValueError(f"{msg}. {REMEDY}")
        return names, columns, equivalent_positions(self.equivalent or {}, columns)

    def _readings(self, method: str, df: Any) -> dict[Any, ScaledColumn]:
        """The columns of new samples; one message names all that cannot be read."""
        columns = self._require_fit(method)
        # Left out are those of the fit, whatever parameters are now.
        left_out = {*self._names} - {one.name for one in columns}
        names = frame_names(df, empty=True, called=self.frame_name)
        given = [name for name in names if name not in left_out]
        column_order(self.frame_name, given, [one.name for one in columns])
        out, bad, infinite = {}, [], []
        for one in columns:
            try:
                out[one.name] = one(df)
            except TypeError as error:
                bad.append(str(error))
            except ValueError as error:
                infinite.append(str(error))
        if bad:
            msg = f"'{self.frame_name}' must have columns of the same kinds as the fit"
            raise TypeError(f"{msg} (got {', '.join(bad)})")
        if infinite:
            got = ", ".join(infinite)
            raise ValueError(
                f"'{self.frame_name}' must hold finite numbers (got {got})"
            )
        return out

    def _require_fit(self, method: str) -> tuple[Scaled, ...]:
        """The scaled columns; raises :class:`NotFittedError` without a fit."""
        if self._columns is None:
            msg = f"'{type(self).__name__}.{method}' needs a fit. Call 'fit' first"
            raise NotFittedError(msg)
        return self._columns

    def _by_effect(
        self,
        df: Any,
        columns: Sequence[Column],
        groups: Mapping[Any, list[list[int]]],
        predict: Callable[[Any], Any] | None,
        y_hat: Any,
    ) -> tuple[str, list[Scaled], float | None]:
        """The unit of effects, columns by their effects, the surrogate's score."""
        from sklearn.utils import check_random_state

        check_exclusive("predict", predict, "y_hat", y_hat)
        conditional = self.scale == "conditional"
        random = check_random_state(self.random_state)
        size = min(self.num_background, len(df))
        background = np.sort(random.choice(len(df), size, replace=False))
        seen = list(columns)
        if conditional or y_hat is not None:
            others = [n for n in self._sensitive if n not in self.ignore]
            seen += read_columns(df, others, self.frame_name)
        source: Source
        if y_hat is not None:
            source = Surrogate(seen, y_hat, self.outputs, self.eps, random)
        elif predict is not None:
            source = Source(df, predict, background, self.outputs, self.eps)
        else:
            msg = f"'predict' or 'y_hat' must be given with 'scale={self.scale!r}'"
            raise ValueError(f"{msg}. Without a model use 'scale=\"standard\"'")
        per_step = max(1, self.num_background // 2)
        inquiries = []
        for column in columns:
            grid = EffectGrid.of(column, self.num_grid)
            others = [one for one in seen if one is not column]
            inquiries.append(
                accumulated_local_effects(grid, others, per_step, random)
                if conditional
                else partial_dependence(grid, background)
            )
        how = _HOW[str(self.scale)]
        scaled = [
            by_effect(one.grid, how, effects, groups.get(one.grid.column.name, []))
            for one, effects in zip(inquiries, measured(inquiries, source), strict=True)
        ]
        variances = _variances(_parts(columns, scaled))
        _check_shares([one.name for one in columns], variances)
        return source.unit.name, scaled, source.score

    def _without_proxies(self, df: Any, z: NDArray[np.float64]) -> Erasure:
        """The map that removes what predicts the sensitive columns."""
        columns = read_columns(df, self._sensitive, self.frame_name)
        attributes = [in_units(one, None, []).of_fit(one) for one in columns]
        return Erasure.of(z, np.hstack(attributes))


def _parts(
    columns: Sequence[Column], scaled: Sequence[Scaled]
) -> list[NDArray[np.float64]]:
    """Coordinates of the samples of the fit, a part per column."""
    return [one.of_fit(column) for one, column in zip(scaled, columns, strict=True)]


def _variances(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Total variance of each part."""
    return np.array([part.var(axis=0).sum() for part in parts])


def _combined(
    columns: Sequence[Column], effects: Sequence[Scaled], standard: Sequence[Scaled]
) -> list[Scaled]:
    """Columns by effect and by spread; a model without effects leaves the spread."""
    of_effects, of_spread = (
        float(_variances(_parts(columns, scaled)).sum())
        for scaled in (effects, standard)
    )
    factors = (
        _EFFECT_SPREAD / of_effects**0.5 if of_effects > 0 else 0.0,
        1.0 / of_spread**0.5,
    )
    return [
        combined(effect, spread, factors)
        for effect, spread in zip(effects, standard, strict=True)
    ]


def _check_shares(names: Sequence[Any], variances: NDArray[np.float64]) -> None:
    """Warns if one of several columns makes up nearly all of the effects."""
    total = variances.sum()
    if len(names) >= _FEWEST_COLUMNS and variances.max() >= _DOMINANT * total > 0:
        name, share = names[int(variances.argmax())], variances.max() / total
        msg = f"{name!r} makes up {share:.0%} of the effects on the model"
        remedy = "If it gives the outcome away, train the model without it"
        msg = f"{msg}, the other {len(names) - 1} columns hardly count. {remedy}"
        warn_caller(msg, SimilarityWarning)


def _values(values: Sequence[Any]) -> str:
    """Unseen values for a message, the first few of many."""
    shown = ["a missing value" if v is None else repr(v) for v in values[:_NUM_SHOWN]]
    more = len(values) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more else shown)


def _tuples(value: Any) -> Any:
    """Plain data with tuples for lists, as names of columns may be."""
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
