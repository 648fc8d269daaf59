r"""Bets against a bounded mean: evidence that may be looked at at any time.

People come one by one, each with a number :math:`x_t` in :math:`[0, 1]`. Whoever bets
:math:`\lambda_t`, chosen before :math:`x_t` is known, multiplies their capital by
:math:`1 + \lambda_t (x_t - m)`. If no conditional mean exceeds :math:`m` and
:math:`0 \le \lambda_t < 1/m`, capital is a non-negative supermartingale, and by Ville's
inequality it ever reaches :math:`1/\alpha` with probability at most :math:`\alpha`
(Waudby-Smith and Ramdas, 2024). ``docs/guarantees.md`` has the proofs.

Both classes keep everything in one vector of numbers, whose length does not depend on
how many people came. They also take one number for each of many streams at once.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: People after which what was seen counts half in a bet.
HALF_LIVES = (math.inf, 1000.0, 100.0)
#: Share of the capital that one person can cost at most.
STAKE = 0.5
#: Candidates for the mean, denser where means are small.
CANDIDATES = (np.arange(1, 400) / 400.0) ** 2


class Layout:
    """Names for the parts of one vector of numbers; each part is a view of it."""

    def __init__(self, shape: tuple[int, ...], **parts: int) -> None:
        #: ``[*shape, total]``, what is saved and restored.
        self.state: Array = np.zeros((*shape, sum(parts.values())))
        start = 0
        for name, size in parts.items():
            part = self.state[..., start : start + size]
            setattr(self, name, part[..., 0] if size == 1 and shape else part)
            start += size


class Capital(Layout):
    r"""Capital of somebody who bets that the mean is above ``limit``.

    Three players share it, who look back at everybody, at about 1,000 and at about 100
    people. With :math:`y = x - \mathrm{limit}` and sums over what a player remembers,
    each bets (approximate GRAPA)

    .. math::
        \lambda_t = \min\Big(\max\Big(0, \frac{\sum y}{v + \sum y^2}\Big),
        \frac{c}{\mathrm{limit}}\Big), \quad
        v = \mathrm{limit} (1 - \mathrm{limit}), \; c = 1/2.

    The first puts in all they have at once. The others keep a reserve of
    :math:`1 / \log_2(t + 2)` and put in the rest as time goes by, so that a change
    after many people finds capital that is not lost yet.

    Args:
        limit (float): The mean that nobody should exceed, in :math:`(0, 1)`.
        num_streams (int): How many streams are watched side by side.
            (default: :obj:`1`)
    """

    num: Array
    invested: Array
    sums: Array
    squares: Array
    peak: Array

    def __init__(self, limit: float | Array, num_streams: int = 1) -> None:
        players = len(HALF_LIVES)
        super().__init__(
            (num_streams,),
            num=1,
            peak=1,
            invested=players,
            sums=players,
            squares=players,
        )
        self.limit = np.broadcast_to(np.asarray(limit, dtype=float), (num_streams,))
        self.invested[:] = -np.inf
        self._forget = 0.5 ** (1.0 / np.array(HALF_LIVES))
        self._patient = np.isinf(HALF_LIVES)
        self._limit = self.limit[:, None]
        self._variance = self._limit * (1.0 - self._limit)
        self._most = STAKE / self._limit

    def step(self, x: float | Array) -> None:
        """One more person in every stream."""
        y = np.asarray(x, dtype=float).reshape(-1, 1) - self._limit
        # Decided before this person's number is looked at.
        bet = self.sums / (self._variance + self.squares)
        bet = np.minimum(np.maximum(bet, 0.0), self._most)
        num = float(self.num[0])  # all streams have seen as many people
        put_in = self._logs(num, _reserve(num) - _reserve(num + 1.0))
        np.logaddexp(self.invested, put_in, out=self.invested)
        self.invested += np.log1p(bet * y)
        self.sums *= self._forget
        self.sums += y
        self.squares *= self._forget
        self.squares += y * y
        self.num += 1.0
        np.maximum(self.peak, self.log_value, out=self.peak)

    def _logs(self, num: float, share: float) -> Array:  # [P]
        """Logarithms of shares: the first player has all before anybody came."""
        first = 0.0 if num == 0 else -math.inf
        return np.where(self._patient, first, np.log(share))

    @property
    def log_value(self) -> Array:  # [S]
        """Logarithm of the capital, 0 at the start."""
        num = float(self.num[0])
        parts = np.logaddexp(self.invested, self._logs(num, _reserve(num)))
        total: Array = np.logaddexp.reduce(parts, axis=1) - math.log(parts.shape[1])
        return total


def _reserve(num: float) -> float:
    """The share that a player who is not the first keeps after so many people."""
    return 1.0 / math.log2(num + 2.0)


class MeanSequence(Layout):
    r"""Intervals for a constant mean that hold at all times at once.

    For every candidate :math:`m` there are two capitals, of bets that the mean is above
    and below it, with bets that are the same for all candidates but for a cap:

    .. math::
        \lambda_t = \sqrt{\frac{2 \log(2/\alpha)}
        {\hat\sigma^2_{t-1} \, t \log(1 + t)}}, \quad
        K^+_t(m) = \prod_i 1 + \min(\lambda_i, c/m) (x_i - m), \quad
        K^-_t(m) = \prod_i 1 - \min(\lambda_i, c/(1 - m)) (x_i - m)

    :math:`K^+` falls and :math:`K^-` rises with :math:`m`. So what a candidate below
    the mean loses by, all smaller numbers lose by: the interval between the largest
    candidate with :math:`K^+ \ge 2/\alpha` and the smallest with
    :math:`K^- \ge 2/\alpha` holds every mean that is not refuted.

    Args:
        alpha (float): One minus the level.
        candidates (array): Ascending, in :math:`(0, 1)`. (default: 399, denser near 0)
        num_streams (int): If above one, as many streams with one candidate each.
            (default: :obj:`1`)
    """

    num: Array
    total: Array
    spread: Array
    above: Array
    below: Array

    def __init__(
        self, alpha: float, candidates: Array = CANDIDATES, num_streams: int = 1
    ) -> None:
        size, seen = len(candidates), num_streams
        super().__init__((), num=1, total=seen, spread=seen, above=size, below=size)
        self.alpha, self.candidates = alpha, candidates
        # Bets above and below side by side: one pass over all candidates.
        self._both = self.state[-2 * size :].reshape(2, size)
        self._most = STAKE / np.stack([candidates, 1.0 - candidates])
        self._side = np.array([[1.0], [-1.0]])

    def step(self, x: float | Array) -> None:
        """One more person."""
        t = float(self.num[0]) + 1.0
        variance = (0.25 + self.spread) / t
        bet = np.sqrt(2.0 * math.log(2.0 / self.alpha) / (variance * t * math.log1p(t)))
        apart = self._side * (x - self.candidates)
        self._both += np.log1p(np.minimum(bet, self._most) * apart)
        self.num += 1.0
        self.total += x
        mean = (0.5 + self.total) / (t + 1.0)
        self.spread += (x - mean) ** 2

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the mean, one candidate wider than the set of candidates left."""
        return self.bounds(self.alpha / 2.0)

    def bounds(self, level: float) -> tuple[float, float]:
        """A lower and an upper bound, each false with probability ``level``."""
        limit = math.log(1.0 / level)
        low = self.candidates[self.above >= limit]
        high = self.candidates[self.below >= limit]
        return (
            float(low[-1]) if len(low) else 0.0,
            float(high[0]) if len(high) else 1.0,
        )


def share_bound(count: int, num: int, level: float) -> float:
    """Upper bound for the chance behind ``count`` of ``num`` (Clopper and Pearson)."""
    from scipy.special import betaincinv

    if count >= num:
        return 1.0
    return float(betaincinv(count + 1.0, float(num - count), 1.0 - level))


def mean_bound(values: Any, level: float) -> float:
    """Upper bound for the mean behind independent values in [0, 1], by betting."""
    sequence = MeanSequence(2.0 * level)
    for value in values:
        sequence.step(float(value))
    return sequence.bounds(level)[1]
