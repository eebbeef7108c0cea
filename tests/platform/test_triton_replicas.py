"""Two Tritons, each a process of its own, behind one rollout of a platform in parts; and a fleet under violence."""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.rollout_world import NAME, World
from services.triton.replica_selection import VersionState
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.route import Route
from shared.testing.askers import FEED, Askers, scores
from shared.testing.model_server_suite import tiny_unit
from shared.testing.threads import Threads
from tests.platform.test_triton_failures import BROKEN
from tests.servers.platform_parts import TOKEN, Part, Parts
from tests.servers.platform_process import checked, until
from tests.servers.triton_fixture import PatientFleet

PEOPLE = 400


class Fleet:
    """Two servers, and the loop that looks after them."""

    def __init__(self, folder: Path) -> None:
        self.store = FsspecArtifacts(str(folder / "artifacts"))
        self.tritons = EmbeddedTritons(folder / "server", 2)
        self.tritons.start()
        # Generous: on a busy machine a call takes long, and that is no failure here.
        self.server = PatientFleet(self.tritons, self.store, timeout=20, probe_every=1, heal_every=1)
        self._over = threading.Event()
        self._loop = threading.Thread(target=self._look)
        self._loop.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.server.ensure_running()

    def unit(self, number: int, **more: Any) -> Any:
        return tiny_unit(self.store, "movies", number, **more)

    def states(self) -> list[str]:
        return [one.state for one in self.server.info().replicas]

    def close(self) -> None:
        self._over.set()
        self._loop.join()
        self.server.close()
        self.tritons.stop()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path)
    yield found
    found.close()


@pytest.mark.requirement("C-05")
def test_a_killed_replica_costs_no_request_and_takes_none_before_it_has_its_versions(fleet: Fleet) -> None:
    fleet.server.place("movies", [fleet.unit(1), fleet.unit(2)])
    until("both are ready", lambda: fleet.states() == ["ready", "ready"])
    member = fleet.server._members["triton-2"]
    ask, early = member.server.ask, list[object]()

    def watched(key: Any, feed: Any, timeout: float) -> Any:
        if member.server.owing and fleet.tritons.servers["triton-2"].alive:
            early.append(member.standing(key))
        return ask(key, feed, timeout)

    member.server.ask = watched  # type: ignore[method-assign]
    with Askers(fleet.server, "movies", 1) as one, Askers(fleet.server, "movies", 2) as two:
        pid = fleet.tritons.servers["triton-2"].pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        until("another one was started", lambda: fleet.tritons.servers["triton-2"].pid != pid, 60)
        until("it has both versions", lambda: member.server.answering("movies") == {1, 2}, 60)
        until("it is ready again", lambda: fleet.states() == ["ready", "ready"], 60)
        counted = one.answered
        until("requests go on", lambda: one.answered > counted + 20)
    assert (one.failures, two.failures, early) == ([], [], [])
    assert member.server.score("movies", 2, FEED).tolist() == scores(2)
    assert fleet.server.answering("movies") == {1, 2}


@pytest.mark.requirement("C-05")
def test_a_dead_process_of_a_version_is_found_and_healed_on_its_replica_alone(fleet: Fleet) -> None:
    fleet.server.place("movies", [fleet.unit(1)])
    until("both are ready", lambda: fleet.states() == ["ready", "ready"])
    server = fleet.tritons.servers["triton-1"]
    (stub,) = [one for one in psutil.Process(server.pid).children(recursive=True) if any("/eyas-movies_" in word for word in cmdline(one))]
    with Askers(fleet.server, "movies", 1) as traffic:
        stub.kill()
        until("a request found it", lambda: fleet.server._members["triton-1"].standing(("movies", 1)) is VersionState.DOUBTED, 60)
        until("it was healed", lambda: fleet.server.answering("movies") == {1}, 60)
        until("and is asked again", lambda: fleet.server._members["triton-1"].standing(("movies", 1)) is VersionState.GOOD, 60)
    assert traffic.failures == []
    assert fleet.server._members["triton-1"].server.answering("movies") == {1}


@pytest.mark.requirement("C-05")
def test_no_broken_model_disturbs_the_version_that_serves_on_any_replica(fleet: Fleet) -> None:
    fleet.server.place("movies", [fleet.unit(1)])
    until("both are ready", lambda: fleet.states() == ["ready", "ready"])
    with Askers(fleet.server, "movies", 1) as traffic:
        for number, (what, content) in enumerate(BROKEN.items(), start=2):
            faults = fleet.server.place("movies", [fleet.unit(1), fleet.unit(number, model=content)])
            assert set(faults) == {number}, what
            assert fleet.states() == ["ready", "ready"], what
    assert traffic.failures == []
    assert [one.server.answering("movies") for one in fleet.server._members.values()] == [{1}, {1}]


def cmdline(process: psutil.Process) -> list[str]:
    """Nothing of one that has ended: the process of a trial, which Triton hasn't waited for yet."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


class Callers(Threads):
    """Users who ask a gateway without a pause, and count what they got."""

    def __init__(self, url: str, count: int = 3) -> None:
        super().__init__(*(functools.partial(self._ask, seed) for seed in range(count)))
        self._url = url
        self.answered = 0
        self.versions: set[int] = set()
        self.failures: list[str] = []

    def _ask(self, seed: int) -> None:
        users = random.Random(seed)
        with httpx.Client(base_url=self._url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20) as client:
            while not self.over.is_set():
                try:
                    answer = client.post(f"/v1/recommend/{NAME}", json={"user": users.randrange(PEOPLE), "k": 5})
                    found = answer.json()
                    if not answer.is_success or found["fallback"] == "scoring unavailable":
                        self.failures.append(answer.text)
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                else:
                    self.answered += 1
                    self.versions.add(found["version"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Registered versions, without a run; a canary that stays where it is."""
    slow = {"attribution": "5m", "window": "5m", "max_harm": "10%", "min_users": 5000, "deadline": "1h"}
    found = World(tmp_path_factory.mktemp("replicas") / "home", PEOPLE, {"steps": ["50%"], "analysis": slow})
    found.version()
    found.serve(Route(1))
    yield found
    found.close()


