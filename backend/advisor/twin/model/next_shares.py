"""The share of the next checkpoints that expire, if a checkpoint expires as often as was seen.

What a person sees later is a share of few checkpoints. It differs from the predicted one for two reasons. Both grow if
checkpoints that follow one another are alike, as when one hang lasts for several of them:

* how often checkpoints expire is known from few. Those that are alike count as fewer: ``n`` checkpoints tell as much as
  ``n / inflation(n, r)`` independent ones, if ``r`` is the correlation of neighbours.
* the next checkpoints are few too, and alike in the same way, so a single hang can make most of them expire.

The first part is a beta distribution of the true share, with Jeffreys' prior: half an expired checkpoint and half a
completed one, so that a share of zero is not certain either. The number of the next ones that expire is then
beta-binomial, with the variance of both parts together.
"""

from __future__ import annotations

from math import exp, lgamma
from typing import Final

from backend.advisor.advice import Interval

_PRIOR: Final = 0.5
_LOW: Final = 0.05
_HIGH: Final = 0.95
_ALIKE_MAX: Final = 0.99
"""Of the variance that a share has if all of the next checkpoints end alike. A beta-binomial distribution has less."""
_ROUNDING: Final = 1e-9


def next_share(ratio: float, seen_count: float, *, next_count: int, correlation: float) -> Interval:
    """Return the share of the next ``next_count`` checkpoints that expire, with its 90 % interval.

    ``ratio`` of ``seen_count`` checkpoints expired; the count may be a fraction. ``correlation``, 0 to 1, is that of a
    checkpoint and the one after it.
    """
    known = seen_count / inflation(seen_count, correlation)
    weight = known + 2 * _PRIOR
    mean = (ratio * known + _PRIOR) / weight
    # The law of total variance, as a share of mean * (1 - mean).
    of_rate = 1 / (weight + 1)
    alike = min(_ALIKE_MAX, of_rate + (1 - of_rate) * inflation(next_count, correlation) / next_count)
    size = next_count * (1 - alike) / (alike * next_count - 1)
    low, high = (_quantile(q, next_count, mean * size, (1 - mean) * size) / next_count for q in (_LOW, _HIGH))
    return Interval(ratio, min(low, ratio), max(high, ratio))


def inflation(count: float, correlation: float) -> float:
    """Return how many times larger the variance of a mean of ``count`` values is than if they were independent.

    Values that are ``k`` apart have the correlation ``correlation ** k``. The result is 1 to ``count``.
    """
    r = correlation
    if count <= 1 or r >= 1:
        return max(1.0, count)
    beyond = 2 * r / (1 - r) * (1 - (1 - float(r**count)) / (count * (1 - r)))
    return min(count, max(1.0, 1 + beyond))


def _quantile(share: float, count: int, alpha: float, beta: float) -> int:
    """Return the least number of ``count`` that a beta-binomial number does not exceed with this probability."""
    total, scale = 0.0, _log_beta(alpha, beta)
    for number in range(count):
        ways = lgamma(count + 1) - lgamma(number + 1) - lgamma(count - number + 1)
        total += exp(ways + _log_beta(number + alpha, count - number + beta) - scale)
        if total >= share - _ROUNDING:
            return number
    return count


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
