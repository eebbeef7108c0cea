"""The life of a model on a real embedded platform with a real Triton, from the first start to the last stop, as one story."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import Crowd, quick_spec, spec, write_world

NAME = "movies"
STAGES = ["etl", "train", "evaluate", "refit", "export", "verify"]


@pytest.mark.requirement("C-05", "C-09", "G-11")
@pytest.mark.timeout(600)
def test_the_life_of_a_model(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_world(data)
    with PlatformProcess(tmp_path / "home", data) as platform:
        first_version_is_trained_and_promoted(platform)
        bad_spec_and_bad_model_never_reach_triton(platform)
        better_version_is_promoted_by_a_canary(platform)
        users_return_to_version_1_by_one_call(platform)
        version_that_users_like_less_is_rolled_back(platform)
        killed_platform_finishes_its_run_once(platform)
        killed_triton_returns_with_its_versions(platform)
        platform_stops_and_leaves_nothing(platform)


def first_version_is_trained_and_promoted(platform: PlatformProcess) -> None:
    run = finished_run(platform, version_spec(platform, model={"family": "popularity"}), "registered")
    assert run["version"] == 1
    platform.wait_for_rollout(run["rollout"], "promoted")
    assert until("version 1 answers", platform.model_answer)["version"] == 1


def bad_spec_and_bad_model_never_reach_triton(platform: PlatformProcess) -> None:
    refused = platform.client.post("/v1/recommenders", json=version_spec(platform, modle={}))
    assert (refused.status_code, "unknown field 'modle'" in refused.json()["detail"]) == (422, True)
    run = finished_run(platform, version_spec(platform, gates=[{"metric": "auc", "min": 0.99}]), "rejected")
    assert [gate["verdict"] for gate in run["gates"]] == ["fail"]
    assert (run["version"], run["rollout"]) == (None, None)
    assert versions(platform) == [1]
    assert on_triton(platform) == [1]


def better_version_is_promoted_by_a_canary(platform: PlatformProcess) -> None:
    run = finished_run(platform, version_spec(platform), "registered")
    assert (run["version"], run["stages"][0]["reused"]) == (2, True)
    crowd = canary_ends(platform, run["rollout"], "promoted", likes={1: 0.3, 2: 0.8})
    assert {version for seen in crowd.variants.values() for version in seen} == {1, 2}
    assert all(seen == sorted(seen) for seen in crowd.variants.values()), "a user who has seen version 2 keeps it"
    assert history(platform, run["rollout"]) == ["pending", "loading", "canary", "promoted"]
    assert until("all users get version 2", lambda: platform.model_answer(version=2))


def users_return_to_version_1_by_one_call(platform: PlatformProcess) -> None:
    platform.post(f"/v1/recommenders/{NAME}:rollback", {"reason": "second thoughts"})
    assert until("users get version 1", lambda: platform.model_answer(version=1))
    assert stable(platform) == 1


def version_that_users_like_less_is_rolled_back(platform: PlatformProcess) -> None:
    """Version 2 again, after users' tastes have changed."""
    rollout = platform.post(f"/v1/recommenders/{NAME}/rollouts", {"version": 2, "reason": "another try"})["id"]
    platform.wait_for_rollout(rollout, "canary")
    canary_ends(platform, rollout, "rolled_back", likes={1: 0.6, 2: 0.05})
    assert history(platform, rollout)[-1] == "rolled_back"
    assert stable(platform) == 1
    assert until("all users get version 1", lambda: platform.model_answer(version=1))


