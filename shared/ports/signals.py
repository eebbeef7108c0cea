"""What tells whether to retrain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.domain.drift.reading import Look


@dataclass(frozen=True)
class Signals:
    """What the world says about a serving version: None where there isn't enough to say anything."""

    drift: Look | None = None
    kpi: Look | None = None
    snapshot: datetime | None = None
    """When the version's data was cut."""
    events: int | None = None
    """How many events have come since; counted up to what the spec's triggers ask for."""


class SignalSource(Protocol):
    def signals(self, recommender: str) -> Signals: ...
