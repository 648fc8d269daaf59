r"""Output spaces: map model outputs to dual coordinates and back.

Smoothing averages. Which average is the right one depends on how differences
between outputs are measured. For a Bregman divergence

.. math::
    D_F(y, y') = F(y) - F(y') - \langle \nabla F(y'),\, y - y' \rangle

the point :math:`y` closest to weighted points :math:`y_j` in
:math:`\sum_j \omega_j D_F(y, y_j)` is the mean in *dual coordinates*,
:math:`\nabla F(y) = \sum_j \omega_j \nabla F(y_j) / \sum_j \omega_j`. A link is the
pair :math:`\nabla F` (:meth:`~Link.to_dual`) and :math:`(\nabla F)^{-1}`
(:meth:`~Link.from_dual`); smoothing happens in between.

====================  ================================  ==============================
link                  divergence                        dual coordinates
====================  ================================  ==============================
:class:`Identity`     squared error                     :math:`y`
:class:`Softmax`      KL of class probabilities         :math:`\log y_k` (up to a shift)
:class:`Logit`        KL of one probability             :math:`\log (y / (1 - y))`
:class:`Log`          generalised KL, :math:`y > 0`     :math:`\log y`
====================  ================================  ==============================
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_finite,
    check_floating,
    check_scalar,
    check_tensor,
    check_unbatched,
)
from pyg_glif.registry import Registered, register

__all__ = ["Identity", "Link", "Log", "Logit", "Softmax"]

# Largest distance of the sum of a row from one: room for rounded probabilities.
_SUM_TOLERANCE = 1e-3


class Link(Registered, ABC):
    r"""Base of all links; subclass it for another output space.

    ``to_dual`` should check its input, both methods should be differentiable, and
    ``from_dual(to_dual(y_hat))`` should return ``y_hat``. Set ``by_row`` if the columns
    of a row belong together, as class probabilities do: one-dimensional outputs, one
    number per sample, are then refused. Set ``monotone`` if ``from_dual`` grows entry
    by entry, which certificates make use of. A dataclass decorated by
    :func:`pyg_glif.registry.register` can be saved with a fit.

    Example:
        >>> class Sqrt(Link):
        ...     def to_dual(self, y_hat):
        ...         return y_hat.sqrt()
        ...     def from_dual(self, eta):
        ...         return eta.square()
        >>> Sqrt().from_dual(Sqrt().to_dual(torch.tensor([4.0])))
        tensor([4.])
    """

    family: ClassVar[str] = "link"
    by_row: ClassVar[bool] = False
    monotone: ClassVar[bool] = False

    @abstractmethod
    def to_dual(self, y_hat: Tensor) -> Tensor:
        """Maps outputs to the coordinates in which they are averaged."""

    @abstractmethod
    def from_dual(self, eta: Tensor) -> Tensor:
        """Maps averaged coordinates back to outputs."""

    def interval(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on outputs whose dual coordinates are between ``low`` and ``high``.

        Certificates need it. Those of a ``monotone`` link are the outputs of both ends.
        """
        if self.monotone:
            return self.from_dual(low), self.from_dual(high)
        msg = f"'{type(self).__name__}' must override 'interval' for bounds on outputs"
        raise TypeError(f"{msg}. See 'pyg_glif.links.Logit'")


@register
@dataclass(frozen=True)
class Identity(Link):
    r"""Squared error: outputs are averaged as they are.

    Shapes:
        - **input:** finite outputs of any shape
        - **output:** the same tensor

    Example:
        >>> Identity().to_dual(torch.tensor([0.5, -2.0]))
        tensor([ 0.5000, -2.0000])
    """

    monotone: ClassVar[bool] = True

    def to_dual(self, y_hat: Tensor) -> Tensor:
        """Returns ``y_hat``."""
        return _check_outputs(y_hat)

    def from_dual(self, eta: Tensor) -> Tensor:
        """Returns ``eta``."""
        return eta


