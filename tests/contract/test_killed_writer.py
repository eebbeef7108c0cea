"""Events of a process that was killed are there: whatever an event log has taken in is durable."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from shared.ports import HitRate
from shared.testing.event_suite import ATTRIBUTION, LATER, T0, shown

WRITER = """
import os, signal, sys
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from shared.testing.event_suite import did, like, shown
log = SqlEventLog(open_engine(sys.argv[1]))
log.impressions([shown('a')])
like(log, did(request_id='a'))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def test_events_survive_the_death_of_the_process_that_wrote_them(engine: Engine, database_url: str) -> None:
    log, kpis = SqlEventLog(engine), SqlKpis(engine)
    command = [sys.executable, "-c", WRITER, database_url]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
    assert kpis.hit_rate("films", 1, T0, LATER, ATTRIBUTION) == HitRate(1, 1)
    log.impressions([shown("b")])
