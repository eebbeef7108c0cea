"""A platform with old events moves them from the database to files, and the next training reads them from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import polars as pl
import pytest
from sqlalchemy import Engine, func, insert, select, update

from services.eventlog.tables import event_deletions, impressions, instant, interactions
from services.store.engine import open_engine, sqlite_url
from shared.domain.archive import DAY
from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import USERS, quick_spec

OLD = 600
pytestmark = [pytest.mark.requirement("U-11"), pytest.mark.timeout(600)]


def write_old_events(engine: Engine, movies: list[int]) -> None:
    """Writes events that are 402 to 421 days old, as an installation has them that is older than this release."""
    now = datetime.now(UTC)
    rows = [
        {"recommender": "movies", "user": number % USERS + 1, "at": instant(now - (402 + number % 20) * DAY) + number}
        for number in range(OLD)
    ]
    with engine.begin() as connection:
        for number, row in enumerate(rows):
            item = movies[number % len(movies)]
            liked = {"item": item, "positive": True, "kind": "rating", "value": 5.0, "event": f"old{number}"}
            connection.execute(insert(interactions).values(**row, **liked))
            answer = {"request_id": f"old{number}", "version": 1, "variant": "stable", "generation": 1, "step": -1, "items": f"[{item}]"}
            connection.execute(insert(impressions).values(**row, **answer, size=1))


def count(engine: Engine) -> tuple[int, int]:
    limit = instant(datetime.now(UTC) - 401 * DAY)
    with engine.connect() as connection:
        old = [select(func.count()).select_from(table).where(table.c.at < limit) for table in (interactions, impressions)]
        done, shown = (connection.execute(query).scalar_one() for query in old)
    return done, shown


def test_old_events_move_to_files_and_training_reads_them(copy_of_trained: Copy, tmp_path: Path) -> None:
    platform = copy_of_trained(tmp_path)
    platform = PlatformProcess(platform.home, platform.data, settings={"EYAS_COMPACT_EVERY": "1"})
    engine = open_engine(sqlite_url(platform.home / "eyas.db"))
    write_old_events(engine, pl.read_parquet(platform.data / "movies.parquet")["movieId"].to_list())
    with platform:
        until("their days are refused and archived", lambda: refused(engine) == 2 and "events: compacted" in platform.log, 180)
        assert count(engine) == (OLD, OLD)
        with engine.begin() as connection:  # as if the hour between refusal and deletion were over
            connection.execute(update(event_deletions).values(refused_at=event_deletions.c.refused_at - 7_200_000_000))
        until("they are deleted", lambda: count(engine) == (0, 0), 180)
        counted = {line for line in httpx.get(platform.metrics_url).text.splitlines() if line.startswith("eyas_events_deleted_total")}
        assert counted == {
            f'eyas_events_deleted_total{{recommender="movies",table="{name}"}} {OLD}.0' for name in ("impressions", "interactions")
        }
        event = {"recommender": "movies", "user": 1, "item": 1, "kind": "click"}
        at = (datetime.now(UTC) - timedelta(days=400, minutes=1)).isoformat()
        answer = platform.client.post("/v1/events", json={"events": [{**event, "at": at}]})
        assert answer.status_code == 422 and "is older than 400d, the time for which the spec keeps events" in answer.text
        young = (datetime.now(UTC) - timedelta(days=399)).isoformat()
        assert platform.post("/v1/events", {"events": [{**event, "at": young}]})["accepted"] == 1
        document = quick_spec(platform.data, regularisation=300)
        document["data"]["interactions"]["also"] = "events"
        run = platform.post("/v1/recommenders", document)["run"]
        platform.wait_for_run(run, "registered")
        log = platform.get(f"/v1/runs/{run}/logs", stage="etl")["text"]
        assert f"events: joined events={OLD + 1}" in log, log
    engine.dispose()


def refused(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(event_deletions)).scalar_one()
