"""Fair distances with coordinates that matter for the task."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from pyg_glif._utils.arrays import column_names, to_labels, to_tensor
from pyg_glif._utils.validation import (
    check_callable,
    check_choice,
    check_count,
    check_embedding,
    check_features,
    check_labels,
    check_not_empty,
    check_outputs,
    check_rank,
    check_same_rows,
    check_scalar,
)
from pyg_glif.distances import Euclidean, FairDistance, TaskDistance
from pyg_glif.metric_learning._base import (
    column_means,
    row_chunks,
    scatter_matrix,
)
from pyg_glif.metric_learning._softmax_regression import Design
from pyg_glif.metric_learning.logistic_subspace import (
    LogisticFit,
    check_varies,
    fit_labels,
)

#: Kind of ``y``: classes, or quantities.
Task: TypeAlias = Literal["classification", "regression"]
# More different whole numbers than this could be classes as well as quantities.
_MANY = 50
# Closest that a probability comes to 0 and 1: log-odds of 13.8.
_EPS = 1e-6


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The linear regression of :class:`TaskEffect`, as ``fit_result``.

    Args:
        coefficients (torch.Tensor): One row per column of ``y``, in float64.
        intercepts (torch.Tensor): One entry per row of ``coefficients``.
        r_squared (float): Share of the variance of ``y`` that is explained. If it is
            near zero, the fair coordinates hardly predict the task.
    """

    coefficients: Tensor = field(repr=False)
    intercepts: Tensor = field(repr=False)
    r_squared: float


@dataclass(frozen=True)
class LogOdds:
    r"""Probabilities as log-odds, or, of more than two classes, as centred logarithms.

    .. math::
        \log \frac{p_1}{p_0} \qquad \text{or} \qquad
        \log p_k - \frac{1}{K} \sum_{l} \log p_l

    Args:
        predict (callable): Gives probabilities of class 1, :math:`(N)` or
            :math:`(N, 1)`, or of all classes, :math:`(N, K)`.
    """

    predict: Callable[[Tensor], Any]

    def __call__(self, z: Tensor) -> Tensor:  # [N, D] -> [N, 1] or [N, K]
        """Scores of fair coordinates."""
        prob = self.predict(z)
        prob = prob if isinstance(prob, Tensor) else to_tensor("predict(z)", prob)
        check_rank("predict(z)", prob, 1, 2)
        prob = prob.reshape(len(prob), -1).to(z)
        outside = (prob.detach() < 0) | (prob.detach() > 1) | prob.detach().isnan()
        if bool(outside.any()):
            msg = "'predict(z)' must hold probabilities"
            got = float(prob.detach()[outside][0])
            remedy = 'Use task="regression" for other outputs'
            raise ValueError(f"{msg} (got {got:g}). {remedy}")
        if prob.size(1) == 1:
            return prob.logit(eps=_EPS)
        score = prob.clamp(min=_EPS).log()
        if score.size(1) == 2:
            return score[:, 1:] - score[:, :1]
        return score - score.mean(dim=1, keepdim=True)


