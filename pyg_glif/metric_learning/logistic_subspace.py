"""Directions that predict protected attributes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.validation import (
    as_labels,
    check_count,
    check_integer,
    check_not_empty,
    check_rank,
    check_scalar,
    check_subspace_rank,
    check_two_values,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.metric_learning._base import features, labels
from pyg_glif.metric_learning._softmax_regression import Design, SoftmaxRegression

if TYPE_CHECKING:
    from pyg_glif.metric_learning.task_effect import TaskEffect

# Directions of two attributes that agree this closely count as one: male and
# female, coded as two columns, have opposite coefficients up to the solver's error.
_SPAN_RTOL = 1e-4


@dataclass(frozen=True, eq=False)
class LogisticFit:
    r"""One logistic regression of :class:`LogisticSubspace` or :class:`TaskEffect`.

    The ``fit_result`` of the former's distance is a tuple with one of these per
    attribute, that of the latter's is one, of the classes in ``y``.

    Args:
        classes (tuple): Values of the attribute, ascending.
        coefficients (torch.Tensor): One row for a binary attribute, its log-odds of
            the larger value; else one row per class, summing to zero. Float64.
        intercepts (torch.Tensor): One entry per row of ``coefficients``.
        accuracy (float): Share of the rows whose attribute is predicted.
        majority (float): Share of the commonest value. If ``accuracy`` is not above
            it, the features hardly tell, and the directions are mostly noise.
        log_likelihood (float): Mean log-likelihood of a row.
        residual (float): Gradient norm at the end, relative to the start.
        num_iter (int): Iterations spent.
        converged (bool): Whether ``residual`` met the tolerance.
    """

    classes: tuple[int, ...]
    coefficients: Tensor = field(repr=False)
    intercepts: Tensor = field(repr=False)
    accuracy: float
    majority: float
    log_likelihood: float
    residual: float
    num_iter: int
    converged: bool

    @property
    def directions(self) -> Tensor:
        """Rows that span the directions of the regression, one less than classes."""
        if len(self.classes) == 2:
            return self.coefficients
        return self.coefficients[1:] - self.coefficients[0]


@dataclass(frozen=True)
class LogisticSubspace:
    r"""Ignores the directions that predict protected attributes.

    The metric of `Yurochkin et al., 2020 <https://arxiv.org/abs/1907.00020>`_,
    appendix B.1. For each attribute :math:`k` a logistic regression is fitted, or
    a softmax regression if it has more than two values,

    .. math::
        \min_{\mathbf{A}, \mathbf{b}} \; - \sum_{i=1}^{N}
        \log \operatorname{softmax} (\mathbf{A} \mathbf{x}_i + \mathbf{b})_{k_i}
        + \frac{\alpha}{2} \| \mathbf{A} \|_F^2 ,

    and the distance is Euclidean on the complement of the span of all coefficients.

    Args:
        ridge (float, optional): Penalty :math:`\alpha > 0` on coefficients, not on
            intercepts; scikit-learn's ``1 / C``. (default: :obj:`1.0`)
        protected_columns (tuple, optional): Columns of ``x`` that hold protected
            attributes themselves. The regressions do not see them, and they are
            ignored too, as one direction each. (default: :obj:`()`)
        rtol (float, optional): The gradient must fall to this share of its value
            without features. (default: :obj:`1e-6`)
        max_iter (int, optional): Largest number of iterations per attribute.
            (default: :obj:`500`)
        throw (bool, optional): If :obj:`True`, failure to converge raises
            :class:`~pyg_glif.errors.ConvergenceError`, otherwise it warns.
            (default: :obj:`True`)
        chunk_size (int, optional): Rows read at a time; it bounds memory and does
            not change the result. (default: :obj:`1024`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)

    Shapes:
        - **x:** features :math:`(N, F)`
        - **attributes:** :math:`(N)` or :math:`(N, A)`

    A binary attribute gives one direction, one with :math:`K` values :math:`K - 1`.
    Solved by L-BFGS in float64, on centred features and in coordinates where the
    curvature is at most 1, so that neither offsets nor units of the columns matter to
    the solver. (Units do matter to the penalty.) ``fit_result`` of the distance is a
    tuple of :class:`LogisticFit`.

    inFairness' ``LogisticRegSensitiveSubspace`` takes binary attributes only and
    penalises absolute values (and intercepts); that solution is not unique when
    columns are collinear, as one-hot columns are. As the number of rows grows both
    penalties fade and the directions agree.

    Example:
        >>> x = torch.tensor([[0.0, 5.0], [1.0, 3.0], [4.0, 3.0], [5.0, 5.0]])
        >>> distance = LogisticSubspace().fit(x, torch.tensor([0, 0, 1, 1]))
        >>> distance.basis.abs().round(decimals=2) + 0.0
        tensor([[1., 0.]])
        >>> distance.fit_result[0].accuracy
        1.0
        >>> with_column = LogisticSubspace(protected_columns=(0,))
        >>> three = torch.tensor([[0.0, 1.0, 5.0], [0.0, 2.0, 4.0], [1.0, 4.0, 4.0]])
        >>> with_column.fit(three, three[:, 0].long())
        SensitiveSubspace(num_features=3, rank=2)
    """

    ridge: float = 1.0
    protected_columns: tuple[int, ...] = ()
    rtol: float = 1e-6
    max_iter: int = 500
    throw: bool = True
    chunk_size: int = 1024
    # Display is no part of the learner.
    progress: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scalar("ridge", self.ridge, above=0)
        check_scalar("rtol", self.rtol, above=0)
        check_count("max_iter", self.max_iter)
        check_count("chunk_size", self.chunk_size)

    def fit(self, x: Any, attributes: Any) -> SensitiveSubspace:
        r"""Returns the distance that ignores directions that predict ``attributes``.

        Args:
            x (torch.Tensor or array): Features :math:`(N, F)`.
            attributes (torch.Tensor or array): Truth values or whole numbers, one per
                row, or one column per attribute. Text in an array is numbered in its
                sorted order.
        """
        names, x = column_names("x", x), features("x", x)
        check_not_empty("x", x)
        attributes = labels("attributes", attributes)
        attributes = _check_attributes("attributes", attributes, len(x)).to(x.device)
        _check_columns("protected_columns", self.protected_columns, x.size(1))
        protected = torch.eye(x.size(1), dtype=torch.float64, device=x.device)
        protected = protected[list(self.protected_columns)]
        mask = 1 - protected.sum(dim=0)
        check_varies("x", mask * (x.amax(dim=0) - x.amin(dim=0)))
        design = Design.of(x, mask, self.ridge, self.chunk_size)
        fits = tuple(
            fit_labels(self, design, f"attributes[:, {k}]", column)
            for k, column in enumerate(attributes.unbind(dim=1))
        )
        basis = torch.cat([*(fit.directions for fit in fits), protected])
        rank = int(torch.linalg.matrix_rank(normalize(basis), rtol=_SPAN_RTOL))
        check_subspace_rank("attributes", rank, x.size(1))
        distance = SensitiveSubspace(basis.to(x.dtype), rtol=_SPAN_RTOL)
        distance.fit_result = fits
        distance.feature_names = names
        return distance


def fit_labels(
    learner: "LogisticSubspace | TaskEffect", design: Design, name: str, values: Tensor
) -> LogisticFit:
    """Regresses labels on features, as the options of a learner say."""
    classes, label = values.unique(return_inverse=True)
    check_two_values(name, classes)
    regression = SoftmaxRegression(design, label, len(classes), learner.ridge)
    point, num_iter, residual = regression.minimize(
        learner.rtol, learner.max_iter, type(learner).__name__, learner.progress
    )
    if residual > learner.rtol:
        _give_up(learner, name, num_iter, residual)
    coefficients, intercepts = regression.coefficients(point)
    accuracy, log_likelihood = regression.score(point)
    return LogisticFit(
        classes=tuple(classes.tolist()),
        coefficients=coefficients,
        intercepts=intercepts,
        accuracy=accuracy,
        majority=float(label.bincount().max()) / len(label),
        log_likelihood=log_likelihood,
        residual=residual,
        num_iter=num_iter,
        converged=residual <= learner.rtol,
    )


def _give_up(
    learner: "LogisticSubspace | TaskEffect", name: str, num_iter: int, residual: float
) -> None:
    """Says by how much the tolerance was missed."""
    # Short of the limit, only rounding ends the iterations.
    remedy = "max_iter" if num_iter >= learner.max_iter else "rtol"
    msg = (
        f"{type(learner).__name__} stopped after {num_iter} iterations on '{name}': "
        f"relative gradient {residual:.1e}, 'rtol' is {learner.rtol:g}. "
        f"Raise '{remedy}' or 'ridge'"
    )
    if learner.throw:
        raise ConvergenceError(msg)
    warn_caller(msg, ConvergenceWarning)


def _check_columns(name: str, value: Iterable[int], num_features: int) -> None:
    """Raises unless these are different column numbers, and not all columns."""
    columns = list(value)
    for column in columns:
        check_count(name, column, minimum=0)
        if column >= num_features:
            msg = f"'{name}' must be below the number of features, {num_features}"
            raise ValueError(f"{msg} (got {column})")
    if len(set(columns)) < len(columns):
        raise ValueError(f"'{name}' must not repeat a column (got {columns})")
    if len(columns) == num_features:
        raise ValueError(
            f"'{name}' must not name every column (got all {num_features})"
        )


def check_varies(name: str, variances: Tensor) -> None:
    """Raises if every column is constant."""
    if not bool((variances > 0).any()):
        raise ValueError(
            f"'{name}' must have a column that varies (got constant columns only)"
        )


def _check_attributes(name: str, value: object, num_rows: int) -> Tensor:
    """Whole numbers or truth values, one column per attribute, ``[N, A]``."""
    value = as_labels(name, value)
    if value.dtype != torch.bool:
        check_integer(name, value)
    check_rank(name, value, 1, 2)
    if len(value) != num_rows or value.numel() == 0:
        msg = f"'{name}' must have one row per row of 'x'"
        raise ValueError(f"{msg} (got shape {tuple(value.shape)} for {num_rows})")
    return value.long().reshape(num_rows, -1)