@pytest.fixture(scope="module")
def parts(world: World) -> Iterator[Parts]:
    running = Parts(Path(world.artifacts.url).parents[1], tritons=2)
    try:
        yield running
    finally:
        codes = {part.name: part.stop() for part in running.parts}
    assert set(codes.values()) == {0}


@pytest.fixture(scope="module")
def early(parts: Parts, world: World) -> list[Any]:
    """Begins a canary of version 2. What it returns is to be empty: routes that gave it weight before both replicas had it."""
    seen = list[Any]()
    with parts.client(parts.control) as control:
        until("both have the first version", lambda: all_have([1])(replicas(control)))
        until("both pods would be ready", lambda: all(map(is_ready, parts.healths)))
        world.start(world.version(), "second")

        def in_canary() -> bool:
            found = checked(control.get("/v1/serving"))
            weight = found["routes"][NAME]["weight"]
            if weight and not all(2 in one["versions"][NAME] for one in found["server"]["replicas"]):
                seen.append(found)
            return bool(weight)

        until("the canary began", in_canary, 180)
    return seen


def replicas(control: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = checked(control.get("/v1/serving"))["server"]["replicas"]
    return found


def all_have(versions: list[int]) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda found: len(found) == 2 and all(one["state"] == "ready" and one["versions"] == {NAME: versions} for one in found)


def tritonserver(part: Part) -> psutil.Process | None:
    found = [one for one in psutil.Process(part.process.pid).children() if "tritonserver" in one.name()]
    return found[0] if found else None


def is_ready(health: str) -> bool:
    return httpx.get(f"{health}/ready", timeout=20).status_code == 200


@pytest.mark.requirement("C-05", "G-11")
def test_versions_reach_both_before_any_weight_moves(parts: Parts, early: list[Any]) -> None:
    assert early == []
    with parts.client(parts.control) as control:
        assert all_have([1, 2])(replicas(control))


@pytest.mark.usefixtures("early")
@pytest.mark.requirement("C-05")
def test_a_replica_that_is_killed_in_the_canary_comes_back_with_both_versions_and_no_request_fails(parts: Parts) -> None:
    second = parts.tritons[1]
    with parts.client(parts.control) as control, Callers(parts.gateway.url()) as callers:
        until("both variants answer", lambda: callers.versions == {1, 2})
        killed = tritonserver(second)
        assert killed
        before = checked(control.get("/v1/serving"))["routes"][NAME]
        killed.kill()
        until("it was started again", lambda: (now := tritonserver(second)) and now != killed)
        until("it was told that it has its versions", lambda: is_ready(parts.healths[1]))
        until("it has both versions again", lambda: all_have([1, 2])(replicas(control)))
        answered = callers.answered
        until("requests go on", lambda: callers.answered > answered + 20)
        assert checked(control.get("/v1/serving"))["routes"][NAME] == before
    assert callers.failures == []


@pytest.mark.usefixtures("early")
@pytest.mark.requirement("C-05", "C-07")
def test_new_certificates_restart_one_replica_at_a_time_and_no_request_fails(parts: Parts) -> None:
    with parts.client(parts.control) as control, Callers(parts.gateway.url()) as callers:
        until("both variants answer", lambda: callers.versions == {1, 2})
        before = [tritonserver(triton) for triton in parts.tritons]
        parts.authority.client()
        parts.authority.server()
        alive = set[int]()

        def both_are_new() -> bool:
            now = [tritonserver(triton) for triton in parts.tritons]
            alive.add(sum(server is not None for server in now))
            return all(server and server not in before for server in now)

        until("both were started again", both_are_new, 120)
        assert min(alive) >= 1
        until("both have their versions", lambda: all_have([1, 2])(replicas(control)))
        until("both are ready", lambda: all(map(is_ready, parts.healths)))
        answered = callers.answered
        until("requests go on", lambda: callers.answered > answered + 50)
    assert callers.failures == []
    for triton in parts.tritons:
        assert triton.said().count("restarting with new certificates") == 1


@pytest.mark.usefixtures("early")
@pytest.mark.requirement("C-05")
def test_a_gateway_without_its_control_plane_serves_its_last_generation_from_whoever_is_left(parts: Parts) -> None:
    """Nobody can place now: a replica that begins anew stays empty, and isn't asked."""
    assert parts.control.stop() == 0
    second = parts.tritons[1]
    with Callers(parts.gateway.url()) as callers:
        until("both variants answer", lambda: callers.versions == {1, 2})
        killed = tritonserver(second)
        assert killed
        killed.kill()
        until("it was started again", lambda: (now := tritonserver(second)) and now != killed)
        until("it answers", lambda: httpx.get(parts.healths[1], timeout=20).status_code == 200)
        assert not is_ready(parts.healths[1])
        answered = callers.answered
        until("requests go on", lambda: callers.answered > answered + 50)
    assert callers.failures == []
    parts.control.start()
    with parts.client(parts.control) as control:
        until("the control plane is back", lambda: control.get("/readyz").is_success)
        until("it gave both their versions", lambda: all_have([1, 2])(replicas(control)))
    until("and it is ready", lambda: is_ready(parts.healths[1]))
