"""What tells whether to retrain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.domain.drift.reading import Look
from shared.ports.events import Newest


@dataclass(frozen=True)
class Signals:
    """What the world says about a serving version: None where there isn't enough to say anything."""

    drift: Look | None = None
    kpi: Look | None = None
    snapshot: datetime | None = None
    """When the version's data was cut."""
    events: int | None = None
    """How many events have come since; counted up to what the spec's triggers ask for."""


class Activity(Protocol):
    def newest(self) -> Mapping[str, Newest]:
        """Of the recommenders that serve, by their stable versions, a second old at most; the same object until it is asked for anew."""


class SignalSource(Protocol):
    @property
    def activity(self) -> Activity | None:
        """Who is used at all; None where nobody knows, and everybody has to be asked about."""

    def signals(self, recommender: str) -> Signals: ...
