"""kill -9 of the platform in the middle of things: `eyas up` resumes to the right end, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import Crowd, spec, write_world

STAGES = ["etl", "train", "evaluate", "refit", "export", "verify"]


def published(home: Path, run: str) -> list[str]:
    return sorted(path.stem.removeprefix(f"{run}-") for path in (home / "artifacts/manifests").glob(f"{run}-*.json"))


@pytest.mark.requirement("C-09")
def test_a_platform_killed_in_training_and_in_its_canary_resumes_both(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    write_world(data)
    with PlatformProcess(home, data) as platform:
        wanted = spec(data, epochs=60)
        wanted["model"]["train"]["checkpoint"] = {"steps": 20}
        run = platform.post("/v1/recommenders", wanted)["run"]

        def is_training() -> bool:
            found = platform.get(f"/v1/runs/{run}")
            return found["state"] == "train" and found["progress"] is not None and len(found["progress"]["history"]) > 0

        until("the first epoch of training", is_training, 120)
        platform.kill()
        platform.start()
        found = platform.wait_for_run(run, "registered")
        assert [done["stage"] for done in found["stages"]] == STAGES
        assert found["stages"][1]["attempt"] == f"{run}-train-2" and found["progress"] is None
        assert f"checkpoint: training continued from_attempt={run}-train-1 " in platform.get(f"/v1/runs/{run}/logs", stage="train")["text"]
        assert published(home, run) == sorted(done["attempt"].removeprefix(f"{run}-") for done in found["stages"])
        assert len(platform.get("/v1/recommenders/movies/versions")["items"]) == 1
        platform.wait_for_rollout(found["rollout"], "promoted")

        second = platform.post("/v1/recommenders", spec(data, epochs=2))["run"]
        rollout = platform.wait_for_run(second, "registered")["rollout"]
        platform.wait_for_rollout(rollout, "canary")
        crowd = Crowd(platform, lambda version: {1: 0.25, 2: 0.75}[version])
        until("the crowd meets both versions", lambda: crowd.come(20) or len({v for vs in crowd.variants.values() for v in vs}) == 2)
        before = platform.get(f"/v1/rollouts/{rollout}")
        assert before["state"] == "canary"
        platform.kill()
        platform.start()
        after = platform.get(f"/v1/rollouts/{rollout}")
        assert (after["state"], after["created_at"]) == ("canary", before["created_at"])
        firsts = [platform.post("/v1/recommend/movies", {"user": user, "k": 5}) for user in range(1, 61)]
        assert {one["version"] for one in firsts} == {1, 2}
        assert "scoring unavailable" not in {one["fallback"] for one in firsts}, "it is ready when its versions are back"
        assert after["step"] >= before["step"]

        def ended() -> bool:
            crowd.come(20)
            return platform.get(f"/v1/rollouts/{rollout}")["state"] != "canary"

        until("the rollout's end", ended, 180)
        assert platform.get(f"/v1/rollouts/{rollout}")["state"] == "promoted"
        assert platform.get("/v1/recommenders/movies")["serving"]["stable"] == 2
        assert published(home, second) == sorted(f"{stage}-1" for stage in STAGES if stage != "etl"), "the data hasn't changed"
        history = [entry["target"] for entry in platform.get(f"/v1/rollouts/{rollout}/events")["items"]]
        assert history.count("promoted") == 1
        assert all(versions == sorted(versions) for versions in crowd.variants.values()), "a user went back to the old version"
