"""The cost of a version's KPIs with a million answers: an hour of them by variant and slice, and a day in windows.

    python -m benchmarks.kpis [--answers 1000000]

A day of answers of two versions, each with ten items; a tenth of them hit, some of those twice. Rows are written as the event log writes
them, all at once; then the monitor's own questions are asked, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, insert, text

from benchmarks.harness import Row, benchmark, cpu_seconds, databases, family
from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.kpis import SqlKpis
from services.eventlog.tables import impressions, instant, interactions
from services.store.engine import open_engine
from shared.domain.coverage_novelty import LIKES, LOOKED
from shared.domain.earned import sliding, total

NAME = "films"
ITEMS = 20_000
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
DAY, HOUR, STEP = timedelta(days=1), timedelta(hours=1), timedelta(minutes=5)
ATTRIBUTION = timedelta(minutes=30)
_PIECE = 20_000
_ROUNDS = 5


@benchmark("kpis")
def kpis(answers: int = 1_000_000) -> Iterator[Row]:
    with databases(durable=False) as new_database:
        for name in ("SQLite", "PostgreSQL"):
            engine = open_engine(new_database(name, migrated=True))
            fill(engine, answers)
            yield from measured(engine, name, answers)
            engine.dispose()


def fill(engine: Engine, count: int) -> None:
    chance = random.Random(7)  # noqa: S311
    waiting_shown, waiting_done = [], []
    for number in range(count):
        shown, done = _answer(number, count, chance)
        waiting_shown.append(shown)
        waiting_done += done
        if len(waiting_shown) == _PIECE or number == count - 1:
            with engine.begin() as connection:
                connection.execute(insert(impressions), waiting_shown)
                connection.execute(insert(interactions), waiting_done)
            waiting_shown, waiting_done = [], []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE"))


def _answer(number: int, count: int, chance: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    at, name, user = instant(BEGAN) + number * 86_400_000_000 // count, f"q{number:08d}", chance.randrange(160_000)
    items = [int(ITEMS * chance.random() ** 3) for _ in range(10)]
    hit_at = at + chance.randrange(3_600_000_000) if chance.random() < 0.1 else None
    shown = {
        "request_id": name,
        "recommender": NAME,
        "user": user,
        "version": 1 + (number % 10 == 0),
        "variant": "candidate" if number % 10 == 0 else "stable",
        "generation": 1,
        "step": -1,
        "items": json.dumps(items, separators=(",", ":")),
        "fallback": "unknown user" if number % 7 == 0 else None,
        "at": at,
        "hit_at": hit_at,
        "size": 10,
        "slices": ("germany", "germany young", None)[number % 3],
    }
    times = [] if hit_at is None else [hit_at, hit_at + 1_000_000][: 1 + number % 2]
    kinds = ("click", "purchase")
    return shown, [
        {
            "recommender": NAME,
            "user": user,
            "item": items[0],
            "positive": True,
            "at": when,
            "kind": kinds[place],
            "revenue": 1_000_000 * place or None,
            "within": 1_800_000_000,
            "answer": name,
            "position": place,
        }
        for place, when in enumerate(times)
    ]


def measured(engine: Engine, database: str, count: int) -> Iterator[Row]:
    sql, samples, ends = SqlKpis(engine), SqlDriftSamples(engine), BEGAN + DAY

    def series() -> None:
        steps = sql.steps(NAME, 1, BEGAN, ends, STEP, ATTRIBUTION, {"purchase"})
        windows = sliding(steps, HOUR // STEP, (DAY - HOUR) // STEP)
        assert len(windows) == 276

    hour = (NAME, 1, ends - HOUR, ends)
    hour_counts = sql.earned(*hour, ATTRIBUTION, {"purchase"})
    assert total(sql.parts(*hour, ATTRIBUTION, {"purchase"}).values()) == hour_counts
    questions: dict[str, Callable[[], object]] = {
        "an hour": lambda: sql.earned(*hour, ATTRIBUTION, {"purchase"}),
        "an hour by variant and slice": lambda: sql.parts(*hour, ATTRIBUTION, {"purchase"}),
        "a day by variant and slice": lambda: sql.parts(NAME, 1, BEGAN, ends, ATTRIBUTION, {"purchase"}),
        "a day in 276 windows of an hour, 5 minutes apart": series,
        "a day's life in 48 stretches, users counted": lambda: samples.blocks(NAME, 1, BEGAN, ends, DAY / 48, ATTRIBUTION),
        "what is new of that life": lambda: samples.blocks(NAME, 1, ends - DAY / 48, ends, DAY / 48, ATTRIBUTION),
        "what the newest answers showed": lambda: sql.showings(*hour, LOOKED),
        "what is liked how much": lambda: sql.liked(NAME, ends, LIKES),
    }
    case = f"{count:,} answers of a day, {hour_counts.answers:,} in the hour"
    for question, ask in questions.items():
        clocks, cpus = zip(*_timed(ask, database), strict=True)
        yield Row(f"{case}: {question}", database, "clock", "ms", [1e3 * clock for clock in clocks])
        yield Row(f"{case}: {question}", database, "CPU, the server's too", "ms", [1e3 * cpu for cpu in cpus])


def _timed(ask: Callable[[], object], database: str) -> Iterator[tuple[float, float]]:
    ask()
    for _ in range(_ROUNDS):
        began, before = time.perf_counter(), _cpu(database)
        ask()
        yield time.perf_counter() - began, _cpu(database) - before


def _cpu(database: str) -> float:
    """Of this process, and of the PostgreSQL that it has started."""
    processes = family(os.getpid())
    return cpu_seconds(processes if database == "PostgreSQL" else processes[:1])


if __name__ == "__main__":
    kpis()
