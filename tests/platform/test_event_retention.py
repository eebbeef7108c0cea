"""A platform with old events moves them from the database to files, and the next training reads them from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import polars as pl
import pytest
from sqlalchemy import Engine, func, insert, select

from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.tables import impressions, instant, interactions
from services.store.engine import open_engine, sqlite_url
from shared.contracts.archive import TABLES
from shared.domain.archive import DAY, too_old_before
from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import USERS, quick_spec

OLD = 600
pytestmark = [pytest.mark.requirement("U-11"), pytest.mark.timeout(600)]


def write_old_events(engine: Engine, movies: list[int]) -> None:
    """Writes events that are 403 to 422 days old, as an installation has them that is older than this release."""
    now = datetime.now(UTC)
    rows = [
        {"recommender": "movies", "user": number % USERS + 1, "at": instant(now - (403 + number % 20) * DAY) + number}
        for number in range(OLD)
    ]
    with engine.begin() as connection:
        for number, row in enumerate(rows):
            item = movies[number % len(movies)]
            liked = {"item": item, "positive": True, "kind": "rating", "value": 5.0, "event": f"old{number}"}
            connection.execute(insert(interactions).values(**row, **liked))
            answer = {"request_id": f"old{number}", "version": 1, "variant": "stable", "generation": 1, "step": -1, "items": f"[{item}]"}
            connection.execute(insert(impressions).values(**row, **answer, size=1))


def refuse_old_days(engine: Engine) -> None:
    """Refuses the days as the platform does two days before it deletes them."""
    now = datetime.now(UTC)
    for table in TABLES:
        SqlEventDeletion(engine).refuse("movies", table, too_old_before(now, 400 * DAY).date(), now - 2 * DAY)


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
    refuse_old_days(engine)
    with platform:
        until("they are archived and deleted", lambda: count(engine) == (0, 0), 240)
        assert "events: compacted recommender=movies" in platform.log
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
