"""A Triton that hangs: a load that does not end, and a server that does not answer. Others go on, and it is started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from services.triton.fleet import TritonFleet
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import Pending, Unavailable
from shared.testing.model_server_suite import tiny_unit
from shared.testing.waiting import wait_for
from tests.platform.conftest import Copy
from tests.servers.platform_process import until
from tests.servers.triton_fixture import stub_folders
from tests.support.broken_models import slow_to_load
from tests.support.platform_world import quick_spec

ENDLESS = (1500, 3000)
"""Matrices of this side, multiplied so often while the model is loaded: many minutes."""


@pytest.fixture
def tritons(tmp_path: Path) -> Iterator[EmbeddedTritons]:
    found = EmbeddedTritons(tmp_path / "triton")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    return FsspecArtifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def fleet(tritons: EmbeddedTritons, store: FsspecArtifacts) -> Iterator[TritonFleet]:
    found = TritonFleet(tritons, store, hangs=2)
    yield found
    found.close()


def settled(place: Callable[[], object]) -> bool:
    try:
        place()
    except Unavailable:
        return False
    return True


def pid_of(tritons: EmbeddedTritons) -> int:
    pid = tritons.servers["triton-1"].pid
    assert pid is not None
    return pid


@pytest.mark.requirement("C-05")
def test_a_version_whose_load_hangs_delays_no_other_and_is_at_fault(
    fleet: TritonFleet, tritons: EmbeddedTritons, store: FsspecArtifacts
) -> None:
    first, hanging = tiny_unit(store, "movies", 1), tiny_unit(store, "movies", 2, model=slow_to_load(*ENDLESS))
    wait_for(lambda: settled(lambda: fleet.place("movies", [first])))

    def place() -> object:
        return fleet.place("movies", [first, hanging])

    with pytest.raises(Pending, match="movies: still loading: version 2"):
        place()
    wait_for(lambda: settled(lambda: fleet.place("films", [tiny_unit(store, "films", 1)])))
    fleet.ensure_running()
    with pytest.raises(Pending):
        place()
    assert (fleet.answering("films"), fleet.answering("movies")) == ({1}, {1})
    assert [one.state for one in fleet.info().replicas] == ["ready"]
    (trial,) = (pid for folder, pid in stub_folders(pid_of(tritons)).items() if "trial" in folder)
    os.kill(trial, signal.SIGKILL)  # as the backend itself does after four minutes
    found: list[object] = []
    wait_for(lambda: settled(lambda: found.append(place())))
    (faults,) = found
    assert isinstance(faults, dict)
    assert list(faults) == [2]
    assert (fleet.answering("films"), fleet.answering("movies")) == ({1}, {1})


@pytest.mark.requirement("C-05")
def test_a_server_that_stops_answering_while_it_loads_is_ended_and_gets_back_what_served(
    fleet: TritonFleet, tritons: EmbeddedTritons, store: FsspecArtifacts
) -> None:
    first, hanging = tiny_unit(store, "movies", 1), tiny_unit(store, "movies", 2, model=slow_to_load(*ENDLESS))
    wait_for(lambda: settled(lambda: fleet.place("movies", [first])))
    wait_for(lambda: settled(lambda: fleet.place("films", [tiny_unit(store, "films", 1)])))
    with pytest.raises(Pending):
        fleet.place("movies", [first, hanging])
    stopped = pid_of(tritons)
    os.kill(stopped, signal.SIGSTOP)

    def back() -> bool:
        settled(fleet.ensure_running)
        settled(lambda: fleet.place("movies", [first, hanging]))
        return fleet.answering("movies") == {1} and fleet.answering("films") == {1}

    wait_for(back)
    assert pid_of(tritons) != stopped
    assert not psutil.pid_exists(stopped)


@pytest.mark.requirement("C-05")
def test_while_the_server_hangs_the_work_of_others_goes_on(copy_of_trained: Copy, tmp_path: Path) -> None:
    with copy_of_trained(tmp_path) as platform:
        until("version 1 answers", platform.model_answer)
        (server,) = platform.children_with("tritonserver")
        server.suspend()
        run = platform.post("/v1/recommenders", quick_spec(platform.data, name="films"))["run"]
        until("the other recommender's run has begun", lambda: platform.get(f"/v1/runs/{run}")["state"] != "pending")
        assert server.is_running()
        assert server.status() == psutil.STATUS_STOPPED
        until("a new server answers", platform.model_answer)
        assert not server.is_running()
        assert "replica: no answer, it is killed and restarted" in platform.log
        platform.wait_for_rollout(platform.wait_for_run(run, "registered")["rollout"], "promoted")
        until("the other recommender answers", lambda: platform.model_answer("films"))
