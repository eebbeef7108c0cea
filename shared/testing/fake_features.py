"""Fake feature store and fake feature history in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from shared.domain.feature_values import StoredRow, check_place, instant, is_over, read_row
from shared.ports import FeatureRows


class FakeFeatureStore:
    """Implements FeatureStore."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[int, StoredRow]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.reads = 0

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        check_place(view)
        self.counts.setdefault((recommender, view), 0)
        stored = self.rows.setdefault((recommender, view), {})
        before = dict(stored)
        for row in rows:
            if row.key not in stored or stored[row.key].rank < row.rank:
                stored[row.key] = read_row(row.key, row.at, row.text)
        return sum(1 for key, row in stored.items() if before.get(key) is not row)

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> FeatureRows:
        self.reads += 1
        rows = {(view, key): row for view in views for key, row in self.rows.get((recommender, view), {}).items() if key in keys}
        over = {place: row.at for place, row in rows.items() if is_over(row.at, views[place[0]], now)}
        return FeatureRows({place: row for place, row in rows.items() if place not in over and row.at <= now}, over)

    def mark(self, recommender: str, view: str, count: int) -> None:
        self.counts[recommender, check_place(view)] = count

    def marks(self) -> Mapping[tuple[str, str], int]:
        return dict(self.counts)

    def forget(self, recommender: str, view: str) -> None:
        self.rows.pop((recommender, view), None)
        self.counts.pop((recommender, view), None)


class FakeFeatureHistory:
    """Implements FeatureHistory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[tuple[int, datetime], StoredRow]] = {}

    def append(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        stored = self.rows.setdefault((recommender, check_place(view)), {})
        before = dict(stored)
        for row in rows:
            place = (row.key, row.at)
            if place not in stored or stored[place].rank < row.rank:
                stored[place] = read_row(row.key, row.at, row.text)
        return sum(1 for place, row in stored.items() if before.get(place) is not row)

    def as_of(
        self, recommender: str, view: str, lookups: Sequence[tuple[int, datetime]], ttl: timedelta | None
    ) -> Sequence[StoredRow | None]:
        rows: list[StoredRow | None] = []
        for key, now in lookups:
            past = [row for row in self._of(recommender, view) if row.key == key and row.at <= now]
            best = max(past, key=lambda row: row.at, default=None)
            rows.append(None if best is None or is_over(best.at, ttl, now) else best)
        return rows

    def latest(self, recommender: str, view: str, limit: int, after: int | None = None) -> Sequence[StoredRow]:
        last = {row.key: row for row in self._of(recommender, view) if after is None or row.key > after}
        return [last[key] for key in sorted(last)][:limit]

    def views(self) -> Collection[tuple[str, str]]:
        return [place for place, rows in self.rows.items() if rows]

    def export(self, recommender: str, view: str, until: datetime, to: Path) -> int:
        rows = [row for row in self._of(recommender, view) if row.at < until]
        lines = [json.dumps({"key": row.key, "at": instant(row.at), "values": dict(row.values)}) for row in rows]
        to.write_text("".join(line + "\n" for line in lines))
        return len(rows)

    def trim(self, recommender: str, before: datetime) -> int:
        gone = 0
        for rows in [rows for (name, _), rows in self.rows.items() if name == recommender]:
            for (key, at), _ in list(rows.items()):
                if at < before and any(key == other and at < later <= before for other, later in rows):
                    del rows[key, at]
                    gone += 1
        return gone

    def forget(self, recommender: str) -> None:
        self.rows = {place: rows for place, rows in self.rows.items() if place[0] != recommender}

    def _of(self, recommender: str, view: str) -> list[StoredRow]:
        rows = self.rows.get((recommender, view), {})
        return [rows[place] for place in sorted(rows)]
