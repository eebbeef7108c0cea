"""What it costs to ask what a version earned, when a million answers are there: an hour of them by variant and slice, and a day in windows.

    python -m benchmarks.kpis [--answers 1000000]

A day of answers of two versions, each with ten items; a tenth of them hit, some of those twice. Rows are written as the event log writes
them, all at once; then the monitor's own questions are asked, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine, insert, text

from benchmarks.report import Row, publish
from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.kpis import SqlKpis
from services.eventlog.tables import impressions, instant, interactions
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.domain.coverage_novelty import LIKES, LOOKED
from shared.domain.earned import sliding, total
from tests.servers.postgres_server import postgres_server

NAME = "films"
ITEMS = 20_000
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
DAY, HOUR, STEP = timedelta(days=1), timedelta(hours=1), timedelta(minutes=5)
ATTRIBUTION = timedelta(minutes=30)
_AT_ONCE = 20_000
_ROUNDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=1_000_000)
    count: int = parser.parse_args().answers
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder, postgres_server() as server:
        for name, url in (("SQLite", sqlite_url(Path(folder) / "eyas.db")), ("PostgreSQL", server.new_database())):
            engine = open_engine(url)
            upgrade(engine)
            fill(engine, count)
            rows += measured(engine, name, count)
            engine.dispose()
    publish("kpis", rows)
    return 0


def fill(engine: Engine, count: int) -> None:
    chance = random.Random(7)  # noqa: S311
    waiting_shown, waiting_done = [], []
    for number in range(count):
        shown, done = _answer(number, count, chance)
        waiting_shown.append(shown)
        waiting_done += done
        if len(waiting_shown) == _AT_ONCE or number == count - 1:
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


def measured(engine: Engine, database: str, count: int) -> list[Row]:
    kpis, sightings, ends = SqlKpis(engine), SqlDriftSamples(engine), BEGAN + DAY

    def series() -> None:
        steps = kpis.steps(NAME, 1, BEGAN, ends, STEP, ATTRIBUTION, {"purchase"})
        windows = sliding(steps, HOUR // STEP, (DAY - HOUR) // STEP)
        assert len(windows) == 276

    hour = (NAME, 1, ends - HOUR, ends)
    whole = kpis.earned(*hour, ATTRIBUTION, {"purchase"})
    assert total(kpis.parts(*hour, ATTRIBUTION, {"purchase"}).values()) == whole
    questions: dict[str, Callable[[], object]] = {
        "an hour": lambda: kpis.earned(*hour, ATTRIBUTION, {"purchase"}),
        "an hour by variant and slice": lambda: kpis.parts(*hour, ATTRIBUTION, {"purchase"}),
        "a day by variant and slice": lambda: kpis.parts(NAME, 1, BEGAN, ends, ATTRIBUTION, {"purchase"}),
        "a day in 276 windows of an hour, 5 minutes apart": series,
        "a day's life in 48 stretches, users counted": lambda: sightings.blocks(NAME, 1, BEGAN, ends, DAY / 48, ATTRIBUTION),
        "what is new of that life": lambda: sightings.blocks(NAME, 1, ends - DAY / 48, ends, DAY / 48, ATTRIBUTION),
        "what the newest answers showed": lambda: kpis.showings(*hour, LOOKED),
        "what is liked how much": lambda: kpis.liked(NAME, ends, LIKES),
    }
    case = f"{count:,} answers of a day, {whole.answers:,} in the hour"
    rows = []
    for question, ask in questions.items():
        timed = list(_timed(ask, database))
        rows += [
            Row(f"{case}: {question}", database, "clock", "ms", [1e3 * clock for clock, _ in timed]),
            Row(f"{case}: {question}", database, "CPU, the server's too", "ms", [1e3 * cpu for _, cpu in timed]),
        ]
    return rows


def _timed(ask: Callable[[], object], database: str) -> Iterator[tuple[float, float]]:
    ask()
    for _ in range(_ROUNDS):
        began, before = time.perf_counter(), _cpu(database)
        ask()
        yield time.perf_counter() - began, _cpu(database) - before


def _cpu(database: str) -> float:
    """Of this process, and of the PostgreSQL that it has started."""
    me = psutil.Process()
    those = [me, *(me.children(recursive=True) if database == "PostgreSQL" else [])]
    return sum(sum(one.cpu_times()[:2]) for one in those)


if __name__ == "__main__":
    raise SystemExit(main())
