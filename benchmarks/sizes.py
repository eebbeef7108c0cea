"""Bytes of a row on disk, with its indexes: answers, interactions, and users' values by key; in SQLite and in PostgreSQL, as rows grow.

python -m benchmarks.sizes [--rows 10000 40000 160000]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Engine, Table, insert, text

from benchmarks.harness import Row, benchmark, databases
from services.eventlog.tables import impressions, interactions
from services.featurestore.tables import feature_values
from services.store.engine import open_engine

_SHOWN = 10
_PIECE = 5_000
_BEGAN = 1_790_000_000_000_000


@benchmark("sizes")
def sizes(rows: Sequence[int] = (10_000, 40_000, 160_000)) -> Iterator[Row]:
    with databases(durable=False) as new_database:
        for count in rows:
            for kind, (table, make) in _KINDS.items():
                for database in ("sqlite", "postgresql"):
                    engine = open_engine(new_database(database, migrated=True))
                    empty = _size(engine, table)
                    _fill(engine, table, make, count)
                    size = (_size(engine, table) - empty) / count
                    yield Row(f"{count} rows", f"eyas on {database}", kind, "bytes a row", [size])
                    engine.dispose()


def _fill(engine: Engine, table: Table, make: Callable[[np.random.Generator, int], dict[str, Any]], count: int) -> None:
    chance = np.random.default_rng(1)
    for first in range(0, count, _PIECE):
        with engine.begin() as connection:
            connection.execute(insert(table), [make(chance, number) for number in range(first, min(first + _PIECE, count))])


def _size(engine: Engine, table: Table) -> int:
    """Of the table and its indexes."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            return int(connection.execute(text("SELECT pg_total_relation_size(:name)"), {"name": table.name}).scalar_one())
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _answer(chance: np.random.Generator, number: int) -> dict[str, Any]:
    """With ten items, one place of which was explored, a score and a latency; a fifth of them was hit."""
    items = json.dumps(chance.integers(1, 1_000_000, _SHOWN).tolist(), separators=(",", ":"))
    at = _BEGAN + number * 1_000_000
    row = {"request_id": f"q{number:026}", "recommender": "films", "user": int(chance.integers(1, 10_000_000)), "version": 3}
    row |= {"variant": "stable", "generation": 5, "step": 0, "items": items, "fallback": None, "at": at, "bucket": 40, "size": _SHOWN}
    hit = at + 60_000_000 if number % 5 == 0 else None
    return row | {"hit_at": hit, "score": 0.5, "propensities": json.dumps([0.95] * 9 + [0.05], separators=(",", ":")), "slices": None}


def _interaction(chance: np.random.Generator, number: int) -> dict[str, Any]:
    """A click that names its answer."""
    name = f"q{number:026}"
    row = {"recommender": "films", "user": int(chance.integers(1, 10_000_000)), "item": int(chance.integers(1, 1_000_000)), "value": 1.0}
    row |= {"positive": True, "request_id": name, "at": _BEGAN + number * 1_000_000, "event": f"e{number:026}", "kind": "click"}
    return row | {"revenue": None, "within": 1_800_000_000, "answer": name, "position": 3}


def _value(chance: np.random.Generator, number: int) -> dict[str, Any]:
    """A user's row of six columns."""
    body = json.dumps({f"column_{n}": round(float(value), 6) for n, value in enumerate(chance.random(6))}, separators=(",", ":"))
    return {"recommender": "films", "view": "users@3", "entity": number, "at": _BEGAN, "digest": f"{number:064x}", "body": body}


_KINDS: dict[str, tuple[Table, Callable[[np.random.Generator, int], dict[str, Any]]]] = {
    "answers": (impressions, _answer),
    "interactions": (interactions, _interaction),
    "users' values": (feature_values, _value),
}


if __name__ == "__main__":
    sizes()
