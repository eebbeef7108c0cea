"""A fleet's rules, on servers that do what a test says: who is ready, who is waited for, who is asked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.triton import fleet as module
from services.triton import replica
from services.triton.client import ServerLost
from services.triton.counters import ReplicaCounts
from services.triton.fleet import TritonFleet
from shared.domain.errors import Pending, Unavailable
from shared.ports import ServedUnit, ServerInfo
from shared.testing.waiting import wait_for

KEY = ("movies", 1)
UNITS = [ServedUnit("movies", 1, {})]


class Triton:
    """Both a host and its server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = name
        self.repository = Path(name, "models")
        self.up = True
        self.broken: set[int] = set()
        self.slow: threading.Event | None = None
        self.wanted: dict[str, list[ServedUnit]] = {}
        self.owed: set[str] = set()
        self.lost: set[str] = set()
        self.trial_ended: threading.Event | None = None
        self.trying: set[str] = set()
        self.loaded: set[tuple[str, int]] = set()
        self.count = 0
        self.tally = ReplicaCounts()
        self.vouched = 0
        self.generation = 1
        self.ended = 0
        self.placings = 0
        self.looks = 0
        self.restarts = 0
        self.closed = False

    def die(self) -> None:
        self.up, self.loaded, self.owed, self.lost = False, set(), set(self.wanted), set(self.wanted)

    # What a TritonServer is asked.
    @property
    def placed(self) -> frozenset[tuple[str, int]]:
        return frozenset(self.loaded)

    @property
    def owing(self) -> bool:
        return bool(self.owed - self.trying)

    @property
    def returning(self) -> bool:
        return bool(self.lost)

    @property
    def settled(self) -> bool:
        return self.up and not self.owed

    def kill(self, generation: int) -> bool:
        self.ended += 1
        return True

    def want(self, recommender: str, units: list[ServedUnit]) -> None:
        self.wanted[recommender] = units
        self.owed.add(recommender)
        self.lost.add(recommender)

    def retry(self, recommenders: set[str]) -> None:
        self.owed |= self.wanted.keys() & recommenders

    def place(self, recommender: str, units: list[ServedUnit]) -> Mapping[int, str]:
        self.wanted[recommender] = units
        self.owed.add(recommender)
        self.placings += 1
        if self.slow is not None:
            self.slow.wait(30)
        if not self.up:
            raise Unavailable(f"{self.name} is away")
        if self.trial_ended is not None and not self.trial_ended.is_set():
            self.trying.add(recommender)
            raise Pending(f"{recommender} is still being loaded")
        self.trying.discard(recommender)
        self.owed.discard(recommender)
        self.lost.discard(recommender)
        numbers = {unit.number for unit in units}
        kept = {key for key in self.loaded if key[0] != recommender}
        self.loaded = kept | {(recommender, number) for number in numbers - self.broken}
        return dict.fromkeys(numbers & self.broken, "no ONNX file")

    def ensure_running(self) -> bool:
        self.looks += 1
        if self.up:
            for name in tuple(self.owed):
                self.place(name, self.wanted[name])
        restarts, self.restarts = self.restarts, 0
        return restarts > 0

    def reachable(self) -> bool:
        return self.up

    def answering(self, recommender: str) -> frozenset[int]:
        return frozenset(number for name, number in self.loaded if name == recommender) if self.up else frozenset()

    def doubted(self, key: object) -> bool:
        return False

    def ask(self, key: tuple[str, int], feed: object, timeout: float) -> np.ndarray[Any, Any]:
        if not self.up or key not in self.loaded:
            raise ServerLost(f"{self.name} is away")
        self.count += 1
        return np.zeros(1, np.float32)

    def successes(self) -> Mapping[tuple[str, int], int]:
        self.tally.read(lambda: {("eyas-movies_1", "1"): self.count})
        return {}

    def info(self) -> ServerInfo:
        if not self.up:
            raise Unavailable(f"{self.name} is away")
        return ServerInfo("2.51", tuple({"name": n, "version": str(v), "state": "READY", "recommender": n} for n, v in self.loaded))

    def vouch(self) -> None:
        self.vouched += 1

    def close(self) -> None:
        self.closed = True


