"""Logistic and softmax regression on more rows than fit in memory twice."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._runtime import Progress
from pyg_glif.metric_learning.base import column_means, row_chunks, scatter_matrix


@dataclass(frozen=True)
class Design:
    """Features, read a chunk at a time, and what is known about their columns."""

    x: Tensor  # [N, F]
    mask: Tensor  # [F], 0 at columns the regression must not see
    mean: Tensor  # [F]
    variances: Tensor  # [F], eigenvalues of the scatter matrix
    axes: Tensor  # [F, F], its eigenvectors, as columns
    chunk_size: int

    @classmethod
    def of(cls, x: Tensor, mask: Tensor, chunk_size: int) -> "Design":
        """Takes the moments in two passes."""
        mean = column_means(x, chunk_size)
        scatter = scatter_matrix(x, chunk_size, mean) * mask[:, None] * mask
        values, axes = torch.linalg.eigh(scatter)
        return cls(x, mask, mean, values.clamp_(min=0), axes, chunk_size)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for rows in row_chunks(len(self.x), self.chunk_size):
            yield rows, self.x[rows].double()


class SoftmaxRegression:
    r"""Ridge-penalised regression of labels on features.

    A binary label has one column of scores, the log-odds of class 1. The unknown is
    ``[F + 1, C]``, coefficients over intercepts, in coordinates in which the Hessian is
    at most the identity: it never exceeds :math:`\kappa \mathbf{X}^{\top} \mathbf{X} +
    \alpha \mathbf{I}` per column, with :math:`\kappa` 1/4 for one column of scores and
    1/2 for several (Boehning, 1992). A step of length 1 along the negative gradient
    therefore always goes downhill.
    """

    def __init__(
        self, design: Design, label: Tensor, num_classes: int, ridge: float
    ) -> None:
        self.design, self.label, self.ridge = design, label, ridge
        self.num_classes = num_classes
        bound = 0.25 if num_classes == 2 else 0.5
        self.scale = design.axes * (bound * design.variances + ridge).rsqrt()
        self.intercept_scale = (bound * len(label)) ** -0.5

    def start(self) -> Tensor:  # [F + 1, C]
        """No coefficients, and intercepts that reproduce the class frequencies."""
        log_count = self.label.bincount(minlength=self.num_classes).double().log()
        out = log_count.new_zeros(len(self.scale) + 1, len(log_count))
        out[-1] = (log_count - log_count.mean()) / self.intercept_scale
        return out[:, 1:] - out[:, :1] if self.num_classes == 2 else out

    def unpack(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``[F, C]`` and intercepts ``[C]`` of the features as given.

        The point refers to centred features, which keeps intercepts apart from
        coefficients. Centring is done here and not to the rows: it is a pass less.
        """
        weight = (self.scale @ point[:-1]) * self.design.mask[:, None]
        bias = point[-1] * self.intercept_scale
        return weight, bias - self.design.mean @ weight

    def log_prob(self, block: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Log-probabilities of all classes, ``[B, K]``."""
        scores = block @ weight + bias
        if self.num_classes == 2:
            scores = torch.nn.functional.pad(scores, (1, 0))
        return scores.log_softmax(dim=1)

    def __call__(self, point: Tensor) -> tuple[float, Tensor]:
        """Objective and gradient."""
        weight, bias = self.unpack(point)
        value = self.ridge / 2 * float(weight.square().sum())
        slope, bias_slope = self.ridge * weight, torch.zeros_like(bias)
        for rows, block in self.design:
            log_prob = self.log_prob(block, weight, bias)
            label = self.label[rows, None]
            value -= float(log_prob.gather(1, label).sum())
            error = log_prob.exp().scatter_add_(1, label, -torch.ones_like(log_prob))
            error = error[:, 1:] if self.num_classes == 2 else error
            slope.addmm_(block.T, error)
            bias_slope += error.sum(dim=0)
        slope -= torch.outer(self.design.mean, bias_slope)
        slope = self.scale.T @ (slope * self.design.mask[:, None])
        return value, torch.cat([slope, bias_slope[None] * self.intercept_scale])

    def minimize(self, rtol: float, max_iter: int) -> tuple[Tensor, int, float]:
        """The point reached, iterations spent, relative gradient norm."""
        return _lbfgs(self, self.start(), rtol, max_iter)

    def coefficients(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``[C, F]`` and intercepts ``[C]``."""
        weight, bias = self.unpack(point)
        if self.num_classes > 2:
            # Scores matter up to a common shift only; the penalty wants it zero.
            weight = weight - weight.mean(dim=1, keepdim=True)
            bias = bias - bias.mean()
        return weight.T.contiguous(), bias

    def score(self, point: Tensor) -> tuple[float, float]:
        """Accuracy and mean log-likelihood."""
        weight, bias = self.unpack(point)
        correct, total = 0, 0.0
        for rows, block in self.design:
            log_prob = self.log_prob(block, weight, bias)
            label = self.label[rows]
            correct += int((log_prob.argmax(dim=1) == label).sum())
            total += float(log_prob.gather(1, label[:, None]).sum())
        return correct / len(self.label), total / len(self.label)


_History = deque[tuple[Tensor, Tensor]]


def _lbfgs(
    function: SoftmaxRegression, point: Tensor, rtol: float, max_iter: int
) -> tuple[Tensor, int, float]:
    """Limited-memory BFGS with backtracking, for convex functions."""
    value, gradient = function(point)
    first = float(gradient.norm())
    history: _History = deque(maxlen=20)
    num_iter = 0
    with Progress(max_iter, "LogisticSubspace") as progress:
        while float(gradient.norm()) > rtol * first and num_iter < max_iter:
            direction = _descent_direction(gradient, history)
            slope = float((gradient * direction).sum())
            slack = 1e-12 * abs(value)  # rounding of the objective itself
            length = 1.0
            while True:
                new_point = point + length * direction
                new_value, new_gradient = function(new_point)
                if new_value <= value + 1e-4 * length * slope + slack:
                    break
                length /= 2
            move, change = new_point - point, new_gradient - gradient
            if float((move * change).sum()) > 0:  # else rounding, as f is convex
                history.append((move, change))
            point, value, gradient = new_point, new_value, new_gradient
            num_iter += 1
            progress.update()
    return point, num_iter, float(gradient.norm()) / first if first else 0.0


def _descent_direction(gradient: Tensor, history: _History) -> Tensor:
    """The two-loop recursion of L-BFGS."""
    out = -gradient
    steps = []
    for move, change in reversed(history):
        scale = 1 / float((move * change).sum())
        along = scale * float((move * out).sum())
        out = out - along * change
        steps.append((move, change, scale, along))
    for move, change, scale, along in reversed(steps):
        out = out + (along - scale * float((change * out).sum())) * move
    return out
