"""What detectors are given, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple


class Value(NamedTuple):
    """What one like, or one answer, has in one column: texts, or a number. No texts: the item has no value; None: the version doesn't know
    the item."""

    user: int
    texts: tuple[str, ...] | None = None
    number: float | None = None


Values = Sequence[Value]


@dataclass(frozen=True)
class Column:
    """One column at two times: the version's first days, and now."""

    kind: Literal["key", "feature", "scores"]
    """Which items they were, what those are like, or what answers promised."""
    name: str
    first: Values
    now: Values


@dataclass(frozen=True)
class Moved:
    """A value's share of what users did, then and now."""

    value: str
    before: float
    after: float


@dataclass(frozen=True)
class Reading:
    """What one detector says of one column at one look."""

    detector: str
    column: str
    size: float
    """How far it has moved, less what chance explains."""
    chance: float
    """How often chance alone moves it so far, at most."""
    limit: float
    """From which chance on it counts: all readings of a look together are wrong this rarely."""
    users: tuple[int, int] = (0, 0)
    """Of the first days, and of now."""
    moved: tuple[Moved, ...] = ()
    shares: tuple[Moved, ...] = ()
    """Of more values than the few that it names, where it is about shares; those that moved most."""

    @property
    def key(self) -> str:
        return f"{self.detector}/{self.column}"

    def exceeds(self, threshold: float) -> bool:
        return self.size >= threshold and self.chance <= self.limit

    def clears(self, threshold: float) -> bool:
        """Well below: what wavers about its threshold is neither."""
        return self.size < threshold / 2 or self.chance > CALM

    def sentence(self) -> str:
        text = SENTENCES[self.detector].format(column=self.column, size=self.size)
        values = ", ".join(f"{moved.value} from {moved.before:.1%} to {moved.after:.1%}" for moved in self.moved)
        return f"{text}{f' ({values})' if values else ''}; {rarely(self.chance)}"


CALM = 0.05
"""What chance brings at least so often is no sign of anything."""

SENTENCES = {
    "psi": "drift of {column}: psi {size:.3f}",
    "new": "new values of {column}: {size:.1%} more of the likes than at first",
    "nulls": "missing values of {column}: {size:.1%} more of the likes than at first",
    "scores": "scores shown: apart by {size:.3f} of all users",
    "hit_rate": "hit rate fell by {size:.1%}",
    "hit_rate_min": "hit rate is {size:.1%} below its limit",
    "conversion": "conversion fell by {size:.1%}",
    "conversion_min": "conversion is {size:.1%} below its limit",
}


@dataclass(frozen=True)
class Look:
    """All readings of one look; `at` is the newest event that it saw."""

    version: int
    at: datetime
    readings: tuple[Reading, ...]
    note: str = ""
    """What it waits for, where it has no reading."""


def rarely(chance: float) -> str:
    """How sure, in words."""
    if chance >= 0.01:
        return f"chance alone does that in {chance:.0%} of all looks"
    if chance < 1e-9:
        return "chance alone does that less than once in 1,000,000,000 looks"
    return f"chance alone does that once in {_rounded(1 / chance):,} looks"


def _rounded(number: float) -> int:
    """To one digit."""
    power: int = 10 ** (len(str(int(number))) - 1)
    return round(number / power) * power
