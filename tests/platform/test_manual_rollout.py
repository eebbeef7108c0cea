"""A person leads a rollout: pause, resume, promote, roll back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platform.conftest import Copy
from tests.servers.platform_process import until
from tests.support.platform_world import Visitors, quick_spec


@pytest.mark.requirement("C-05")
def test_a_person_leads_a_rollout_and_no_request_fails(tmp_path: Path, copy_of_trained: Copy) -> None:
    """What was asked for happens and is written down, under traffic."""
    with copy_of_trained(tmp_path) as platform:
        until("the first answer", platform.model_answer)
        with Visitors(platform) as visitors:
            run = platform.post("/v1/recommenders", quick_spec(platform.data, regularisation=900))["run"]
            rollout = platform.wait_for_run(run, "registered")["rollout"]
            platform.wait_for_rollout(rollout, "canary")
            path = f"/v1/rollouts/{rollout}"
            platform.post(f"{path}:pause", {"reason": "lunch"})
            assert platform.wait_for_rollout(rollout, "paused")["reason"].endswith("lunch")
            assert platform.client.post(f"{path}:pause", json={}).status_code == 409
            platform.post(f"{path}:resume")
            platform.wait_for_rollout(rollout, "canary")
            platform.post(f"{path}:promote", {"reason": "looks good"})
            platform.wait_for_rollout(rollout, "promoted")
            until("users see version 2", lambda: visitors.newest == 2)
            platform.post("/v1/recommenders/movies:rollback", {"reason": "second thoughts"})
            until("users see version 1", lambda: visitors.newest == 1)
        assert visitors.failures == []
        assert visitors.answers > 100
        targets = [entry["target"] for entry in platform.get(f"{path}/events")["items"]]
        assert targets == ["pending", "loading", "canary", "paused", "canary", "promoted"]
        assert platform.get("/v1/recommenders/movies")["serving"]["stable"] == 1
