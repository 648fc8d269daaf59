r"""Learn, then test: settings whose risk for newcomers is proved to be small.

Some people are set aside before anything is learned. The others are fitted; those set
aside arrive as newcomers, and every setting has a loss for each of them. Given the
fitted people, losses are independent draws, whatever the method does with them. A
setting is certified if the hypothesis that its risk exceeds ``alpha`` is rejected. The
order in which settings are tested is decided among the fitted people, and the first
that is not rejected ends the sequence; so the chance of any false certificate is at
most ``delta`` (Angelopoulos, Bates, Candès, Jordan and Lei, 2021).
``docs/guarantees.md`` has the proof.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.json import plain
from pyg_glif._utils.validation import check_kind, check_known, check_scalar
from pyg_glif.model_selection.result import TunePoint

Losses = NDArray[np.float64]
#: Losses of newcomers by the name of the risk.
LossesOf = Callable[[TunePoint], Mapping[str, Losses]]

RISKS = {
    "loss": "loss of accuracy",
    "unlike": "share of peers who are decided on unlike",
}
# Bets between a small one and nearly all: who bets on all of them at once does nearly
# as well as the best of them.
_BETS = 0.999 * np.geomspace(1.0 / 64.0, 1.0, 7)


@dataclass(frozen=True)
class RiskControl:
    r"""A promise about newcomers: at most ``alpha``, but for a chance of ``delta``.

    Args:
        alpha (float or dict): What the risk may be at most. With several risks a number
            for all of them, or one for each: ``{"loss": 0.01, "unlike": 0.1}``.
            (default: :obj:`0.05`)
        delta (float): Chance that the promise is broken, over the draw of the people at
            hand. (default: :obj:`0.1`)
        risk (str or sequence): ``"loss"``: accuracy of the model minus that after
            smoothing. ``"unlike"``: the share, by weight, of a newcomer's peers whose
            decision differs from theirs; 0 without peers. Both names: both at once.
            (default: ``"loss"``, or the names in ``alpha``)
        share (float): Share of the people who are set aside.
            (default: :obj:`0.3`)

    Example:
        >>> RiskControl(alpha=0.02, delta=0.1).num_needed
        199
        >>> RiskControl({"loss": 0.01, "unlike": 0.1}).limits
        {'loss': 0.01, 'unlike': 0.1}
    """

    alpha: float | Mapping[str, float] = 0.05
    delta: float = 0.1
    risk: str | Sequence[str] | None = None
    share: float = 0.3

    def __post_init__(self) -> None:
        check_scalar("delta", self.delta, above=0.0, below=1.0)
        check_scalar("share", self.share, above=0.0, below=1.0)
        names = self._names()
        for name in names:
            check_kind("risk", name, str)
        if not names:
            raise ValueError("'risk' must name at least one risk (got none)")
        check_known("risk", names, RISKS)
        if isinstance(self.alpha, Mapping) and set(self.alpha) != set(names):
            msg = f"'alpha' must have a number for each of {names}"
            raise ValueError(f"{msg} (got {sorted(self.alpha)})")
        for limit in self.limits.values():
            check_scalar("alpha", limit, above=0.0, below=1.0)

    def _names(self) -> list[str]:
        if self.risk is None:
            return list(self.alpha) if isinstance(self.alpha, Mapping) else ["loss"]
        alone = isinstance(self.risk, str) or not isinstance(self.risk, Iterable)
        return [self.risk] if alone else list(self.risk)  # type: ignore[list-item]

    @property
    def limits(self) -> dict[str, float]:
        """The limit of each risk."""
        given = self.alpha
        if isinstance(given, Mapping):
            return {name: given[name] for name in self._names()}
        return dict.fromkeys(self._names(), given)

    @property
    def num_needed(self) -> int:
        """The fewest people set aside who prove anything if no decision changes."""
        return max(_fewest(limit, self.delta) for limit in self.limits.values())

    def check_enough(self, num: int, num_people: int) -> None:
        """Raises if losses of zero of so many people would certify nothing."""
        if num >= self.num_needed:
            return
        limits = ", ".join(f"{name} {limit:g}" for name, limit in self.limits.items())
        msg = (
            f"'guarantee' must have at least {self.num_needed} people set aside for "
            f"alpha ({limits}) and delta {self.delta:g} (got {num} of {num_people})"
        )
        bring = math.ceil(self.num_needed / self.share)
        raise ValueError(f"{msg}. Bring {bring} people, or raise 'share' or 'alpha'")

    def certify(
        self, points: Sequence[TunePoint], losses: LossesOf
    ) -> tuple["RiskTest", ...]:
        """Tests settings one after the other, up to the first that fails.

        Args:
            points (sequence of TunePoint): Settings, in an order that does not depend
                on the people who were set aside.
            losses (callable): Losses of the people who were set aside.
        """
        tests = []
        for point in points:
            tests.append(RiskTest.of(point, losses(point), self))
            if not tests[-1].certified:
                break
        return tuple(tests)

    def promise(self, losses: Mapping[str, Losses]) -> float:
        """How many errors a pilot's mean is below the limit, for the worst risk."""
        found = []
        for name, limit in self.limits.items():
            value = losses[name]
            error = math.sqrt((float(value.var()) + 1e-6) / len(value))
            found.append((limit - float(value.mean())) / error)
        return min(found)


