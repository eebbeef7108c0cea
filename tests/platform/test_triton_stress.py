"""The embedded Triton at its worst: versions that come and go under 32 threads, models that kill, a server that dies under load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from services.triton import orphan_cleanup, wheel
from shared.domain.errors import Unavailable
from shared.testing.askers import FEED, Askers, scores
from shared.testing.waiting import wait_for
from tests.servers.triton_fixture import Stand, left_of
from tests.support.broken_models import BROKEN, POISON, poisoned, slow_to_load
from tests.support.control_planes import SCALE
from tests.support.version_cycles import cycle

PATIENCE = 30.0
"""A machine that is busy with other things answers late; that isn't what is tested."""
CYCLES = max(25, round(1000 * SCALE))
PAUSE = 0.05 if SCALE >= 1 else 0.2


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    stand = Stand(tmp_path_factory.mktemp("hard"), timeout=10.0)
    yield stand
    stand.close()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path, timeout=PATIENCE)
    yield stand
    stand.close()
    wait_for(lambda: not left_of(stand.mark))


@pytest.mark.requirement("C-05")
@pytest.mark.timeout(3600)
def test_32_threads_never_miss_the_version_that_stays_while_others_come_and_go(stand: Stand) -> None:
    """1,000 cycles by EYAS_SCALE=1."""
    found = cycle(stand, CYCLES, points=5, pause=PAUSE)
    assert found.failures == []
    assert found.asked > CYCLES
    assert found.reported == CYCLES // 25
    last = CYCLES + 1
    assert stand.server.answering("movies") == {1, last}
    wait_for(lambda: {folder.rpartition("/")[2] for folder in stand.stub_folders()} == {"1", str(last)})
    assert sorted(path.name for path in stand.triton.repository.glob("*/*") if path.is_dir()) == sorted(["1", str(last)])
    orphan_cleanup.sweep_deserted(stand.mark, age=0)
    assert len(stand.regions()) == 2


@pytest.mark.requirement("C-05")
@pytest.mark.timeout(900)
def test_a_broken_model_is_reported_with_its_reason_and_nobody_else_notices(shared: Stand, subtests: pytest.Subtests) -> None:
    for number, (what, (make, said)) in enumerate(BROKEN.items(), start=2):
        with subtests.test(msg=what):
            shared.server.place("movies", [shared.unit(1)])
            server = shared.triton.pid
            with Askers(shared.server, "movies", 1) as traffic:
                faults = shared.server.place("movies", [shared.unit(1), shared.unit(number, model=make())])
                assert set(faults) == {number}
                assert said in faults[number]
                assert str(shared.triton.home) not in faults[number].partition("allowed directory")[0]
                assert shared.server.place("movies", [shared.unit(1), shared.unit(100 + number)]) == {}
                assert shared.server.score("movies", 100 + number, FEED).tolist() == scores(100 + number)
            assert traffic.failures == []
            assert traffic.answered > 0
            assert (shared.triton.pid, shared.triton.alive) == (server, True)


def test_whoever_computes_without_end_is_ended(shared: Stand) -> None:
    """Its caller has gone, it can't be unloaded while it computes: a core would be lost for ever."""
    shared.server.place("movies", [shared.unit(1), shared.unit(90, model=BROKEN["endless"][0]())])
    wait_for(lambda: not any("trial" in folder for folder in shared.stub_folders()))
    assert shared.server.answering("movies") == {1}


@pytest.mark.requirement("C-05")
def test_a_model_that_loads_slowly_is_waited_for_and_nobody_else_waits(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    with Askers(stand.server, "movies", 1, threads=4, pause=0.05) as askers:
        began = time.monotonic()
        faults = stand.server.place("movies", [stand.unit(1), stand.unit(2, model=slow_to_load(1200, 20))])
        ended = time.monotonic()
    assert faults == {}
    assert askers.failures == []
    inside = [call for call in askers.calls if began < call.at and call.at + call.seconds < ended]
    assert len(inside) > 10
    assert stand.server.answering("movies") == {1, 2}


def test_a_model_that_never_ends_loading_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = (Path(wheel.__file__).parent / "backend" / "model.py").read_text()
    assert "_LOAD = 240.0" in ours
    hasty = tmp_path / "model.py"
    hasty.write_text(ours.replace("_LOAD = 240.0", "_LOAD = 2.0").replace("_LAST = 10.0", "_LAST = 0.0"))
    monkeypatch.setattr(wheel, "_OURS", hasty)
    stand = Stand(tmp_path, timeout=PATIENCE)
    try:
        stand.server.place("movies", [stand.unit(1)])
        with Askers(stand.server, "movies", 1, threads=4, pause=0.05) as askers:
            faults = stand.server.place("movies", [stand.unit(1), stand.unit(2, model=slow_to_load(3000, 400))])
        assert "died" in faults[2]
        assert askers.failures == []
        assert stand.server.answering("movies") == {1}
        assert stand.server.place("movies", [stand.unit(1), stand.unit(3)]) == {}
    finally:
        stand.close()


@pytest.mark.requirement("C-05")
def test_a_version_that_one_user_kills_comes_back_and_its_neighbour_never_notices(stand: Stand) -> None:
    """No trial finds such a model: it answers, until that user comes."""
    assert stand.server.place("movies", [stand.unit(1), stand.unit(2, model=poisoned())]) == {}
    server = stand.triton.pid
    with Askers(stand.server, "movies", 1, threads=8, pause=0.05) as askers:
        for _ in range(3):
            with pytest.raises(Unavailable, match="has died"):
                stand.server.score("movies", 2, FEED | {"user": np.full(3, POISON)})
            assert stand.server.answering("movies") == {1}
            stand.server.ensure_running()
            assert stand.server.answering("movies") == {1, 2}
    assert askers.failures == []
    assert (stand.triton.pid, stand.triton.alive) == (server, True)


def test_what_dead_processes_leave_in_shared_memory_is_swept_and_what_lives_keeps_its_own(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    for number, what in enumerate(("crashing", "crashing at load"), start=2):
        stand.server.place("movies", [stand.unit(1), stand.unit(number, model=BROKEN[what][0]())])
    wait_for(lambda: list(stand.stubs()) == ["1"])
    assert len(stand.regions()) > 1
    orphan_cleanup.sweep_deserted(stand.mark)
    assert len(stand.regions()) > 1, "they are young"
    orphan_cleanup.sweep_deserted(stand.mark, age=0)
    assert len(stand.regions()) == 1
    assert stand.server.score("movies", 1, FEED).tolist() == scores(1)
    stand.server.place("movies", [stand.unit(1), stand.unit(9)])
    assert stand.server.answering("movies") == {1, 9}


@pytest.mark.requirement("C-05")
def test_a_server_that_is_killed_under_load_is_back_with_the_right_versions(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1), stand.unit(2), stand.unit(3, tags=True)])
    stand.server.place("movies", [stand.unit(1), stand.unit(3, tags=True)])
    with Askers(stand.server, "movies", 1, threads=32, pause=0.05) as askers:
        for _ in range(2):
            wait_for(lambda: askers.calls and not askers.calls[-1].failure)
            os.kill(stand.triton.pid or 0, signal.SIGKILL)
            wait_for(lambda: not stand.triton.alive)
            assert stand.server.ensure_running() is True
            back = time.monotonic()
            assert stand.server.answering("movies") == {1, 3}
            wait_for(lambda back=back: any(call.at > back for call in askers.calls))
    assert [call.failure for call in askers.calls if call.at > back and call.failure] == []
    with pytest.raises(Unavailable):
        stand.server.score("movies", 2, FEED)
