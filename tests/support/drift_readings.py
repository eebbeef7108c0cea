"""Looks as tests tell them: what has moved how far, beyond chance or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.domain.drift.reading import DriftLook, DriftReading, ShareChange

LIMIT = 1e-5
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def look(at: int | datetime = 0, version: int = 1, chance: float = 1e-9, **sizes: float) -> DriftLook:
    """By feature, the PSI; `at` may be the number of the look."""
    readings = tuple(DriftReading("psi", name, size, chance if size else 1.0, LIMIT, (500, 500)) for name, size in sizes.items())
    return DriftLook(version, AT + timedelta(minutes=at) if isinstance(at, int) else at, readings)


def fell(before: float, after: float, at: int | datetime = 0, version: int = 1, chance: float = 1e-9) -> DriftLook:
    """A hit rate."""
    size = max(1 - after / before, 0.0)
    reading = DriftReading("hit_rate", "", size, chance if size else 1.0, LIMIT, (500, 500), (ShareChange("hit rate", before, after),))
    return DriftLook(version, AT + timedelta(minutes=at) if isinstance(at, int) else at, (reading,))
