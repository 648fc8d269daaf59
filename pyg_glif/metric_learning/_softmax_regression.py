"""Logistic and softmax regression on more rows than fit in memory twice."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress
from pyg_glif.metric_learning._base import column_means, row_chunks, scatter_matrix


@dataclass(frozen=True)
class Design:
    """Centred features, read a chunk at a time, and coordinates that suit them.

    Centring costs a subtraction per chunk and keeps the scores exact: with features
    around a million, coefficients times features would cancel against the intercept
    and leave half of the digits.
    """

    x: Tensor  # [N, F]
    mask: Tensor  # [F], 0 at columns the regression must not see
    mean: Tensor  # [F]
    scale: Tensor  # [F, F], columns in which the Hessian is at most the identity
    chunk_size: int

    @classmethod
    def of(cls, x: Tensor, mask: Tensor, ridge: float, chunk_size: int) -> "Design":
        r"""Takes the moments in two passes.

        Per column of scores, the Hessian of a softmax regression never exceeds
        :math:`\frac12 \mathbf{X}^{\top} \mathbf{X} + \alpha \mathbf{I}` (Boehning,
        1992), and that of a logistic one is at most half of the first term.
        """
        mean = column_means(x, chunk_size)
        scatter = scatter_matrix(x, chunk_size, mean) * mask[:, None] * mask
        bound = 0.5 * scatter
        bound.diagonal().add_(ridge)
        # To unit diagonal first, or columns in small units would drown in the
        # rounding of those in large ones.
        size = bound.diagonal().rsqrt()
        values, axes = torch.linalg.eigh(bound * size[:, None] * size)
        limit = len(mask) * torch.finfo(torch.float64).eps
        scale = size[:, None] * axes * values.clamp_(min=limit).rsqrt()
        return cls(x, mask, mean, scale, chunk_size)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for rows in row_chunks(len(self.x), self.chunk_size):
            yield rows, self.x[rows].double() - self.mean


class SoftmaxRegression:
    r"""Ridge-penalised regression of labels on features.

    A binary label has one column of scores, the log-odds of class 1. The unknown is
    ``[F + 1, C]``, coefficients over intercepts, in the coordinates of the design:
    there the Hessian is at most the identity, and a step of length 1 along the
    negative gradient always goes downhill.
    """

    def __init__(
        self, design: Design, label: Tensor, num_classes: int, ridge: float
    ) -> None:
        self.design, self.label, self.ridge = design, label, ridge
        self.num_classes = num_classes
        self.intercept_scale = (0.5 * len(label)) ** -0.5

    def start(self) -> Tensor:  # [F + 1, C]
        """No coefficients, and intercepts that reproduce the class frequencies."""
        log_count = self.label.bincount(minlength=self.num_classes).double().log()
        out = log_count.new_zeros(len(self.design.mean) + 1, len(log_count))
        out[-1] = (log_count - log_count.mean()) / self.intercept_scale
        return out[:, 1:] - out[:, :1] if self.num_classes == 2 else out

    def unpack(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``[F, C]`` and intercepts ``[C]`` of the centred features."""
        weight = (self.design.scale @ point[:-1]) * self.design.mask[:, None]
        return weight, point[-1] * self.intercept_scale

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
        slope = self.design.scale.T @ (slope * self.design.mask[:, None])
        return value, torch.cat([slope, bias_slope[None] * self.intercept_scale])

    def minimize(
        self, rtol: float, max_iter: int, name: str, progress: bool | None = None
    ) -> tuple[Tensor, int, float]:
        """The point reached, iterations spent, relative gradient norm.

        L-BFGS takes one step at a time, because its own criterion is the largest
        entry of the gradient and ours is the length.
        """
        point = self.start()
        optimizer = torch.optim.LBFGS(
            [point],
            max_iter=1,
            max_eval=25,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            history_size=20,
            line_search_fn="strong_wolfe",
        )
        # Each step begins where the last one ended: that point is not evaluated again.
        seen, value, gradient = point.clone(), *self(point)
        first = float(gradient.norm())

        def closure() -> float:
            nonlocal seen, value, gradient
            if not torch.equal(point, seen):
                seen, value, gradient = point.clone(), *self(point)
            point.grad = gradient.clone()
            return value

        group, num_iter, norm = optimizer.param_groups[0], 0, first
        with Progress(max_iter, name, progress) as bar:
            while norm > rtol * first and num_iter < max_iter:
                before, last = point.clone(), norm
                optimizer.step(closure)
                closure()
                norm = float(gradient.norm())
                num_iter += 1
                bar.update()
                if group["line_search_fn"] and torch.equal(point, before):
                    # The decrease is below the rounding of the objective. The gradient
                    # is more precise: steps of full length may still shorten it.
                    group["line_search_fn"] = None
                elif not group["line_search_fn"] and norm >= last:
                    return before, num_iter, last / first
        return point, num_iter, norm / first if first else 0.0

    def coefficients(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``[C, F]`` and intercepts ``[C]`` of the features as given."""
        weight, bias = self.unpack(point)
        bias = bias - self.design.mean @ weight
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