def killed_platform_finishes_its_run_once(platform: PlatformProcess) -> None:
    events = clicks(platform, 20)
    assert (events["accepted"], events["duplicates"]) == (20, 0)
    run = platform.post("/v1/recommenders", version_spec(platform, regularisation=900))["run"]
    until("the run trains", lambda: platform.children_with("pipelines.stages.train"))
    platform.kill()
    platform.start()
    assert until("version 1 answers again", platform.model_answer)["version"] == 1
    found = platform.wait_for_run(run, "registered")
    assert [stage["stage"] for stage in found["stages"]] == STAGES
    assert found["stages"][1]["attempt"] == f"{run}-train-2"
    states = [event["target"] for event in platform.get(f"/v1/runs/{run}/events")["items"]]
    assert (states[-1], states.count("registered")) == ("registered", 1)
    published = sorted(path.stem for path in (platform.home / "artifacts/manifests").glob(f"{run}-*.json"))
    assert published == sorted(stage["attempt"] for stage in found["stages"] if not stage["reused"])
    assert versions(platform) == [1, 2, 3]
    assert clicks(platform, 20)["duplicates"] == 20, "events that were accepted before the kill are stored, once"
    platform.wait_for_rollout(found["rollout"], "canary")
    platform.post(f"/v1/rollouts/{found['rollout']}:promote", {"reason": "it was judged before"})
    assert until("users get version 3", lambda: platform.model_answer(version=3))


def killed_triton_returns_with_its_versions(platform: PlatformProcess) -> None:
    answer = platform.model_answer(version=3)
    assert answer
    assert platform.kill_child("bin/tritonserver")
    meanwhile = platform.post(f"/v1/recommend/{NAME}", {"user": 1})
    assert meanwhile["items"], "popular items at least"
    again = until("the model answers again", lambda: platform.model_answer(version=3))
    assert again["items"] == answer["items"]


def platform_stops_and_leaves_nothing(platform: PlatformProcess) -> None:
    listening = platform.listening()
    assert {address for address, _ in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(listening) == 2, "the API and the metrics: Triton has no port"
    assert platform.shared_memory()
    token = platform.home / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    url, children = str(platform.client.base_url), platform.children()
    assert platform.stop(signal.SIGTERM) == 0
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert platform.shared_memory() == set()
    assert not (platform.home / "endpoint.json").exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")
    assert token.read_text() not in platform.log
    assert "Traceback" not in platform.log


def version_spec(platform: PlatformProcess, **changes: Any) -> dict[str, Any]:
    """A change of the model is a new family; answers are compared, so none of them is drawn."""
    serve = {"order": {"explore": {"rate": 0}}} | changes.pop("serve", {})
    make = spec if "model" in changes else quick_spec
    document = make(platform.data, serve=serve, **changes)
    document["rollout"]["steps"] = ["50%"]
    return document


def finished_run(platform: PlatformProcess, document: dict[str, Any], state: str) -> dict[str, Any]:
    run = platform.post("/v1/recommenders", document)["run"]
    return dict(platform.wait_for_run(run, state))


def canary_ends(platform: PlatformProcess, rollout: str, state: str, likes: dict[int, float]) -> Crowd:
    """Users ask until the canary has ended so, and click on what they like of a version; each of them gets an answer of a model."""
    crowd = Crowd(platform, likes.__getitem__)

    def ended() -> bool:
        crowd.come(10)
        return bool(platform.get(f"/v1/rollouts/{rollout}")["state"] == state)

    until(f"the rollout is {state}", ended, 120)
    crowd.come(10)
    assert crowd.fallbacks == []
    return crowd


def clicks(platform: PlatformProcess, count: int) -> dict[str, Any]:
    events = [{"recommender": NAME, "user": 1, "item": number, "value": 5, "id": f"click-{number}"} for number in range(1, count + 1)]
    return dict(platform.post("/v1/events", {"events": events}))


def versions(platform: PlatformProcess) -> list[int]:
    return sorted(one["version"] for one in platform.get(f"/v1/recommenders/{NAME}/versions")["items"])


def on_triton(platform: PlatformProcess) -> list[int]:
    return sorted(int(path.name) for path in (platform.home / "triton/models").glob("*/*") if path.is_dir())


def stable(platform: PlatformProcess) -> int:
    return int(platform.get(f"/v1/recommenders/{NAME}")["serving"]["stable"])


def history(platform: PlatformProcess, rollout: str) -> list[str]:
    return [event["target"] for event in platform.get(f"/v1/rollouts/{rollout}/events")["items"]]
