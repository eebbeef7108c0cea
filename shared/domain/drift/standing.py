"""When a reading counts: it stands for several looks, and is clear for several before it may count again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from shared.domain.drift.reading import Look, Reading


@dataclass(frozen=True)
class Standing:
    """A reading that isn't calm."""

    reading: Reading
    """As it was when it was last noted."""
    since: datetime
    """The first look in a row that exceeded the threshold."""
    looks: int
    """How many have, up to as many as are needed."""
    calm: int = 0
    """How many in a row were clear since then."""
    stands: bool = False


@dataclass(frozen=True)
class Memory:
    """What is remembered from look to look; about a version, and forgotten with it."""

    version: int = 0
    at: datetime | None = None
    """The newest look that changed anything."""
    standing: tuple[Standing, ...] = ()

    @property
    def moved(self) -> tuple[Standing, ...]:
        """What counts, the surest first."""
        counted = (one for one in self.standing if one.stands)
        return tuple(sorted(counted, key=lambda one: (one.reading.chance, -one.reading.size, one.reading.key)))


NOTHING_YET = Memory()


def remember(memory: Memory, look: Look, thresholds: Mapping[str, float], needed: int) -> Memory:
    """After one look more; one that changes nothing, or that is known, gives the memory as it is."""
    if look.version != memory.version:
        memory = Memory(look.version)
    if memory.at is not None and look.at <= memory.at:
        return memory
    known = {one.reading.key: one for one in memory.standing}
    found = {one.key: one for one in look.readings if one.detector in thresholds}
    after = []
    for key in sorted(known.keys() | found.keys()):
        one = _next(known.get(key), found.get(key), look.at, thresholds, needed)
        if one is not None:
            after.append(one)
    return memory if tuple(after) == memory.standing else replace(memory, at=look.at, standing=tuple(after))


def _next(before: Standing | None, found: Reading | None, at: datetime, thresholds: Mapping[str, float], needed: int) -> Standing | None:
    if found is None:  # nothing can be said just now
        return before if before is not None and before.reading.detector in thresholds else None
    threshold = thresholds[found.detector]
    if found.exceeds(threshold):
        if before is None:
            return Standing(found, at, 1, stands=needed <= 1)
        looks = min(before.looks + 1, needed)
        if before.stands:
            return replace(before, calm=0)
        return replace(before, reading=found, looks=looks, stands=looks >= needed, calm=0)
    if before is None:
        return None
    if not before.stands:
        return None
    if not found.clears(threshold):
        return replace(before, calm=0)
    return None if before.calm + 1 >= needed else replace(before, calm=before.calm + 1)
