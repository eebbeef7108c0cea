"""Every request of a user who is assigned to a variant is logged for that variant, whatever becomes of it."""

from __future__ import annotations

import threading
import time

import pytest

from services.gateway import Question, batcher, scoring
from shared.contracts.events import FAILED, NO_SCORES, NOTHING_LEFT, OVERLOADED, SERVER_AWAY, UNKNOWN_USER
from shared.domain.errors import EyasError, Invalid, Overloaded, ServerAway, Unavailable
from shared.domain.route import Route, choose
from shared.telemetry import metrics
from shared.testing.waiting import wait_for
from tests.support.gateway_world import spec

CANARY = Route(1, 2, 0.5, "r1", step=0, generation=7)
USERS = {variant: [user for user in range(1, 60) if choose(CANARY, user)[1] == variant] for variant in ("stable", "candidate")}


@pytest.fixture
def gateway(world):
    world.routes["m"] = CANARY
    made = world.gateway()
    made.refresh()
    return made


def logged(world):
    return [(one.user, one.variant, one.version, one.fallback, one.items) for one in world.shown]


@pytest.mark.requirement("U-07")
def test_a_request_that_finds_its_queue_full_is_refused_and_logged_for_its_variant(world, gateway, monkeypatch):
    monkeypatch.setattr(batcher, "_ALWAYS", 0)
    before = metrics.REFUSED._value.get()
    for variant in ("stable", "candidate"):
        with pytest.raises(Overloaded):
            gateway.submit(Question("m", USERS[variant][0]))
    wait_for(lambda: len(world.shown) == 2)
    assert logged(world) == [(USERS[v][0], v, n, OVERLOADED, ()) for v, n in (("stable", 1), ("candidate", 2))]
    assert {(one.generation, one.step, one.bucket) for one in world.shown} == {(7, 0, None)}
    assert metrics.REFUSED._value.get() == before + 2


def test_a_request_that_ends_in_an_exception_is_logged_for_its_variant(world, gateway, monkeypatch):
    monkeypatch.setattr(gateway._scoring, "show", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gateway.submit(Question("m", USERS["candidate"][0])).result(10)
    wait_for(lambda: world.shown)
    assert logged(world) == [(USERS["candidate"][0], "candidate", 2, FAILED, ())]


def test_what_is_refused_before_a_variant_is_chosen_is_logged_nowhere(world, gateway):
    world.specs["m"] = spec(serve={"context": {"age": "number"}})
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    with pytest.raises(Invalid, match="age"):
        gateway.submit(Question("m", 1, context={"age": "old"}))
    with pytest.raises(EyasError, match="nothing"):
        gateway.submit(Question("nothing", 1)).result(10)
    gateway.close()
    with pytest.raises(Unavailable, match="gateway: shutting down"):
        gateway.submit(Question("m", 1))
    assert world.shown == []


def test_without_a_canary_and_in_a_trial_a_refused_request_is_logged_nowhere(world, gateway, monkeypatch):
    """Nothing reads it then."""
    monkeypatch.setattr(batcher, "_ALWAYS", 0)
    with pytest.raises(Overloaded):
        gateway.submit(Question("m", 1, trial=True))
    for route in (Route(1, generation=8), Route(1, 2, 0.0, "r1", shadow=True, generation=9)):
        world.routes["m"] = route
        gateway.refresh()
        with pytest.raises(Overloaded):
            gateway.submit(Question("m", 1))
    gateway.close()
    assert world.shown == []


def test_an_empty_answer_and_one_without_scores_are_logged_as_what_they_are(world, gateway):
    user = USERS["stable"][0]
    assert gateway.recommend("m", user, exclude=[10, 20, 30, 40, 50]).fallback == NOTHING_LEFT
    world.scoring_fails = True
    assert gateway.recommend("m", user).fallback == NO_SCORES
    assert [one.fallback for one in world.shown] == [NOTHING_LEFT, NO_SCORES]


@pytest.mark.requirement("U-07")
def test_while_the_model_server_is_away_no_answer_of_either_variant_counts(world, gateway, monkeypatch):
    """Not those of unknown users either: they would be the only ones that are left, and whom a version knows depends on the version."""
    score = gateway._scoring._server.score

    def away(*_):
        raise ServerAway("connection refused")

    monkeypatch.setattr(gateway._scoring._server, "score", away)
    known = next(user for user in USERS["stable"] if user <= 5)
    stranger = next(user for user in USERS["candidate"] if user > 5)
    assert gateway.recommend("m", known).fallback == NO_SCORES
    assert gateway.recommend("m", stranger).fallback == UNKNOWN_USER
    assert [one.fallback for one in world.shown] == [SERVER_AWAY, SERVER_AWAY]
    monkeypatch.setattr(gateway._scoring._server, "score", score)
    assert gateway.recommend("m", known).fallback is None
    assert gateway.recommend("m", stranger).fallback == UNKNOWN_USER
    assert [one.fallback for one in world.shown[2:]] == [None, UNKNOWN_USER]


def test_a_server_that_was_found_away_is_taken_to_be_there_after_a_while(world, gateway, monkeypatch):
    monkeypatch.setattr(scoring, "AWAY", 0.05)
    monkeypatch.setattr(gateway._scoring._server, "score", lambda *_: (_ for _ in ()).throw(ServerAway("connection refused")))
    gateway.recommend("m", next(user for user in USERS["stable"] if user <= 5))
    time.sleep(0.06)
    gateway.recommend("m", 50)
    assert [one.fallback for one in world.shown] == [SERVER_AWAY, UNKNOWN_USER]


@pytest.mark.requirement("U-09")
def test_a_candidate_that_hangs_delays_no_answer_of_the_stable_version(world, gateway):
    world.hanging[2] = threading.Event()
    stuck = next(user for user in USERS["candidate"] if user <= 5)
    known = next(user for user in USERS["stable"] if user <= 5)
    hanging = [gateway.submit(Question("m", stuck)) for _ in range(40)]
    answers = [gateway.submit(Question("m", known)).result(10) for _ in range(40)]
    assert {(one.version, one.fallback) for one in answers} == {(1, None)}
    scores = gateway.submit_scores("m", stuck, [10])
    assert gateway.submit_scores("m", known, [10, 77]).result(10).items == [(10, 5.0), (77, None)]
    assert not scores.done()
    assert not any(one.done() for one in hanging)
    world.hanging[2].set()
    assert {one.result(10).version for one in hanging} == {2}
    assert scores.result(10).version == 2
