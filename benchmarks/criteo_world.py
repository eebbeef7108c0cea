"""Clicks of Criteo's shape whose true chances are known: 13 numbers, 26 columns of codes whose values are few of them often.

The logit is a sum of three parts, each of a spread that the shape says: what each value says alone; what values of two columns say
together, by inner products of three hidden numbers that a value has for that pair alone; what numbers say, alone, beyond a bound, two at a
time, and in the company of values. A seed draws the world, another its rows; nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.inputs.tables import Codes

Floats = NDArray[np.float64]
HIDDEN = 3
"""Numbers that a value has for a pair of columns."""
_LOOKED = 100_000
"""Rows by which the parts are brought to their spread, and the rate to what it is to be."""


@dataclass(frozen=True)
class Shape:
    sizes: tuple[int, ...] = tuple(int(size) for size in np.geomspace(4, 50_000, 26))
    """How many values each column of codes has."""
    numbers: int = 13
    pairs: int = 10
    """Of columns of codes that say something together."""
    common: int = 1_000
    """How many values a column of a pair has at most: of rarer ones nobody could learn from so many rows what they say together."""
    rate: float = 0.1
    """Of clicks."""
    power: float = 1.05
    """A value's frequency falls with this power of its rank."""
    alone: float = 0.8
    together: float = 1.0
    counted: float = 0.5
    """The standard deviation that each part adds to the logit."""


@dataclass(frozen=True)
class Rows:
    columns: Codes
    """Codes, of which the first stands for no value, and numbers."""
    chance: Floats
    """Of a click."""
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> Rows:
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Rows(columns, self.chance[start:stop], self.labels[start:stop])

    @property
    def bayes(self) -> float:
        """The AUC of who knows the chances: nobody is better but by luck."""
        return auc(self.chance, self.chance)


def auc(scores: NDArray[Any], clicks: NDArray[Any]) -> float:
    """`clicks`: labels, or chances; then it is what labels drawn by them say on average. Equal scores count half."""
    values, where = np.unique(scores, return_inverse=True)
    clicked = np.bincount(where, clicks.astype(np.float64), len(values))
    others = np.bincount(where, 1 - clicks.astype(np.float64), len(values))
    below = np.cumsum(others) - others
    return float((clicked * (below + others / 2)).sum() / (clicked.sum() * others.sum()))


class World:
    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        chance = np.random.default_rng((seed, 1))
        self._sums = [np.cumsum((1.0 + np.arange(size)) ** -shape.power) for size in shape.sizes]
        self._alone = [chance.standard_normal(size) for size in shape.sizes]
        count, kinds = len(shape.sizes), range(shape.numbers)
        common = [at for at in range(count) if shape.sizes[at] <= shape.common]
        every = [(one, other) for one in common for other in common if other < one]
        self.pairs = [every[at] for at in sorted(chance.choice(len(every), shape.pairs, replace=False))]
        """Columns whose values say something together."""
        self._hidden = [[chance.standard_normal((shape.sizes[one], HIDDEN)) for one in pair] for pair in self.pairs]
        self._slopes, self._bounds = chance.standard_normal((3, shape.numbers)), chance.normal(0, 0.5, shape.numbers)
        self._company = [(at, int(chance.integers(count)), int(chance.integers(shape.numbers))) for at in kinds]
        self._in_company = [chance.standard_normal(shape.sizes[column]) for _, column, _ in self._company]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"c{at}" for at in range(len(self.shape.sizes)))

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(f"n{at}" for at in range(self.shape.numbers))

    def draw(self, count: int, seed: int) -> Rows:
        codes, numbers, chance = self._drawn(count, seed)
        probability = 1 / (1 + np.exp(-(self._summed(codes, numbers) + self._level)))
        columns: Codes = {name: (one + FIRST).astype(np.int32) for name, one in zip(self.names, codes, strict=True)}
        columns |= {name: one.astype(np.float32) for name, one in zip(self.numbers, numbers, strict=True)}
        return Rows(columns, probability, (chance.random(count) < probability).astype(np.float32))

    def _drawn(self, count: int, seed: int) -> tuple[list[NDArray[Any]], Floats, np.random.Generator]:
        chance = np.random.default_rng((seed, 2))
        codes = [np.searchsorted(sums, chance.random(count) * sums[-1], side="right") for sums in self._sums]
        return codes, chance.standard_normal((self.shape.numbers, count)), chance

    def _parts(self, codes: list[NDArray[Any]], numbers: Floats) -> dict[str, Floats]:
        alone = sum((effects[column] for effects, column in zip(self._alone, codes, strict=True)), np.zeros(numbers.shape[1]))
        together = np.zeros_like(alone)
        for (one, other), (mine, theirs) in zip(self.pairs, self._hidden, strict=True):
            together += (mine[codes[one]] * theirs[codes[other]]).sum(axis=1)
        counted = np.zeros_like(alone)
        for at, number in enumerate(numbers):
            straight, beyond, both = self._slopes[:, at]
            counted += straight * number + beyond * (number > self._bounds[at])
            _, column, other = self._company[at]
            counted += both * ((number > 0) & (numbers[other] > 0)) + self._in_company[at][codes[column]] * number
        return {"alone": alone, "together": together, "counted": counted}

    @cached_property
    def _scales(self) -> dict[str, float]:
        codes, numbers, _ = self._drawn(_LOOKED, 0)
        return {
            name: getattr(self.shape, name) / spread if (spread := float(part.std())) else 0.0
            for name, part in self._parts(codes, numbers).items()
        }

    def _summed(self, codes: list[NDArray[Any]], numbers: Floats) -> Floats:
        return sum((self._scales[name] * part for name, part in self._parts(codes, numbers).items()), np.zeros(numbers.shape[1]))

    @cached_property
    def _level(self) -> float:
        """What is added, so that so many are clicks."""
        codes, numbers, _ = self._drawn(_LOOKED, 0)
        logits = self._summed(codes, numbers)
        return _root(lambda level: float((1 / (1 + np.exp(-(logits + level)))).mean()) - self.shape.rate)


def _root(rising: Callable[[float], float], low: float = -30.0, high: float = 30.0) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
