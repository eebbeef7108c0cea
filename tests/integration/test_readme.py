"""What the README tells a newcomer to write works as it stands."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from tests.support import PlatformProcess
from tests.worlds import spec

ROOT = Path(__file__).parents[2]


def test_the_readmes_spec_runs_as_it_is_written(platform: PlatformProcess) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    response = platform.client.post("/v1/recommenders", content=text, headers={"Content-Type": "application/yaml"})
    assert response.status_code == 201, response.text
    found = platform.wait_for_run(response.json()["run"], "registered", "rejected")  # the data is too small to promise more
    assert {gate["gate"] for gate in found["gates"]} >= {"hr@10 better than popularity"}


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
