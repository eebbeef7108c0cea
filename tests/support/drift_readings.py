"""Looks as tests tell them: what has moved how far, beyond chance or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.domain.drift.reading import Look, Moved, Reading

LIMIT = 1e-5
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def look(at: int | datetime = 0, version: int = 1, chance: float = 1e-9, **sizes: float) -> Look:
    """By feature, the PSI; `at` may be the number of the look."""
    found = tuple(Reading("psi", name, size, chance if size else 1.0, LIMIT, (500, 500)) for name, size in sizes.items())
    return Look(version, AT + timedelta(minutes=at) if isinstance(at, int) else at, found)


def fell(before: float, after: float, at: int | datetime = 0, version: int = 1, chance: float = 1e-9) -> Look:
    """A hit rate."""
    size = max(1 - after / before, 0.0)
    reading = Reading("hit_rate", "", size, chance if size else 1.0, LIMIT, (500, 500), (Moved("hit rate", before, after),))
    return Look(version, AT + timedelta(minutes=at) if isinstance(at, int) else at, (reading,))
