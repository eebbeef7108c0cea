"""Alarm decision: a reading becomes an alarm after several looks above its threshold, and ends after several looks well below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from shared.domain.drift.reading import DriftLook, DriftReading


@dataclass(frozen=True)
class AlarmState:
    """State of a reading that exceeded its threshold."""

    reading: DriftReading
    """The reading at the last update."""
    since: datetime
    """Time of the first look of the current series above the threshold."""
    looks: int
    """Looks above the threshold, counted up to the needed number."""
    calm: int = 0
    """Looks in a row since then that were clear."""
    stands: bool = False


@dataclass(frozen=True)
class AlarmMemory:
    """State that is kept between looks, for one version; discarded with the version."""

    version: int = 0
    at: datetime | None = None
    """Newest look that changed the state."""
    standing: tuple[AlarmState, ...] = ()

    @property
    def moved(self) -> tuple[AlarmState, ...]:
        """Returns the alarms, the smallest chance first."""
        counted = (alarm for alarm in self.standing if alarm.stands)
        return tuple(sorted(counted, key=lambda alarm: (alarm.reading.chance, -alarm.reading.size, alarm.reading.key)))


NOTHING_YET = AlarmMemory()


def remember(memory: AlarmMemory, look: DriftLook, thresholds: Mapping[str, float], needed: int) -> AlarmMemory:
    """Returns the state after one more look; a look that changes nothing, or is not newer, returns the same state."""
    if look.version != memory.version:
        memory = AlarmMemory(look.version)
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


def _next(
    before: AlarmState | None, reading: DriftReading | None, at: datetime, thresholds: Mapping[str, float], needed: int
) -> AlarmState | None:
    if reading is None:  # no statement is possible at this look
        return before if before is not None and before.reading.detector in thresholds else None
    threshold = thresholds[reading.detector]
    if reading.exceeds(threshold):
        if before is None:
            return AlarmState(reading, at, 1, stands=needed <= 1)
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