@dataclass(frozen=True)
class RiskTest:
    """One setting, and what the people set aside say about it.

    Args:
        point (TunePoint): The setting.
        risks (dict): Mean loss of the people set aside, by risk.
        bounds (dict): Upper bound for the risk of this setting alone, which holds with
            probability ``1 - delta``.
        p_values (dict): Evidence against each risk being above its limit.
        certified (bool): Whether all of them are at most ``delta``.
        num_needed (int, optional): How many people would have to be set aside to
            certify it, were the risks those measured; :obj:`None` if no number would.
    """

    point: TunePoint
    risks: Mapping[str, float]
    bounds: Mapping[str, float]
    p_values: Mapping[str, float]
    certified: bool
    num_needed: int | None = None

    @classmethod
    def of(
        cls, point: TunePoint, losses: Mapping[str, Losses], control: RiskControl
    ) -> "RiskTest":
        """The test of a setting by the losses of the people set aside."""
        limits, delta = control.limits, control.delta
        p_values = {name: p_value(losses[name], limits[name]) for name in limits}
        needed = [_needed(losses[name], limits[name], delta) for name in limits]
        known = [num for num in needed if num is not None]
        return cls(
            point,
            {name: float(losses[name].mean()) for name in limits},
            {name: upper_bound(losses[name], delta) for name in limits},
            p_values,
            certified=max(p_values.values()) <= delta,
            num_needed=max(known) if len(known) == len(needed) else None,
        )

    @property
    def p_value(self) -> float:
        """The largest p-value: that some risk is above its limit."""
        return max(self.p_values.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "point": self.point.to_dict(),
            "risks": dict(self.risks),
            "bounds": dict(self.bounds),
            "p_values": dict(self.p_values),
            "p_value": self.p_value,
            "certified": self.certified,
            "num_needed": self.num_needed,
        }


