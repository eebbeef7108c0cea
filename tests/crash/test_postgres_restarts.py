"""PostgreSQL is restarted again and again under many runs: all of them end legally, none is stuck."""

from __future__ import annotations

import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

from tests.servers.postgres_server import postgres_server
from tests.support.control_planes import SCALE, Fleet, scaled

PLANES = 2
PAUSE = 3.0 if SCALE >= 1 else 0.5


def test_runs_end_legally_though_the_database_restarts_every_few_seconds(tmp_path: Path) -> None:
    """1,000 runs by EYAS_SCALE=1. In turns a fast shutdown, a crash, and a kill -9."""
    count, restarts, began = scaled(1000), 0, time.monotonic()
    with postgres_server() as server:
        fleet = Fleet(tmp_path, server.new_database(), PLANES, term=timedelta(seconds=3))
        fleet.launch(count)
        ended = threading.Event()

        def live(number: int) -> None:
            while not ended.wait(0.05):
                fleet.tick(number)

        def beat(number: int) -> None:
            while not ended.wait(0.5):
                fleet.beat(number)

        threads = [threading.Thread(target=act, args=(n,)) for act in (live, beat) for n in range(PLANES)]
        for one in threads:
            one.start()
        try:
            while fleet.unfinished() or restarts < 3:
                time.sleep(PAUSE)
                server.restart((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)[restarts % 3])
                restarts += 1
        finally:
            ended.set()
            for one in threads:
                one.join()
        print(f"{count} runs, {restarts} restarts, {time.monotonic() - began:.0f} s, faults {dict(fleet.faults)}")  # noqa: T201  the figures
        fleet.check(count)
        fleet.close()