@dataclass(frozen=True)
class TaskEffect:
    r"""Adds the effect on the task to a fair distance.

    An encoder may place texts of opposite meaning side by side, and columns of a table
    are scaled by their spread, not by their effect. Joining such samples destroys
    accuracy as the radius grows. Here a model :math:`g` is trained on the **fair
    coordinates only**, and its output becomes a coordinate too:

    .. math::
        \phi(\mathbf{x}) = \big[\, \phi_0(\mathbf{x}), \;
        w \, g(\phi_0(\mathbf{x})) \,\big]

    Two classes: :math:`g` is the log-odds of the larger one, one coordinate. More
    classes: centred log-probabilities, one each. Regression: the output. So a
    difference of one in the log-odds (or of one unit of ``y``) counts as ``weight``
    units of ``distance``, and samples whose scores differ by more than
    ``tau / weight`` are never neighbors within ``tau``.

    As :math:`g` sees nothing but :math:`\phi_0`, nothing that ``distance`` ignores
    comes back: samples at distance zero stay at distance zero, ``null_space`` is
    unchanged, and no pair gets nearer than it was
    (:class:`~pyg_glif.distances.TaskDistance`). What is left of a protected attribute
    in the fair coordinates may still show in :math:`g`, as it does in them.

    Args:
        distance (FairDistance, optional): Gives the fair coordinates, such as one
            that :class:`FACE` learned. (default: :obj:`None`, Euclidean)
        weight (float, optional): Weight :math:`w \ge 0`; choose it on validation data,
            see :meth:`~pyg_glif.distances.TaskDistance.with_weight`.
            (default: :obj:`1.0`)
        predict (callable, optional): In place of the linear model, any function from
            fair coordinates :math:`(N, D)` to probabilities (of class 1, or of all
            classes) or, for regression, outputs. Train it on fair coordinates; its
            output for a row must not depend on other rows. Probabilities are kept a
            millionth away from 0 and 1. Such a distance cannot be saved.
            (default: :obj:`None`)
        task (str, optional): ``"classification"`` or ``"regression"``; by default
            ``y`` tells: fractions mean regression; truth values, text and whole
            numbers with up to 50 different values are classes. More
            different values are ambiguous: pass ``task``. (default: :obj:`None`)
        ridge (float, optional): Penalty :math:`\alpha > 0` on the linear model's
            squared coefficients, :math:`\alpha / 2` times their sum, beside the sum of
            negative log-likelihoods or of halved squared errors: scikit-learn's
            ``1 / C`` and ``alpha``. Larger values shrink differences in log-odds.
            (default: :obj:`1.0`)
        rtol (float, optional): The gradient of the softmax regression must fall to this
            share of its value without features. (default: :obj:`1e-6`)
        max_iter (int, optional): Largest number of its iterations.
            (default: :obj:`500`)
        throw (bool, optional): If :obj:`True`, failure to converge raises
            :class:`~pyg_glif.errors.ConvergenceError`, otherwise it warns.
            (default: :obj:`True`)
        chunk_size (int, optional): Rows read at a time; it does not change the result.
            (default: :obj:`1024`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)

    Shapes:
        - **x:** features :math:`(N, F)`
        - **y:** classes :math:`(N)`, or quantities :math:`(N)` or :math:`(N, R)`

    ``fit_result`` of the distance is a :class:`LogisticFit` or a :class:`LinearFit`;
    with ``predict`` it is :obj:`None`.

    Example:
        >>> x = torch.tensor([[0.0, 9.0], [1.0, -9.0], [2.0, 9.0], [3.0, -9.0]])
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> blind = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> learner = TaskEffect(blind, weight=2.0)
        >>> distance = learner.fit(x, ["rejected", "rejected", "hired", "hired"])
        >>> distance
        TaskDistance(
          weight=2
          (distance): SensitiveSubspace(num_features=2, rank=1)
          (head): Linear(in_features=1, out_features=1, bias=True)
        )
        >>> blind(x, x)[0]
        tensor([0., 1., 2., 3.])
        >>> distance(x, x)[0].round(decimals=1)
        tensor([0.0000, 2.2000, 4.3000, 6.5000])
        >>> twin = torch.tensor([[0.0, -9.0]])  # differs in what is ignored
        >>> distance(x[:1], twin)
        tensor([[0.]])
    """

    distance: FairDistance | None = None
    _: KW_ONLY
    weight: float = 1.0
    predict: Callable[[Tensor], Any] | None = None
    task: Task | None = None
    ridge: float = 1.0
    rtol: float = 1e-6
    max_iter: int = 500
    throw: bool = True
    chunk_size: int = 1024
    # Display is no part of the learner.
    progress: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.distance is not None:
            check_embedding("distance", self.distance)
        check_scalar("weight", self.weight, minimum=0)
        if self.predict is not None:
            check_callable("predict", self.predict)
        check_choice("task", self.task, (None, "classification", "regression"))
        check_scalar("ridge", self.ridge, above=0)
        check_scalar("rtol", self.rtol, above=0)
        check_count("max_iter", self.max_iter)
        check_count("chunk_size", self.chunk_size)

    def fit(self, x: Any, y: Any) -> TaskDistance:
        r"""Returns the distance with the coordinates of a model of ``y``.

        Args:
            x (torch.Tensor or array): Features :math:`(N, F)`, not those of the
                samples that will be smoothed: the model remembers their ``y``.
            y (torch.Tensor or array): Target of the model of the task: classes
                of any kind, or quantities. With ``predict``, only which of the two.
        """
        base = Euclidean() if self.distance is None else self.distance
        names = base.feature_names or column_names("x", x)
        x = check_features("x", x, base).detach()
        check_not_empty("x", x)
        task = _task_of(y) if self.task is None else self.task
        if task == "classification":
            target = _column(to_labels("y", y))
            target = check_labels("y", target, len(x)).to(x.device)
        else:
            target = check_outputs("y", to_tensor("y", y)).to(x.device)
            check_same_rows("y", target, "x", x)
        if self.predict is not None:
            head = LogOdds(self.predict) if task == "classification" else self.predict
            distance = TaskDistance(base, head, weight=self.weight)
            distance.embed(x)  # an answer of the wrong shape shows here
            distance.feature_names = names
            return distance
        with torch.no_grad():
            z = base.embed(x)
        check_varies("x", z.amax(dim=0) - z.amin(dim=0))
        regress = self._labels if task == "classification" else self._quantities
        fitted = regress(z, target)
        distance = TaskDistance(base, _linear(fitted, x.dtype), weight=self.weight)
        distance.fit_result, distance.feature_names = fitted, names
        return distance

    def _labels(self, z: Tensor, label: Tensor) -> LogisticFit:
        """Softmax regression."""
        everything = z.new_ones(z.size(1), dtype=torch.float64)
        design = Design.of(z, everything, self.ridge, self.chunk_size)
        return fit_labels(self, design, "y", label)

    def _quantities(self, z: Tensor, y: Tensor) -> LinearFit:
        """Ridge regression, in closed form."""
        y = y.double().reshape(len(y), -1)
        y_mean, z_mean = y.mean(dim=0), column_means(z, self.chunk_size)
        total = float((y - y_mean).square().sum())
        if total == 0:
            got = y_mean.tolist()
            raise ValueError(f"'y' must take at least two values (got {got} only)")
        gram = scatter_matrix(z, self.chunk_size, z_mean)
        gram.diagonal().add_(self.ridge)
        cross = gram.new_zeros(z.size(1), y.size(1))
        for rows in row_chunks(len(z), self.chunk_size):
            cross.addmm_((z[rows].double() - z_mean).T, y[rows] - y_mean)
        # To unit diagonal, or columns in small units would drown in rounding.
        size = gram.diagonal().rsqrt()[:, None]
        weight = size * torch.linalg.solve(gram * size * size.T, size * cross)
        # With gram @ weight = cross the squared errors add up to the total less this.
        explained = weight.mul(cross + self.ridge * weight).sum()
        bias = y_mean - z_mean @ weight
        return LinearFit(weight.T.contiguous(), bias, float(explained) / total)


def _task_of(y: Any) -> Task:
    """Whether these are classes or quantities, if that is certain."""
    try:
        label = to_labels("y", y)
    except TypeError:  # fractions
        return "regression"
    num = len(label.unique())
    if num > _MANY:
        msg = f"'y' must have at most {_MANY} different values to be taken for classes"
        remedy = 'Say task="classification" or task="regression"'
        raise ValueError(f"{msg} (got {num}). {remedy}")
    return "classification"


def _column(value: Tensor) -> Tensor:
    """The only column of a frame, other values as they are."""
    return value.squeeze(1) if value.dim() == 2 else value


def _linear(fitted: LogisticFit | LinearFit, dtype: torch.dtype) -> nn.Linear:
    """A regression as a layer that is not trained any more."""
    num_scores, width = fitted.coefficients.shape
    head = nn.Linear(width, num_scores, device="meta")
    state = {"weight": fitted.coefficients, "bias": fitted.intercepts}
    state = {name: tensor.to(dtype) for name, tensor in state.items()}
    head.load_state_dict(state, assign=True)
    return head.requires_grad_(False)
