"""Ports for the signals that trigger retraining."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.domain.drift.reading import DriftLook
from shared.ports.events import NewestTimes


@dataclass(frozen=True)
class Signals:
    """Observations for a serving version; None where there is not enough data."""

    drift: DriftLook | None = None
    kpi: DriftLook | None = None
    snapshot: datetime | None = None
    """Time up to which the version's data was read."""
    events: int | None = None
    """Number of events since then, counted up to the number that the spec's triggers need."""


class Activity(Protocol):
    def newest(self) -> Mapping[str, NewestTimes]:
        """Returns the newest times by stable version, at most a second old; the same object until the next read."""


class SignalSource(Protocol):
    @property
    def activity(self) -> Activity | None:
        """Activity of the recommenders; None if unknown, so that each recommender must be read."""

    def signals(self, recommender: str) -> Signals: ...