@dataclass(frozen=True, eq=False)
class Guarantee:
    """What was certified, and for which fit.

    Args:
        control (RiskControl): The promise that was asked for.
        tests (tuple of RiskTest): Settings in the order in which they were tested; all
            are certified but the last, which is only if there was none to follow.
        chosen (RiskTest, optional): That of the choice; :obj:`None` if no setting
            qualifies.
        fitted (Tensor): Rows of the people who are fitted: the promise is about the
            fit to them, not to everybody.
        set_aside (Tensor): Rows of the people who came as newcomers.
        num_units (int): How many independent losses that is; members of a cluster count
            as one.
    """

    control: RiskControl
    tests: tuple[RiskTest, ...]
    chosen: RiskTest | None
    fitted: Tensor = field(repr=False)
    set_aside: Tensor = field(repr=False)
    num_units: int

    @cached_property
    def certified(self) -> tuple[RiskTest, ...]:
        """The settings that any choice may be made from."""
        return tuple(test for test in self.tests if test.certified)

    def to_text(self) -> str:
        """The promise in a sentence or two, or why there is none."""
        control, limits = self.control, self.control.limits
        names = " and ".join(
            f"{RISKS[name]} at most {limit:g}" for name, limit in limits.items()
        )
        if self.chosen is None:
            return f"No setting qualifies for {names}. {self._advice()}"
        best = self.chosen
        shown = "; ".join(
            f"{RISKS[name]} {best.risks[name]:.4f} among {self.num_units} set aside, "
            f"at most {best.bounds[name]:.4f}"
            for name in limits
        )
        return (
            f"For newcomers like those set aside, {names}: certified at level "
            f"{1 - control.delta:g} for {best.point.describe()} (p-value "
            f"{best.p_value:.2g}; {len(self.certified)} settings certified). Measured: "
            f"{shown}. This holds for the fit to the {len(self.fitted)} people who "
            "were not set aside"
        )

    def _advice(self) -> str:
        """What to do if nothing was certified."""
        if not self.tests:
            return "Nothing tried is fairer than the model. Try a larger radius"
        nearest = min(self.tests, key=lambda test: test.p_value)
        shown = ", ".join(
            f"{name} {value:.4f} (p-value {nearest.p_values[name]:.2g})"
            for name, value in nearest.risks.items()
        )
        text = (
            f"The most promising, {nearest.point.describe()}, has {shown} among "
            f"{self.num_units} people set aside"
        )
        if nearest.num_needed is None:
            return f"{text}. Allow more by 'alpha', or try other settings"
        return (
            f"{text}. If these are its risks, about {nearest.num_needed} people set "
            "aside would show it: bring more people, set aside a larger 'share', or "
            "allow more by 'alpha' or 'delta'"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        out: dict[str, Any] = plain(
            {
                "alpha": self.control.limits,
                "delta": self.control.delta,
                "num_set_aside": len(self.set_aside),
                "num_units": self.num_units,
                "num_fitted": len(self.fitted),
                "num_certified": len(self.certified),
                "chosen": None if self.chosen is None else self.chosen.to_dict(),
                "tests": [test.to_dict() for test in self.tests],
                "text": self.to_text(),
            }
        )
        return out


def p_value(losses: Losses, limit: float) -> float:
    r"""One over the most that bets against "the mean is at least ``limit``" ever made.

    .. math::
        p = \min_t \frac{1}{K_t}, \qquad K_t = \frac{1}{|B|} \sum_{b \in B}
        \prod_{i \le t} \Big(1 + b \, \frac{\mathrm{limit} - \ell_i}
        {1 - \mathrm{limit}}\Big), \qquad 0 < b < 1

    Under the hypothesis every factor has mean at most one and is positive, since
    :math:`\ell_i \le 1`; so :math:`K` is a non-negative supermartingale, and Ville's
    inequality makes :math:`p` a p-value.
    """
    if len(losses) == 0:
        return 1.0
    best = float(_log_mean(_gains(losses, limit).cumsum(1)).max())
    return math.exp(-max(0.0, best))


def upper_bound(losses: Losses, delta: float) -> float:
    """The smallest limit that is rejected at level ``delta``, and all above it are."""
    low, high = -1.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if p_value(losses, middle) <= delta else (middle, high)
        )
    return high


def _gains(losses: Losses, limit: float) -> Losses:  # [M] -> [B, M]
    """Logarithms of the factors by which each loss changes the capital of each bet."""
    out: Losses = np.log1p(np.outer(_BETS / (1.0 - limit), limit - losses))
    return out


def _log_mean(steps: Losses) -> Losses:  # [B, ...] -> [...]
    """Logarithm of the mean of capitals whose logarithms are given."""
    out: Losses = np.logaddexp.reduce(steps, axis=0) - math.log(len(steps))
    return out


def _fewest(limit: float, delta: float) -> int:
    """Losses of zero that it takes for a p-value of ``delta``."""
    zero = np.zeros(1)
    gains, low, high = _gains(zero, limit), 1, _needed(zero, limit, delta)
    assert high is not None  # a loss of zero is below every limit
    while low < high:
        middle = (low + high) // 2
        enough = float(_log_mean(middle * gains)[0]) >= math.log(1.0 / delta)
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def _needed(losses: Losses, limit: float, delta: float) -> int | None:
    """Losses like these that it takes for a p-value of ``delta``, by the best bet."""
    rate = float(_gains(losses, limit).mean(1).max())
    if rate <= 0:
        return None
    return math.ceil((math.log(1.0 / delta) + math.log(len(_BETS))) / rate)
