"""Inputs and outputs of the drift detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple


class DriftValue(NamedTuple):
    """Value of one like or one answer in one column: texts or a number. Empty texts: the item has no value; None: the version does not know
    the item."""

    user: int
    texts: tuple[str, ...] | None = None
    number: float | None = None


Values = Sequence[DriftValue]


@dataclass(frozen=True)
class DriftColumn:
    """Values of one column in two periods: the version's first days, and now."""

    kind: Literal["key", "feature", "scores"]
    """Item keys, item features, or the scores of the answers."""
    name: str
    first: Values
    now: Values


@dataclass(frozen=True)
class ShareChange:
    """Share of a value, or the value of a statistic, before and now."""

    value: str
    before: float
    after: float


@dataclass(frozen=True)
class DriftReading:
    """Result of one detector for one column at one look."""

    detector: str
    column: str
    size: float
    """Size of the change, without the part that chance explains."""
    chance: float
    """Probability, at most, that chance alone causes such a change."""
    limit: float
    """A reading counts if its chance is at most this limit; the limits of a look together bound its false alarms."""
    users: tuple[int, int] = (0, 0)
    """Users of the first days, and of now."""
    moved: tuple[ShareChange, ...] = ()
    shares: tuple[ShareChange, ...] = ()
    """Shares of more values than `moved` names, those with the largest change; empty if the detector does not compare shares."""

    @property
    def key(self) -> str:
        return f"{self.detector}/{self.column}"

    def exceeds(self, threshold: float) -> bool:
        return self.size >= threshold and self.chance <= self.limit

    def clears(self, threshold: float) -> bool:
        """Returns whether the reading is well below the threshold; a reading near the threshold neither exceeds nor clears it."""
        return self.size < threshold / 2 or self.chance > CALM

    def sentence(self) -> str:
        text = SENTENCES[self.detector].format(column=self.column, size=self.size)
        values = ", ".join(f"{moved.value} from {moved.before:.1%} to {moved.after:.1%}" for moved in self.moved)
        return f"{text}{f' ({values})' if values else ''}; {rarely(self.chance)}"


CALM = 0.05
"""A reading with at least this chance is not a sign of drift."""

SENTENCES = {
    "psi": "drift of {column}: psi {size:.3f}",
    "new": "new values of {column}: {size:.1%} more of the positives than in the reference",
    "nulls": "missing values of {column}: {size:.1%} more of the positives than in the reference",
    "scores": "scores shown: distance {size:.3f}",
    "hit_rate": "hit rate fell by {size:.1%}",
    "hit_rate_min": "hit rate is {size:.1%} below its limit",
    "conversion": "conversion fell by {size:.1%}",
    "conversion_min": "conversion is {size:.1%} below its limit",
}


@dataclass(frozen=True)
class DriftLook:
    """All readings of one look; `at` is the time of the newest event in its data."""

    version: int
    at: datetime
    readings: tuple[DriftReading, ...]
    note: str = ""
    """What the look waits for, if it has no reading."""


def rarely(chance: float) -> str:
    """Describes the probability in words."""
    if chance >= 0.01:
        return f"by chance alone in {chance:.0%} of all looks"
    if chance < 1e-9:
        return "by chance alone less than once in 1,000,000,000 looks"
    return f"by chance alone once in {_rounded(1 / chance):,} looks"


def _rounded(number: float) -> int:
    """Rounds to one significant digit."""
    power: int = 10 ** (len(str(int(number))) - 1)
    return round(number / power) * power
