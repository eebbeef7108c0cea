"""One spec, applied by many at once."""

from __future__ import annotations

import threading

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import spec


def test_one_spec_that_is_applied_by_many_at_once_starts_one_run(platform: PlatformProcess) -> None:
    document = spec(platform.data) | {"name": "crowded"}
    start, runs = threading.Barrier(6), []

    def apply() -> None:
        start.wait()
        runs.append(platform.post("/v1/recommenders", document)["run"])

    threads = [threading.Thread(target=apply) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    started = [run for run in runs if run]
    assert len(runs) == 6
    assert len(started) == 1
    platform.post(f"/v1/runs/{started[0]}:cancel")