@register
@dataclass(frozen=True)
class Softmax(Link):
    r"""Class probabilities under the KL divergence: logits are averaged.

    .. math::
        \eta_k = \log \max(y_k, \epsilon), \qquad
        y_k = \frac{\exp \eta_k}{\sum_l \exp \eta_l}

    Args:
        inputs (str): ``"probabilities"`` in and out, or ``"logits"`` in and out.
            (default: ``"probabilities"``)
        eps (float, optional): Probabilities below ``eps`` are raised to it, so that
            an exact zero has a logarithm. :obj:`None` takes the machine precision of
            the input: 1.2e-7 in float32, 2.2e-16 in float64. No effect on logits.
            (default: :obj:`None`)

    Shapes:
        - **input:** probabilities or logits :math:`(*, C)`, :math:`C \ge 2`
        - **output:** the same shape

    The natural parameters of the paper are :math:`\eta_k - \eta_C`, one fewer. All
    :math:`C` columns are kept here because smoothing is linear: it commutes with the
    subtraction, no class is singled out, and the probabilities are the same. For
    the same reason logits pass through unchanged. They are defined up to a constant
    per row, the output's constant is the smoothed constant of the input, and
    ``softmax`` of the output does not depend on it.

    A row that holds an exact zero is *certain*, and certainty weighs heavily in a
    mean of logarithms: with the default ``eps`` a hard 0/1 output stands for log-odds
    of 16 (float32) or 36 (float64). Set ``eps`` where hard labels are smoothed. The
    gradient of a clamped entry is zero.

    Example:
        >>> link = Softmax()
        >>> link.from_dual(link.to_dual(torch.tensor([[0.2, 0.8]])))
        tensor([[0.2000, 0.8000]])
    """

    by_row: ClassVar[bool] = True

    inputs: Literal["probabilities", "logits"] = "probabilities"
    eps: float | None = None

    def __post_init__(self) -> None:
        check_choice("inputs", self.inputs, ("probabilities", "logits"))
        _check_eps(self.eps)

    def to_dual(self, y_hat: Tensor) -> Tensor:
        """Logarithms of probabilities; logits as they are."""
        y_hat = _check_outputs(y_hat)
        if y_hat.dim() == 0 or y_hat.size(-1) < 2:
            msg = "'y_hat' must have at least 2 classes in its last dimension"
            msg = f"{msg} (got shape {tuple(y_hat.shape)})"
            raise ValueError(f"{msg}. Use 'Logit' for one probability")
        if self.inputs == "logits":
            return y_hat
        _check_probabilities(y_hat)
        _check_row_sums(y_hat)
        return y_hat.clamp(min=_default_eps(self.eps, y_hat)).log()

    def from_dual(self, eta: Tensor) -> Tensor:
        """Softmax over the last dimension; logits as they are."""
        return eta if self.inputs == "logits" else torch.softmax(eta, dim=-1)

    def interval(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """A class at one end and all others at the other; logits as they are."""
        if self.inputs == "logits":
            return low, high
        return _extreme_softmax(low, high), _extreme_softmax(high, low)


@register
@dataclass(frozen=True)
class Logit(Link):
    r"""One probability per entry (Bernoulli) under the KL divergence.

    .. math::
        \eta = \log \frac{y}{1 - y}, \qquad y = \frac{1}{1 + \exp(-\eta)},
        \qquad y \text{ clamped to } [\epsilon, 1 - \epsilon]

    Args:
        eps (float, optional): Distance kept from 0 and 1. :obj:`None` takes the
            machine precision of the input: 1.2e-7 in float32, 2.2e-16 in float64.
            (default: :obj:`None`)

    Shapes:
        - **input:** probabilities of any shape; columns are independent
        - **output:** the same shape

    The notes of :class:`Softmax` on exact zeros and ``eps`` hold here for 0 and 1.

    Example:
        >>> Logit().to_dual(torch.tensor([0.5, 0.75]))
        tensor([0.0000, 1.0986])
    """

    monotone: ClassVar[bool] = True

    eps: float | None = None

    def __post_init__(self) -> None:
        _check_eps(self.eps)

    def to_dual(self, y_hat: Tensor) -> Tensor:
        """Log-odds."""
        y_hat = _check_outputs(y_hat)
        _check_probabilities(y_hat)
        eps = _default_eps(self.eps, y_hat)
        y_hat = y_hat.clamp(min=eps, max=1.0 - eps)
        return y_hat.log() - (-y_hat).log1p()

    def from_dual(self, eta: Tensor) -> Tensor:
        """Sigmoid."""
        return torch.sigmoid(eta)


@register
@dataclass(frozen=True)
class Log(Link):
    r"""Positive outputs (rates, prices, counts): averages are geometric means.

    .. math::
        \eta = \log y, \qquad y = \exp \eta

    Shapes:
        - **input:** positive outputs of any shape
        - **output:** the same shape

    Example:
        >>> link = Log()
        >>> link.from_dual(link.to_dual(torch.tensor([1.0, 100.0])).mean())
        tensor(10.)
    """

    monotone: ClassVar[bool] = True

    def to_dual(self, y_hat: Tensor) -> Tensor:
        """Logarithm."""
        y_hat = _check_outputs(y_hat)
        low = float(y_hat.detach().min()) if y_hat.numel() else 1.0
        if low <= 0:
            raise ValueError(f"'y_hat' must be positive (got {low:g})")
        return y_hat.log()

    def from_dual(self, eta: Tensor) -> Tensor:
        """Exponential."""
        return eta.exp()


def _extreme_softmax(own: Tensor, others: Tensor) -> Tensor:  # [N, C] twice
    """Softmax of each class, its logit from ``own``, those of the rest from others."""
    mixed = others.unsqueeze(-2).expand(*others.shape, others.size(-1)).clone()
    mixed.diagonal(dim1=-2, dim2=-1).copy_(own)
    return torch.softmax(mixed, dim=-1).diagonal(dim1=-2, dim2=-1)


def dual_of(link: Link | None, y_hat: Tensor) -> Tensor:
    """Dual coordinates of outputs, one row or number for each sample."""
    if link is None:
        return y_hat
    if link.by_row and y_hat.dim() < 2:
        name, shape = type(link).__name__, tuple(y_hat.shape)
        msg = f"'y_hat' must have one column per class with '{name}' (got shape {shape}"
        raise ValueError(f"{msg}). Use 'Logit' for one probability per sample")
    return link.to_dual(y_hat)


def outputs_of(
    link: Link | None, eta: Tensor, y_hat: Tensor, isolated: Tensor
) -> Tensor:
    """Outputs for averaged dual coordinates; ``isolated`` rows keep ``y_hat``."""
    if link is None:
        return eta
    isolated = isolated.view(-1, *[1] * (y_hat.dim() - 1))
    return torch.where(isolated, y_hat, link.from_dual(eta))


def _check_outputs(y_hat: Tensor) -> Tensor:
    """Checks that outputs are finite floating-point numbers."""
    y_hat = check_tensor("y_hat", y_hat)
    check_floating("y_hat", y_hat)
    check_unbatched("y_hat", y_hat, "Call once for each set of outputs")
    check_finite("y_hat", y_hat)
    return y_hat


def _check_eps(eps: float | None) -> None:
    """Raises unless ``eps`` is ``None``, or above 0 and below 1/2."""
    if eps is not None:
        check_scalar("eps", eps, above=0.0, below=0.5)


def _default_eps(eps: float | None, y_hat: Tensor) -> float:
    """``eps`` if it is given, else the machine precision of ``y_hat``."""
    return torch.finfo(y_hat.dtype).eps if eps is None else eps


def _check_probabilities(y_hat: Tensor) -> None:
    """Raises on entries below 0 or above 1, give or take rounding."""
    if y_hat.numel() == 0:
        return
    least, most = (float(end) for end in torch.aminmax(y_hat.detach()))
    if least < -1e-6 or most > 1.0 + 1e-6:
        got = least if least < 0.0 else most
        raise ValueError(f"'y_hat' must be between 0 and 1 (got {got:g})")


def _check_row_sums(y_hat: Tensor) -> None:
    """Raises unless rows sum to 1; the message names the worst one."""
    if y_hat.numel() == 0:
        return
    total = y_hat.detach().sum(dim=-1).flatten()
    worst = int((total - 1).abs().argmax())
    if abs(float(total[worst]) - 1.0) > _SUM_TOLERANCE:
        msg = f"'y_hat' must have rows that sum to 1 (got {float(total[worst]):g}"
        raise ValueError(f"{msg} in row {worst})")
