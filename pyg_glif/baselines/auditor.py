"""Search for comparable inputs that a model treats differently."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pyg_glif._utils.validation import (
    check_coefficient,
    check_count,
    check_embedding,
    check_features,
    check_floating,
    check_length,
    check_rows,
    check_scalar,
    check_tensor,
    full_precision,
)
from pyg_glif.distances import FairDistance


class WorstCase(NamedTuple):
    """Result of an :class:`Auditor`, row by row.

    Attributes:
        x: The worst inputs, ``[N, F]``.
        gain: Increase over the original features, ``[N]``, in the unit of the
            maximised function.
        sq_dist: Squared fair distance from the original features, ``[N]``.
    """

    x: Tensor
    gain: Tensor
    sq_dist: Tensor


@dataclass(frozen=True, kw_only=True)
class Auditor:
    r"""Searches near each sample for the input that a model treats worst.

    .. math::
        \mathbf{x}^{\prime} \approx \arg\max_{\mathbf{x}^{\prime}} \;
        g(\mathbf{x}^{\prime}) - \lambda \,
        d(\mathbf{x}, \mathbf{x}^{\prime})^2

    where :math:`g` should not grow, :math:`d` is a fair distance and
    :math:`\lambda` the price of moving away from the sample, SenSeI's dual
    variable (not the smoothing strength ``lam`` of GLIF). First come steps along
    the directions in which the distance does not change, which are free; then
    steps in all directions, which are charged. Both are steps of Adam, which start
    with a random shift of at most one learning rate per coordinate, because the
    change of an output has no gradient at the sample.

    The best point seen is kept for each row, the original features included, so
    an audit never finds less than zero. Rows do not influence each other if
    :math:`g` treats them separately.

    Args:
        num_subspace_steps (int): Steps in the free directions. (default: :obj:`10`)
        subspace_lr (float): Learning rate of these steps. (default: :obj:`0.1`)
        num_full_steps (int): Steps in all directions. (default: :obj:`10`)
        full_lr (float): Learning rate of these steps. (default: :obj:`0.01`)

    Free directions have no price, and the worst case along them may be infinitely far
    away: there, number of steps and learning rate bound the search, to about
    their product in each direction. Choose it like the spread of the samples'
    features in the sensitive subspace.

    Example:
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> x = torch.zeros(1, 2)
        >>> worst = Auditor().search(lambda x: x.sum(dim=1), x, distance, 1.0)
        >>> worst.x.round(decimals=1)  # 10 steps of 0.1 for free, 10 of 0.01 charged
        tensor([[0.1000, 1.1000]])
    """

    num_subspace_steps: int = 10
    subspace_lr: float = 0.1
    num_full_steps: int = 10
    full_lr: float = 0.01

    def __post_init__(self) -> None:
        check_count("num_subspace_steps", self.num_subspace_steps, minimum=0)
        check_scalar("subspace_lr", self.subspace_lr, above=0.0)
        check_count("num_full_steps", self.num_full_steps, minimum=0)
        check_scalar("full_lr", self.full_lr, above=0.0)

    def search(
        self,
        gain: Callable[[Tensor], Tensor],
        x: Tensor,
        distance: FairDistance,
        dual: float | Tensor,
        *,
        directions: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> WorstCase:
        r"""Maximises ``gain`` near each row of ``x``.

        Args:
            gain (callable): Maps inputs :math:`(N, F)` to values :math:`(N)`,
                differentiably; row :math:`i` of its input is the candidate for row
                :math:`i` of ``x``.
            x (torch.Tensor): Features of the samples.
            distance (FairDistance): Which inputs are comparable. It needs an embedding.
            dual (float or torch.Tensor): Price :math:`\lambda \ge 0` of squared fair
                distance.
            directions (torch.Tensor, optional): Orthonormal columns that span the free
                directions. (default: ``distance.null_space``; where it is empty, the
                charged steps find such directions by their low price)
            generator (torch.Generator, optional): Source of the random shifts, on
                the CPU. (default: one seeded with zero, so that equal calls give
                equal results)

        Shapes:
            - **input:** features :math:`(N, F)`, directions :math:`(F, R)`
            - **output:** features :math:`(N, F)`, gains and squared distances
              :math:`(N)`
        """
        x = check_features("x", x).detach()
        check_rows("x", x, distance.num_features)
        check_embedding("distance", distance)
        check_coefficient("dual", dual, minimum=0.0)
        if directions is None:
            directions = distance.null_space(x.size(1))
        generator = generator or torch.Generator().manual_seed(0)
        objective = _Objective(gain, x, distance, dual)
        with torch.no_grad():
            # A copy: it is returned where no worse input is reached.
            start = _Candidates(x.clone(), objective(x))
        best = start
        if directions.size(1):
            steps, lr = self.num_subspace_steps, self.subspace_lr
            basis = directions.to(x)
            best = _ascend(objective, best, basis, steps, lr, generator)
        steps, lr = self.num_full_steps, self.full_lr
        best = _ascend(objective, best, None, steps, lr, generator)
        with torch.no_grad():
            # At the start nothing has been paid yet: its value is its gain.
            rise = gain(best.x) - start.value
            return WorstCase(best.x, rise, objective.sq_dist(best.x))


@contextmanager
def evaluating(part: object) -> Iterator[None]:
    """A module in evaluation mode, restored afterwards; a function as it is."""
    modes = [(module, module.training) for module in _modules(part)]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            # Not 'train(mode)', which would pass the mode on to all modules below.
            module.training = mode


@contextmanager
def frozen(*parts: object) -> Iterator[None]:
    """Modules whose parameters take no gradient, restored afterwards."""
    modules = [module for part in parts for module in _modules(part)]
    learned = [p for m in modules for p in m.parameters(False) if p.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def _modules(part: object) -> list[nn.Module]:
    """A module and all below it; nothing for a plain function."""
    return list(part.modules()) if isinstance(part, nn.Module) else []


def _without_autocast(x: Tensor) -> torch.autocast:
    """Switches autocast off: only the model may be computed in half precision."""
    return torch.autocast(x.device.type, enabled=False)


class _Objective:
    """Gain minus the price of the distance, row by row."""

    def __init__(
        self,
        gain: Callable[[Tensor], Tensor],
        x: Tensor,
        distance: FairDistance,
        dual: float | Tensor,
    ) -> None:
        self.gain = gain
        self.distance = distance
        self.dual = dual.detach() if isinstance(dual, Tensor) else dual
        with torch.no_grad(), _without_autocast(x):
            self.z = distance.embed(x)

    def sq_dist(self, x: Tensor) -> Tensor:  # [N, F] -> [N]
        """Squared fair distance from where the search began."""
        with _without_autocast(x):
            return (self.distance.embed(x) - self.z).square().sum(dim=1)

    def __call__(self, x: Tensor) -> Tensor:  # [N, F] -> [N]
        # A model under autocast may give half precision.
        gain = full_precision(check_tensor("gain(x)", self.gain(x)))
        check_floating("gain(x)", gain)
        check_length("gain(x)", gain, len(x))
        if x.requires_grad and not gain.requires_grad:
            msg = "'gain(x)' must be differentiable in 'x'"
            raise ValueError(f"{msg} (got a result without gradient)")
        return gain - self.dual * self.sq_dist(x)


class _Candidates(NamedTuple):
    """Inputs and their objective, row by row."""

    x: Tensor  # [N, F]
    value: Tensor  # [N]

    def keep_better(self, other: "_Candidates") -> "_Candidates":
        """The better of two, for each row."""
        # Not infinity and not NaN: a row that leaves the model's domain stays put.
        better = (other.value > self.value) & other.value.isfinite()
        x = torch.where(better.unsqueeze(1), other.x, self.x)
        return _Candidates(x, torch.where(better, other.value, self.value))


def _ascend(
    objective: _Objective,
    start: _Candidates,
    basis: Tensor | None,  # [F, R]
    num_steps: int,
    lr: float,
    generator: torch.Generator,
) -> _Candidates:
    """The best of some steps of Adam from ``start``, row by row."""
    if num_steps == 0:
        return start
    origin, best = start.x, start
    width = origin.size(1) if basis is None else basis.size(1)
    # The same draws whatever torch's default dtype is.
    noise = torch.rand(len(origin), width, generator=generator, dtype=torch.float32)
    shift = (lr * (2 * noise - 1)).to(origin).requires_grad_()
    optimizer = torch.optim.Adam([shift], lr=lr, maximize=True)
    for step in range(num_steps + 1):
        last = step == num_steps
        with torch.set_grad_enabled(not last):
            with _without_autocast(origin):
                x = origin + (shift if basis is None else shift @ basis.T)
            value = objective(x)
            total = value.sum()
        best = best.keep_better(_Candidates(x.detach(), value.detach()))
        if not last:
            # Not 'backward', which would also add to the gradients of the model.
            (shift.grad,) = torch.autograd.grad(total, shift)
            optimizer.step()
    return best
