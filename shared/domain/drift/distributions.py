"""Tail probabilities of the F and the Kolmogorov distributions."""

from __future__ import annotations

import math

_TINY = 1e-300
_STEPS = 500
_CLOSE = 1e-12


def f_tail(value: float, above: float, below: float) -> float:
    """P(F >= value) for an F distribution with degrees of freedom `above` in the numerator and `below` in the denominator."""
    if value <= 0:
        return 1.0
    return _beta(below / (below + above * value), below / 2, above / 2)


def kolmogorov_tail(distance: float, first: int, second: int) -> float:
    """P(D >= distance) for the greatest distance of two empirical distributions, with Stephens' correction for small samples."""
    size = math.sqrt(first * second / (first + second))
    scaled = (size + 0.12 + 0.11 / size) * distance
    if scaled < 0.2:
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(max(2 * math.fsum(terms), 0.0), 1.0)


def _beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _STEPS):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return fraction


def _apart(value: float) -> float:
    """Returns a value that is not zero, because it is a divisor."""
    return value if abs(value) > _TINY else _TINY
