"""Shadow totals in SQL: one row per gateway process, and their sum."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Engine, Row, select
from sqlalchemy.dialects import postgresql, sqlite

from services.store.columns import sound
from services.store.tables import mirrors
from shared.domain.traffic import Buckets, Mirror

log = logging.getLogger(__name__)

_KEY = (mirrors.c.recommender, mirrors.c.generation, mirrors.c.gateway)


class SqlShadowTotals:
    """Implements ShadowTotals."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        new = postgresql.insert(mirrors) if engine.dialect.name == "postgresql" else sqlite.insert(mirrors)
        updates = {column.name: new.excluded[column.name] for column in mirrors.c if not column.primary_key}
        self._replace = new.on_conflict_do_update(index_elements=_KEY, set_=updates)

    def add(self, recommender: str, generation: int, gateway: str, mirror: Mirror) -> None:
        values = {
            "recommender": recommender,
            "generation": generation,
            "gateway": gateway,
            "compared": mirror.compared,
            "errors": mirror.errors,
            "stable": _text(mirror.stable),
            "candidate": _text(mirror.candidate),
            "overlap": mirror.overlap,
            "dropped": mirror.dropped,
        }
        with self._engine.begin() as connection:
            connection.execute(self._replace, values)

    def total(self, recommender: str, generation: int) -> Mirror:
        query = select(mirrors).where(mirrors.c.recommender == recommender, mirrors.c.generation == generation)
        total = Mirror()
        with self._reads.connect() as connection:
            for row in connection.execute(query.order_by(mirrors.c.gateway)):
                total = total.plus(_mirror(row))
        return total


def _text(buckets: Buckets) -> dict[str, int]:
    return {str(bucket): count for bucket, count in sorted(buckets.items())}


def _mirror(row: Row[Any]) -> Mirror:
    """Returns empty totals for a damaged row, so that the other rows count."""
    try:
        sound(row)
        latencies = [{int(bucket): int(count) for bucket, count in histogram.items()} for histogram in (row.stable, row.candidate)]
    except (ValueError, TypeError, AttributeError) as error:
        log.error("what gateway %s saw of the shadow of %s can't be read, so it isn't counted: %s", row.gateway, row.recommender, error)
        return Mirror()
    return Mirror(row.compared, row.errors, latencies[0], latencies[1], row.overlap, row.dropped)
