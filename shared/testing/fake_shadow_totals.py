"""Fake ShadowTotals in memory; passes the suite of the port."""

from __future__ import annotations

from collections import Counter

from shared.domain.traffic import ShadowCounts


class FakeShadowTotals:
    """Implements ShadowTotals with a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, str], ShadowCounts] = {}

    def add(self, recommender: str, generation: int, gateway: str, mirror: ShadowCounts) -> None:
        self.rows[recommender, generation, gateway] = mirror

    def total(self, recommender: str, generation: int) -> ShadowCounts:
        rows = [row for key, row in self.rows.items() if key[:2] == (recommender, generation)]
        stable: Counter[int] = Counter()
        candidate: Counter[int] = Counter()
        for row in rows:
            stable.update(row.stable)
            candidate.update(row.candidate)
        counts = [sum(getattr(row, name) for row in rows) for name in ("compared", "errors", "dropped")]
        return ShadowCounts(counts[0], counts[1], dict(stable), dict(candidate), sum(row.overlap for row in rows), counts[2])
