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
        counted = (alarm for alarm in self.standing if alarm.stands)
        return tuple(sorted(counted, key=lambda alarm: (alarm.reading.chance, -alarm.reading.size, alarm.reading.key)))


NOTHING_YET = Memory()


def remember(memory: Memory, look: Look, thresholds: Mapping[str, float], needed: int) -> Memory:
    """After one look more; one that changes nothing, or that is known, gives the memory as it is."""
    if look.version != memory.version:
        memory = Memory(look.version)
    if memory.at is not None and look.at <= memory.at:
        return memory
    alarms = {alarm.reading.key: alarm for alarm in memory.standing}
    readings = {reading.key: reading for reading in look.readings if reading.detector in thresholds}
    after = []
    for key in sorted(alarms.keys() | readings.keys()):
        alarm = _next(alarms.get(key), readings.get(key), look.at, thresholds, needed)
        if alarm is not None:
            after.append(alarm)
    return memory if tuple(after) == memory.standing else replace(memory, at=look.at, standing=tuple(after))


def _next(before: Standing | None, reading: Reading | None, at: datetime, thresholds: Mapping[str, float], needed: int) -> Standing | None:
    if reading is None:  # nothing can be said just now
        return before if before is not None and before.reading.detector in thresholds else None
    threshold = thresholds[reading.detector]
    if reading.exceeds(threshold):
        if before is None:
            return Standing(reading, at, 1, stands=needed <= 1)
        looks = min(before.looks + 1, needed)
        if before.stands:
            return replace(before, calm=0)
        return replace(before, reading=reading, looks=looks, stands=looks >= needed, calm=0)
    if before is None:
        return None
    if not before.stands:
        return None
    if not reading.clears(threshold):
        return replace(before, calm=0)
    return None if before.calm + 1 >= needed else replace(before, calm=before.calm + 1)