def server_of(host: Triton, repository: object, *, tally: ReplicaCounts, **times: float) -> Triton:
    host.tally = tally
    return host


class Crew:
    def __init__(self, *names: str) -> None:
        self.there = {name: Triton(name) for name in names}

    def current(self) -> dict[str, Any]:
        return dict(self.there)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def crew() -> Crew:
    return Crew("a", "b")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(replica, "time", found)
    return found


@pytest.fixture
def fleet(crew: Crew, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[TritonFleet]:
    monkeypatch.setattr(module, "TritonServer", server_of)
    monkeypatch.setattr(module, "repository_of", lambda *_: None)
    found = TritonFleet(crew, None)  # type: ignore[arg-type]
    yield found
    found.close()


def states(fleet: TritonFleet) -> dict[str, str]:
    return {one.name: one.state for one in fleet.info().replicas}


def look(fleet: TritonFleet, clock: Clock, seconds: float = replica.LOOK_EVERY) -> None:
    clock.now += seconds
    for _ in range(2):  # the second look sees what the first one asked for
        fleet.ensure_running()
        for member in fleet._members.values():
            for thread in (member._hand, member._watcher):
                thread.submit(lambda: None).result(10)  # all work before it is done


@pytest.mark.requirement("C-05")
def test_a_version_answers_when_every_replica_answers_it(fleet: TritonFleet, crew: Crew) -> None:
    assert fleet.place("movies", UNITS) == {}
    assert fleet.answering("movies") == {1}
    crew.there["b"].loaded.clear()
    assert fleet.answering("movies") == frozenset()


def test_a_replica_that_fell_away_is_waited_for_and_not_for_ever(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    look(fleet, clock)
    crew.there["b"].die()
    look(fleet, clock)
    assert states(fleet) == {"a": "ready", "b": "down"}
    assert fleet.answering("movies") == frozenset(), "it may be back in a moment"
    clock.now += module.PATIENCE
    assert fleet.answering("movies") == {1}
    crew.there["b"].up = True
    look(fleet, clock)
    assert states(fleet) == {"a": "ready", "b": "ready"}
    assert crew.there["b"].placed == {KEY}


def test_of_none_that_is_waited_for_nothing_answers(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    for one in crew.there.values():
        one.die()
    clock.now += 1
    with pytest.raises(Unavailable, match="no Triton serves"):
        fleet.ensure_running()
    clock.now += module.PATIENCE
    assert fleet.answering("movies") == frozenset()


def test_what_is_placed_while_one_is_down_reaches_it_when_it_is_back(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    look(fleet, clock)
    crew.there["b"].die()
    look(fleet, clock)
    assert fleet.place("movies", UNITS) == {}
    assert crew.there["a"].placed == {KEY}
    crew.there["b"].up = True
    look(fleet, clock)
    assert crew.there["b"].placed == {KEY}
    assert fleet.answering("movies") == {1}


def test_where_all_are_down_placing_says_so(fleet: TritonFleet, crew: Crew) -> None:
    for one in crew.there.values():
        one.up = False
    with pytest.raises(Unavailable, match="is away"):
        fleet.place("movies", UNITS)


def test_a_version_that_one_replica_cannot_load_is_at_fault_and_named(fleet: TritonFleet, crew: Crew) -> None:
    units = [*UNITS, ServedUnit("movies", 2, {})]
    crew.there["b"].broken = {2}
    assert fleet.place("movies", units) == {2: "no ONNX file (on b, not on the others)"}
    crew.there["a"].broken = {2}
    assert fleet.place("movies", units) == {2: "no ONNX file"}
    assert fleet.answering("movies") == {1}
    assert states(fleet) == {"a": "ready", "b": "ready"}, "nobody has the broken one, so nobody lacks it"


def test_a_replica_that_lacks_what_another_has_is_not_ready_and_tries_again(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    b = crew.there["b"]
    b.broken = {1}
    fleet.place("movies", UNITS)
    look(fleet, clock)
    assert states(fleet) == {"a": "ready", "b": "loading"}
    assert [replica.fault for replica in fleet.info().replicas] == [None, "missing versions: movies 1"]
    b.broken = set()
    look(fleet, clock, 20)
    wait_for(lambda: not b.owing)
    look(fleet, clock)
    assert states(fleet) == {"a": "ready", "b": "ready"}


BOOKS = [ServedUnit("books", 1, {})]


def repeated(place: Callable[[], Mapping[int, str]]) -> Mapping[int, str]:
    """Repeats a call while it is pending, as the control plane does: a load that an earlier call began is not waited for."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return place()
        except Pending:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.requirement("C-05")
def test_a_replica_that_loads_for_long_is_not_told_to_load_everything_once_more(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    b = crew.there["b"]
    fleet.place("books", BOOKS)
    b.trial_ended = threading.Event()
    for _ in range(3):
        with pytest.raises(Pending):
            fleet.place("movies", UNITS)
        clock.now += 20
    b.trial_ended.set()
    assert fleet.place("movies", UNITS) == {}
    assert not b.owing
    fleet.place("books", [*BOOKS, ServedUnit("books", 2, {})])
    assert b.placed == {KEY, ("books", 1), ("books", 2)}


@pytest.mark.requirement("C-05")
def test_a_replica_that_is_placing_another_recommender_is_not_left_out(
    fleet: TritonFleet, crew: Crew, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(fleet, clock)
    monkeypatch.setattr(module, "_WAIT", 0.2)
    b = crew.there["b"]
    b.slow = threading.Event()
    for units in (UNITS, BOOKS):
        with pytest.raises(Pending):
            fleet.place(units[0].recommender, units)
    monkeypatch.setattr(module, "_WAIT", 30)
    b.slow.set()
    assert repeated(lambda: fleet.place("books", BOOKS)) == {}
    assert b.placed == {KEY, ("books", 1)}


@pytest.mark.requirement("C-05")
def test_no_request_fails_that_another_replica_can_answer(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    look(fleet, clock)
    crew.there["b"].up = False  # and nobody has noticed yet
    for _ in range(10):
        fleet.score("movies", 1, {})
    assert crew.there["a"].count == 10


def test_one_that_comes_back_takes_no_request_before_it_has_its_versions(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    fleet.place("books", [ServedUnit("books", 1, {})])
    look(fleet, clock)
    b = crew.there["b"]
    b.die()
    look(fleet, clock)
    b.up, b.loaded = True, {KEY}  # the other recommender's is still to come
    for _ in range(6):
        fleet.score("movies", 1, {})
    assert (crew.there["a"].count, b.count) == (6, 0)
    look(fleet, clock)
    for _ in range(6):
        fleet.score("movies", 1, {})
    assert b.count == 3


def test_a_new_replica_is_given_what_is_wanted_and_one_that_left_still_counts(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    for _ in range(4):
        fleet.score("movies", 1, {})
    assert fleet.successes() == {KEY: 4}
    left = crew.there.pop("a")
    crew.there["c"] = Triton("c")
    look(fleet, clock)
    assert states(fleet) == {"b": "ready", "c": "ready"}
    assert crew.there["c"].placed == {KEY}
    assert fleet.successes() == {KEY: 4}
    wait_for(lambda: left.closed)
    assert fleet.answering("movies") == {1}
    crew.there["a"] = left
    look(fleet, clock)
    assert fleet.successes() == {KEY: 4}, "it was out of sight, and never gone"


def test_one_that_hangs_holds_up_neither_the_others_nor_the_loop(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    look(fleet, clock)
    b = crew.there["b"]
    b.die()
    look(fleet, clock)
    b.up, b.slow = True, threading.Event()
    fleet.ensure_running()
    assert fleet.place("movies", [*UNITS, ServedUnit("movies", 2, {})]) == {}
    assert crew.there["a"].placed == {KEY, ("movies", 2)}
    b.slow.set()
    wait_for(lambda: b.placed == {KEY, ("movies", 2)} or (fleet.ensure_running() and False))


@pytest.mark.requirement("C-05")
def test_a_restart_that_takes_longer_than_a_call_is_told_by_a_later_call(
    fleet: TritonFleet, crew: Crew, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.place("movies", UNITS)
    look(fleet, clock)
    b = crew.there["b"]
    b.die()
    look(fleet, clock)
    b.up, b.slow, b.restarts = True, threading.Event(), 1
    monkeypatch.setattr(module, "_WAIT", 0.01)
    assert [fleet.ensure_running() for _ in range(3)] == [False, False, False]
    b.slow.set()
    wait_for(fleet.ensure_running)
    assert [fleet.ensure_running() for _ in range(3)] == [False, False, False]


@pytest.mark.requirement("C-05")
def test_placing_that_takes_long_goes_on_by_itself_and_is_not_begun_twice(
    fleet: TritonFleet, crew: Crew, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.01)
    crew.there.pop("b")
    a = crew.there["a"]
    a.slow = threading.Event()
    for _ in range(5):
        with pytest.raises(Pending):
            fleet.place("movies", UNITS)
    a.slow.set()
    monkeypatch.setattr(module, "_WAIT", 30)
    wait_for(lambda: a.placed == {KEY})
    assert fleet.place("movies", UNITS) == {}
    assert a.placings <= 2


def test_a_replica_that_loads_for_longer_than_the_others_is_waited_for_only_so_long(
    fleet: TritonFleet, crew: Crew, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT", 1)
    b = crew.there["b"]
    b.slow = threading.Event()
    with pytest.raises(Pending):
        fleet.place("movies", UNITS)
    monkeypatch.setattr(module, "PLACING", 0)
    assert fleet.place("movies", UNITS) == {}
    b.slow.set()


@pytest.mark.requirement("C-05")
def test_a_server_that_is_silent_is_ended_whatever_its_own_thread_waits_for(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TritonServer", server_of)
    monkeypatch.setattr(module, "repository_of", lambda *_: None)
    monkeypatch.setattr(module, "_WAIT", 0.01)
    monkeypatch.setattr(replica, "LOOK_EVERY", 0)
    crew.there.pop("b")
    a = crew.there["a"]
    fleet = TritonFleet(crew, None, hangs=0)  # type: ignore[arg-type]
    try:
        a.slow = threading.Event()
        with pytest.raises(Pending):
            fleet.place("movies", UNITS)
        a.up = False

        def ended() -> bool:
            with contextlib.suppress(Unavailable):
                fleet.ensure_running()
            return a.ended > 0

        wait_for(ended)
        with pytest.raises(Unavailable, match="does not answer"):
            fleet.place("movies", UNITS)
    finally:
        a.slow.set()
        fleet.close()


def test_a_server_that_has_all_it_should_is_not_looked_after(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    look(fleet, clock)
    before = [one.looks for one in crew.there.values()]
    for _ in range(10):
        fleet.ensure_running()
    assert [one.looks for one in crew.there.values()] == before


def test_only_a_replica_that_is_ready_is_vouched_for(fleet: TritonFleet, crew: Crew, clock: Clock) -> None:
    fleet.place("movies", UNITS)
    crew.there["b"].die()
    look(fleet, clock)
    fleet.vouch()
    wait_for(lambda: crew.there["a"].vouched == 1)
    assert crew.there["b"].vouched == 0


def test_nobody_known_is_said() -> None:
    empty = TritonFleet(Crew(), None)  # type: ignore[arg-type]
    for ask in (empty.info, empty.ensure_running, lambda: empty.place("movies", UNITS)):
        with pytest.raises(Unavailable, match="no Triton is known"):
            ask()
    assert empty.answering("movies") == frozenset()


def test_patience_is_shorter_than_a_rollouts() -> None:
    from shared.domain.rollout import SICK_LIMIT

    assert SICK_LIMIT.total_seconds() > module.PATIENCE
