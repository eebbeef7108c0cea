"""Shadow totals in SQL: one row per gateway process, and their sum."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Engine, Row, select
from sqlalchemy.dialects import postgresql, sqlite

from services.store.columns import sound
from services.store.tables import shadow_totals
from shared.domain.traffic import Buckets, ShadowCounts

log = logging.getLogger(__name__)

_KEY = (shadow_totals.c.recommender, shadow_totals.c.generation, shadow_totals.c.gateway)


class SqlShadowTotals:
    """Implements ShadowTotals."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        new = postgresql.insert(shadow_totals) if engine.dialect.name == "postgresql" else sqlite.insert(shadow_totals)
        updates = {column.name: new.excluded[column.name] for column in shadow_totals.c if not column.primary_key}
        self._replace = new.on_conflict_do_update(index_elements=_KEY, set_=updates)

    def add(self, recommender: str, generation: int, gateway: str, mirror: ShadowCounts) -> None:
        place = {"recommender": recommender, "generation": generation, "gateway": gateway}
        values = place | vars(mirror) | {"stable": _text(mirror.stable), "candidate": _text(mirror.candidate)}
        with self._engine.begin() as connection:
            connection.execute(self._replace, values)

    def total(self, recommender: str, generation: int) -> ShadowCounts:
        query = select(shadow_totals).where(shadow_totals.c.recommender == recommender, shadow_totals.c.generation == generation)
        total = ShadowCounts()
        with self._reads.connect() as connection:
            for row in connection.execute(query.order_by(shadow_totals.c.gateway)):
                total = total.plus(_mirror(row))
        return total


def _text(buckets: Buckets) -> dict[str, int]:
    return {str(bucket): count for bucket, count in sorted(buckets.items())}


def _mirror(row: Row[Any]) -> ShadowCounts:
    """Returns empty totals for a damaged row, so that the other rows count."""
    try:
        sound(row)
        latencies = [{int(bucket): int(count) for bucket, count in histogram.items()} for histogram in (row.stable, row.candidate)]
    except (ValueError, TypeError, AttributeError) as error:
        log.error("shadow totals: unreadable, not counted gateway=%s recommender=%s error=%s", row.gateway, row.recommender, error)
        return ShadowCounts()
    return ShadowCounts(row.compared, row.errors, latencies[0], latencies[1], row.overlap, row.dropped)
