"""A shadow: the candidate is asked as well, compared, and thrown away; nothing that it does reaches an answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import func, select

from services.gateway import Question, shadow
from services.gateway.filtering import FilterInput
from services.gateway.scoring import RankedRequests, ShownItems
from services.gateway.shadow import WAITING, WORKERS, MirroredBatch
from services.store.tables import shadow_totals
from shared.domain.errors import ServerAway, Unavailable
from shared.domain.route import Route
from shared.domain.traffic import ShadowCounts
from shared.telemetry import metrics
from shared.testing.waiting import wait_for

SHADOWED = Route(1, 2, 0.0, "r1", shadow=True, generation=7)


@pytest.fixture
def gateway(world):
    world.routes["m"] = SHADOWED
    made = world.gateway()
    made.refresh()
    return made


def ranking_request(gateway):
    return gateway._request(
        "m", gateway._loader.snapshot.served["m"], 1, 1, FilterInput(gateway._catalogues.of("m").attributes, {}, frozenset())
    )


def total(world, gateway, generation=7) -> ShadowCounts:
    """What is told by now."""
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    return world.mirrors.total("m", generation)


def seen(world, gateway, count: int) -> ShadowCounts:
    wait_for(lambda: total(world, gateway).compared >= count)
    return total(world, gateway)


@pytest.mark.requirement("C-05")
def test_the_stable_version_answers_and_the_candidate_is_compared_and_never_logged(world, gateway):
    world.own_scores[2] = np.array([5, 1, 4, 2, 3], np.float32)
    answer = gateway.recommend("m", 1, k=3)
    found = seen(world, gateway, 1)
    assert (answer.version, answer.variant, [item for item, _ in answer.items]) == (1, "stable", [10, 20, 30])
    assert [(one.version, one.variant) for one in world.shown] == [(1, "stable")]
    assert (found.compared, found.errors, found.dropped) == (1, 0, 0)
    assert found.overlap == pytest.approx(2 / 3)
    assert sum(found.stable.values()) == sum(found.candidate.values()) == 1


def test_the_candidate_is_asked_for_the_same_user_under_the_same_rules(world, gateway):
    world.likes = frozenset({10})
    gateway.recommend("m", 3, k=2, exclude=[20])
    assert seen(world, gateway, 1).overlap == 1.0
    (first, stable), (second, candidate) = world.feeds
    assert (first, second) == (1, 2)
    assert stable["userId"].tolist() == candidate["userId"].tolist() == [3] * 5


@pytest.mark.requirement("C-05")
def test_a_candidate_that_hangs_holds_up_no_answer_and_what_finds_no_room_is_dropped_and_counted(world, gateway):
    """Every answer below is given while the candidate holds all of the shadow's threads."""
    world.hanging[2] = threading.Event()
    before = metrics.SHADOWS.labels("m", "dropped")._value.get()
    gateway.recommend("m", 1)
    wait_for(lambda: [number for number, _ in world.feeds].count(2) == 1)
    answers = [gateway.recommend("m", 1 + n % 5) for n in range(WORKERS + WAITING + 20)]
    assert all((one.version, one.fallback) == (1, None) for one in answers)
    dropped = total(world, gateway).dropped
    assert 20 <= dropped <= 21 + WORKERS
    assert metrics.SHADOWS.labels("m", "dropped")._value.get() - before == dropped
    assert total(world, gateway).compared == 0
    world.hanging[2].set()
    whole = seen(world, gateway, len(answers) + 1 - dropped)
    assert (whole.compared + whole.dropped, whole.errors) == (len(answers) + 1, 0)


@pytest.mark.parametrize(
    "scores", [np.array([1, np.nan, 2, 4, 3], np.float32), np.array([1, np.inf, 2, 4, 3]), np.ones((5, 1)), ["no", "numbers"]]
)
def test_scores_that_are_no_numbers_are_an_error_and_have_no_latency(world, gateway, scores):
    world.own_scores[2] = scores
    assert gateway.recommend("m", 1).fallback is None
    found = seen(world, gateway, 1)
    assert (found.compared, found.errors, sum(found.stable.values()), found.candidate, found.overlap) == (1, 1, 1, {}, 0.0)


def test_a_candidate_that_does_not_answer_is_an_error_of_its_own(world, gateway):
    def score(name, number, feed, patience=None):
        if number == 2:
            raise Unavailable("version 2 is gone")
        return world.scores

    gateway._shadow._scoring._server = type("Server", (), {"score": staticmethod(score)})
    gateway.recommend("m", 1)
    assert (seen(world, gateway, 1).errors, world.shown[0].fallback) == (1, None)


