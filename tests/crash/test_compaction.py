"""kill -9 of a real compaction, at several points of its life: the next one finishes, and each row is written once."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine

from services.eventlog.days import SqlEventDays
from services.eventlog.sql import SqlEventLog
from services.executors.local import LocalExecutor
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.domain.archive import start_of
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.compacting import EVERY, Place
from tests.support import until

DAYS, ROWS = 12, 6_000
FIRST, LAST = start_of(date(2026, 3, 5)), date(2026, 3, 20)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    upgrade(engine)
    return engine


def fill(log: SqlEventLog, start: int) -> None:
    at = [FIRST + timedelta(days=n % DAYS, seconds=n) for n in range(start, start + ROWS)]
    log.impressions([shown(f"q{start + n}", one, user=n) for n, one in enumerate(at)])
    log.interactions([did(10, one, user=n, kind="click") for n, one in enumerate(at)], [True] * ROWS, ATTRIBUTION)


def kill_the_stage() -> None:
    """The interpreter under its shim, and the shim with it."""
    for child in psutil.Process().children(recursive=True):
        if "pipelines.stages.etl" in " ".join(child.cmdline()):
            child.kill()


def test_a_compaction_that_is_killed_again_and_again_writes_each_row_once(tmp_path: Path, engine: Engine) -> None:
    log = SqlEventLog(engine)
    here = Place(tmp_path, log, SqlEventDays(engine))
    fill(log, 0)
    work = tmp_path / "work"
    here.executor = executor = LocalExecutor(work, {"etl": "pipelines.stages.etl"})
    compactor = here.compactor()
    blobs = tmp_path / "artifacts/blobs"
    # it began, it fetched what it reads, it wrote some of its files, all but the last are in the store
    points = [
        lambda one: True,
        lambda one: (work / one / "inputs").exists(),
        lambda one: len(list((work / one / "out").rglob("*.parquet"))) >= DAYS,
        lambda one: len([path for path in blobs.rglob("*") if path.is_file()]) > 2 * DAYS + 4,
    ]
    try:
        for number, reached in enumerate(points, 1):
            attempt = f"compact-films-0-etl-{number}"

            def running(attempt: str = attempt) -> bool:
                compactor.step()
                return executor.observe(attempt) is not None

            until(f"{attempt} runs", running)
            until("it is as far as that", lambda reached=reached, one=attempt: reached(one))  # type: ignore[misc]
            kill_the_stage()
            until("it has ended", lambda one=attempt: executor.observe(one).phase != "running")  # type: ignore[misc]
            assert here.read().equals(here.plain())
            compactor.step()
            here.clock.time += EVERY
        fill(log, ROWS)  # stragglers of days that are being written

        def compacted() -> bool:
            compactor.step()
            here.clock.time += timedelta(minutes=1)
            return sum(sum(keys.values()) for keys in here.written("impressions").values()) == 2 * ROWS

        until("all is written", compacted, 120)
    finally:
        executor.close()
    compactor.step()
    here.check(LAST)
    assert here.read().equals(here.plain())
    assert not list((tmp_path / "artifacts/events").rglob(".*")), "half a file"
