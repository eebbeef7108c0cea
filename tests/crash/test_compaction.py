"""kill -9 of a real compaction, at several points of its life: the next one finishes, and each row is written once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine

from services.eventlog.sql import SqlEventLog
from services.executors.local import LocalExecutor
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.domain.archive import start_of
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.servers.platform_process import until
from tests.support.compaction import EVERY, Place

DAYS, ROWS, MOST = 12, 6_000, 10
"""`MOST`: so often there are new events for one that is killed."""
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


def the_stage() -> list[psutil.Process]:
    """With its shim, while there is one."""
    return [child for child in psutil.Process().children(recursive=True) if "pipelines.stages.etl" in " ".join(child.cmdline())]


def test_a_compaction_that_is_killed_again_and_again_writes_each_row_once(tmp_path: Path, engine: Engine) -> None:
    log = SqlEventLog(engine)
    place = Place(tmp_path, engine)
    work = tmp_path / "work"
    place.executor = executor = LocalExecutor(work, {"etl": "pipelines.stages.etl"})
    compactor = place.compactor()

    def blobs() -> int:
        return sum(path.is_file() for path in (tmp_path / "artifacts/blobs").rglob("*"))

    # it began, it fetched what it reads, it wrote half of its files, some of them are in the store
    points: list[Callable[[str, int], bool]] = [
        lambda one, had: True,
        lambda one, had: (work / one / "inputs").exists(),
        lambda one, had: len(list((work / one / "out").rglob("*.parquet"))) >= DAYS,
        lambda one, had: blobs() > had + 4,
    ]
    filled = 0

    def more() -> None:
        nonlocal filled
        assert filled < MOST, "compactions end before they are killed"
        fill(log, filled * ROWS)
        filled += 1

    def killed(reached: Callable[[str, int], bool], number: int, n: int) -> bool:
        """Whether a try of a compaction was killed at a point; it may have ended before."""
        attempt = f"compact-films-{number}-etl-{n}"

        def running() -> bool:
            compactor.step()
            return executor.observe(attempt) is not None

        def ended() -> bool:
            return executor.observe(attempt).phase != "running"  # type: ignore[union-attr]

        until(f"{attempt} runs", running)
        had = blobs()
        until("the stage is there", lambda: the_stage() or ended())
        stage = the_stage()
        while not (reached(attempt, had) or ended()):
            pass  # what it does next takes milliseconds
        for process in stage:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until("it has ended", ended)
        assert place.read().equals(place.plain())
        compactor.step()
        place.clock.time += EVERY
        return place.store.manifest(attempt) is None

    try:
        more()
        number, n = 0, 1
        for reached in points:
            while not killed(reached, number, n):
                number, n = number + 1, 1
                more()
            n += 1
        more()  # stragglers of days that are being written

        def compacted() -> bool:
            compactor.step()
            place.clock.time += timedelta(minutes=1)
            return sum(sum(keys.values()) for keys in place.written("impressions").values()) == filled * ROWS

        until("all is written", compacted, 120)
    finally:
        executor.close()
    compactor.step()
    place.check(LAST)
    assert place.read().equals(place.plain())
    assert not list((tmp_path / "artifacts/events").rglob(".*")), "half a file"