def test_what_the_stable_version_did_not_score_itself_is_nothing_to_compare(world, gateway):
    gateway.recommend("m", 99)
    world.scoring_fails = True
    gateway.recommend("m", 1)
    world.scoring_fails = False
    gateway.recommend("m", 1)
    assert seen(world, gateway, 1).compared == 1
    assert gateway._shadow._queue.empty()


@pytest.mark.requirement("U-07")
def test_requests_that_are_answered_together_are_mirrored_together_and_take_one_time(world, gateway):
    """The candidate does the same work for the same requests, those of unknown users included, which are not compared."""
    gateway._answered([Question("m", user) for user in (1, 2, 99, 3)])
    found = seen(world, gateway, 3)
    assert (found.compared, sum(found.stable.values()), sum(found.candidate.values())) == (3, 1, 1)
    (_, stable), (_, candidate) = world.feeds
    assert stable["userId"].tolist() == candidate["userId"].tolist()


def test_while_the_model_server_is_away_nothing_is_compared(world, gateway, monkeypatch):
    def away(*_):
        raise ServerAway("connection refused")

    monkeypatch.setattr(gateway._shadow._scoring._server, "score", away)
    stable = RankedRequests([ShownItems(((10, 5.0),), model_called=True)], 0.01)
    gateway._shadow.mirror(MirroredBatch([ranking_request(gateway)], 7, gateway._loader.snapshot.served["m"].units[2], stable))
    wait_for(lambda: total(world, gateway).dropped == 1)
    assert total(world, gateway) == ShadowCounts(dropped=1)


def test_a_thread_of_the_shadow_rests_after_each_comparison(world, gateway, monkeypatch):
    rests = []
    monkeypatch.setattr(shadow, "time", SimpleNamespace(monotonic=iter([10.0, 10.1, 20.0, 25.0]).__next__, sleep=rests.append))
    monkeypatch.setattr(gateway._shadow, "_workers", 1)
    for user in (1, 2):
        gateway.recommend("m", user)
        wait_for(lambda user=user: len(rests) == user)
    assert rests == [pytest.approx(0.3), 1.0]


def test_a_route_without_a_shadow_mirrors_nothing(world, gateway):
    world.routes["m"] = Route(1, 2, 0.0, "r1", generation=8)
    gateway.refresh()
    gateway.recommend("m", 1)
    assert [number for number, _ in world.feeds] == [1]
    assert total(world, gateway, 8) == ShadowCounts()


def test_a_generation_is_reported_only_after_the_shadows_version_is_loaded(world):
    world.routes["m"] = SHADOWED
    world.gateway().refresh()
    assert world.said == ["load 1", "load 2", "report {'m': 7}"]


def test_a_shadow_that_cannot_be_loaded_leaves_the_former_route_in_force_and_unreported(world):
    world.add_version(2, **{"users.npy": None})
    gateway = world.gateway()
    world.routes["m"] = Route(1, generation=6)
    gateway.refresh()
    world.routes["m"] = SHADOWED
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert {served["m"] for _, served in world.reported} == {6}
    assert gateway.recommend("m", 1).version == 1


def test_totals_are_told_again_after_a_fault_and_a_gateway_that_starts_anew_adds_to_them(world, gateway, caplog):
    add = world.mirrors.add
    gateway.recommend("m", 1)

    def fails(*_):
        raise Unavailable("the store is away")

    world.mirrors.add = fails
    wait_for(lambda: total(world, gateway) == ShadowCounts() and "shadow totals: writing failed" in caplog.text)
    world.mirrors.add = add
    assert seen(world, gateway, 1).compared == 1
    again = world.gateway()
    again.refresh()
    again.recommend("m", 2)
    again.recommend("m", 3)
    assert seen(world, again, 3).compared == 3
    assert seen(world, gateway, 3).compared == 3
    with world.engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(shadow_totals)) == 2


def test_a_generation_has_its_own_totals(world, gateway):
    gateway.recommend("m", 1)
    assert seen(world, gateway, 1).compared == 1
    world.routes["m"] = Route(1, 2, 0.0, "r1", shadow=True, generation=9)
    gateway.refresh()
    gateway.recommend("m", 1)
    wait_for(lambda: total(world, gateway, 9).compared == 1)
    assert total(world, gateway, 7).compared == 1


def test_closing_tells_the_last_of_it(world, gateway):
    seen(world, gateway, 0)
    gateway.recommend("m", 1)
    wait_for(lambda: gateway._shadow._totals)
    gateway.close()
    assert world.mirrors.total("m", 7).compared == 1
