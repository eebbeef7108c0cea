"""Eight control planes on the same rows at the same time, with no claims to keep them apart: not one update is lost."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.control_planes import Fleet, scaled

PLANES = 8


def test_eight_control_planes_on_the_same_runs_lose_no_update(tmp_path: Path, database_url: str) -> None:
    """500 runs by EYAS_SCALE=1."""
    count = scaled(500)
    fleet = Fleet(tmp_path, database_url, PLANES)
    fleet.launch(count)
    together = threading.Barrier(PLANES)

    def live(number: int) -> None:
        together.wait()
        while fleet.unfinished():
            fleet.tick(number)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(PLANES)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    conflicts = sum(rows.conflicts for rows in fleet.rows)
    print(f"{count} runs under {PLANES} control planes: {conflicts} races lost, faults {dict(fleet.faults)}")  # noqa: T201  the figures
    assert conflicts > count, "nobody met anybody"
    fleet.check(count)
    fleet.close()
