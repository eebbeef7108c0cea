"""Whom to ask for scores, and when another one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from services.triton.client import ServerLost
from services.triton.replica_selection import ReplicaSelector, VersionState
from shared.domain.errors import ServerAway, Unavailable

KEY = ("movies", 1)


class One:
    def __init__(self, name: str, standing: VersionState | None = VersionState.GOOD, fault: Exception | None = None) -> None:
        self.name, self.state, self.fault = name, standing, fault
        self.asked: list[float] = []
        self.is_away = False

    def away(self, recommender: str) -> bool:
        return self.is_away

    def standing(self, key: object) -> VersionState | None:
        return self.state

    def ask(self, key: object, feed: object, timeout: float) -> np.ndarray:
        self.asked.append(timeout)
        if self.fault:
            raise self.fault
        return np.ones(1, np.float32)


def ask(choice: ReplicaSelector, *replicas: One) -> None:
    choice.score(replicas, KEY, {})


def test_equals_take_turns() -> None:
    choice, replicas = ReplicaSelector(2), [One("a"), One("b"), One("c")]
    for _ in range(9):
        ask(choice, *replicas)
    assert [len(one.asked) for one in replicas] == [3, 3, 3]


def test_one_without_the_version_is_never_asked() -> None:
    choice, has, without = ReplicaSelector(2), One("a"), One("b", None)
    for _ in range(4):
        ask(choice, has, without)
    assert (len(has.asked), len(without.asked)) == (4, 0)
    with pytest.raises(Unavailable, match="movies version 1 is not on the model server"):
        ask(choice, without)


@pytest.mark.parametrize("standing", [VersionState.DOUBTED, VersionState.UNSEEN, VersionState.AWAY])
def test_one_that_is_not_well_is_not_asked_while_another_is(standing: VersionState) -> None:
    choice, good, other = ReplicaSelector(2), One("a"), One("b", standing)
    for _ in range(4):
        ask(choice, other, good)
    assert (len(good.asked), len(other.asked)) == (4, 0)


def test_the_best_of_those_that_are_not_well_is_asked_rather_than_nobody() -> None:
    choice, doubted, unseen, away = (
        ReplicaSelector(2),
        One("a", VersionState.DOUBTED),
        One("b", VersionState.UNSEEN),
        One("c", VersionState.AWAY),
    )
    ask(choice, away, unseen, doubted)
    assert Counter({one.name: len(one.asked) for one in (doubted, unseen, away)}) == {"a": 1, "b": 0, "c": 0}


@pytest.mark.requirement("C-05")
def test_what_one_lost_another_one_answers_within_the_same_time() -> None:
    choice, lost, good = ReplicaSelector(2), One("a", fault=ServerLost("it is away")), One("b")
    for _ in range(4):
        ask(choice, lost, good)
    assert len(good.asked) == 4
    assert all(timeout == 1 for timeout in lost.asked), "a silent one must leave time for the other"
    assert all(timeout <= 2 for timeout in good.asked)


def test_where_nobody_else_is_well_the_only_one_has_all_the_time() -> None:
    choice, good = ReplicaSelector(2), One("a")
    ask(choice, good, One("b", VersionState.AWAY))
    ask(choice, good)
    assert good.asked == [2, 2]


def test_it_is_tried_twice_and_no_more() -> None:
    replicas = [One(name, fault=ServerLost(name)) for name in "abc"]
    with pytest.raises(ServerLost):
        ask(ReplicaSelector(2), *replicas)
    assert sum(len(one.asked) for one in replicas) == 2


def test_a_fault_of_the_model_is_its_answer() -> None:
    failing, other = One("a", fault=Unavailable("the graph failed")), One("b", VersionState.DOUBTED)
    with pytest.raises(Unavailable, match="the graph failed"):
        ask(ReplicaSelector(2), failing, other)
    assert other.asked == []


@pytest.mark.requirement("U-07")
def test_a_lost_request_says_whether_the_version_or_the_whole_server_is_away(subtests: pytest.Subtests) -> None:
    """A version's own fault counts against it; a server that is away is nobody's."""
    cases = [
        (ServerLost("connection refused"), [True, True], ServerAway),
        (ServerLost("no answer in time"), [True, False], ServerLost),
        (Unavailable("the model raised an exception"), [True, True], Unavailable),
    ]
    for fault, away, expected in cases:
        with subtests.test(fault=fault, away=away):
            replicas = [One("a", fault=fault), One("b", fault=fault)]
            for one, is_away in zip(replicas, away, strict=True):
                one.is_away = is_away
            with pytest.raises(Unavailable) as found:
                ask(ReplicaSelector(2), *replicas)
            assert type(found.value) is expected
    with pytest.raises(ServerAway):
        ask(ReplicaSelector(2))
