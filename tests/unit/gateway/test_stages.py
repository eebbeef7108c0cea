"""The stages of an answer beside its scores: what is explored and logged, told, done without, and asked aside."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from services.gateway import Question
from shared.domain.errors import Invalid, NotFound, Unavailable
from shared.domain.route import Route
from shared.telemetry import metrics
from tests.support.gateway_world import ITEMS, npy, npz, spec

VECTORS = {10: (1.0, 0.0), 20: (0.9, 0.1), 30: (0.5, 0.5), 40: (0.1, 0.8), 50: (0.0, 1.0)}


@pytest.fixture
def gateway(world):
    files = {
        "embeddings.npz": npz(items=np.array(ITEMS), vectors=np.array(list(VECTORS.values()), np.float32)),
        "queries.npz": npz(users=np.array([1, 2]), vectors=np.array([(1.0, 0.0), (0.0, 1.0)], np.float32)),
    }
    world.add_version(1, **files)
    world.routes["m"] = Route(1, generation=1)
    return serving(world, retrieve={"candidates": 4})


def serving(world, **serve):
    world.specs["m"] = spec(serve=serve)
    world.score = lambda name, number, feed, patience: -feed["movieId"].astype(np.float32)
    made = world.gateway()
    made.refresh()
    return made


def items(answer):
    return [item for item, _ in answer.items]


def answered(gateway, *questions):
    found = gateway._answered(questions)
    assert not [one for one in found if isinstance(one, Exception)]
    return found


@pytest.mark.requirement("G-04")
def test_exploration_is_on_unless_the_spec_says_otherwise_and_its_chances_are_logged(world, gateway):
    world.luck = 0.0
    assert items(gateway.recommend("m", 1, 2)) == [30, 20]
    world.luck = 1.0
    assert items(gateway.recommend("m", 1, 2)) == [10, 20]
    first, second = world.shown
    assert first.propensities == pytest.approx((0.05 / 2 / 2, 1 - 0.05 / 2))
    assert second.propensities == pytest.approx((1 - 0.05 / 2,) * 2)
    off = serving(world, order={"explore": {"rate": 0}})
    world.luck = 0.0
    assert items(off.recommend("m", 1, 2)) == [10, 20]
    assert world.shown[-1].propensities is None


def test_an_answer_that_is_not_the_models_own_is_not_explored(world, gateway):
    world.luck = 0.0
    assert gateway.recommend("m", 99, 2).fallback == "unknown user"
    world.score = lambda name, number, feed, patience: np.full(len(feed["movieId"]), np.nan)
    assert gateway.recommend("m", 1, 2).fallback == "scoring unavailable"
    assert [impression.propensities for impression in world.shown] == [None, None]


@pytest.mark.requirement("G-04")
def test_rules_of_the_spec_hold_in_every_answer(world, gateway):
    made = serving(world, retrieve={"candidates": 3}, order={"rules": [{"pin": 50}], "explore": {"rate": 0}})
    assert items(made.recommend("m", 1, 3)) == [50, 10, 20]
    assert items(made.recommend("m", 99, 3)) == [50, 40, 30]
    world.score = lambda name, number, feed, patience: np.full(len(feed["movieId"]), np.nan)
    assert items(made.recommend("m", 1, 3)) == [50, 10, 20]


@pytest.mark.requirement("G-04")
def test_a_change_of_the_rules_shows_in_answers(world, gateway):
    assert items(gateway.recommend("m", 1, 1)) == [10]
    world.specs["m"] = spec(serve={"order": {"rules": [{"bury": "not has(price)"}, {"pin": 30}]}})
    world.clock.pass_by(seconds=1) if hasattr(world.clock, "pass_by") else setattr(world.clock, "time", world.clock.time.replace(year=2027))
    gateway.refresh()
    assert items(gateway.recommend("m", 1, 1)) == [30]


@pytest.mark.requirement("G-04")
def test_an_answer_tells_what_each_stage_did(world, gateway):
    (plain,) = answered(gateway, Question("m", 1, 2, frozenset({20})))
    assert plain.explained is None
    first, second = answered(gateway, Question("m", 1, 2, frozenset({20}), explain=True), Question("m", 99, 2, explain=True))
    explanation = first.explained.explanation
    assert (explanation.looked, explanation.eligible, explanation.scored, explanation.explored) == (4, 3, True, None)
    assert explanation.dropped == {"seen before, or excluded": 1}
    assert first.explained.together == 2
    assert {"seen", "retrieve", "filter", "score", "order", "log"} <= set(first.explained.seconds)
    assert not second.explained.explanation.scored


@pytest.mark.requirement("C-01", "G-01")
def test_a_trial_leaves_no_trace_and_is_answered_like_any_other(world, gateway):
    counted = metrics.REQUESTS.labels("m", "1", "stable", "ok")._value
    before = counted.get()
    world.luck = 0.0
    (tried,) = answered(gateway, Question("m", 1, 2, explain=True, trial=True))
    assert (world.shown, counted.get()) == ([], before)
    assert tried.explained.explanation.explored is None
    mixed = answered(gateway, Question("m", 1, 2, trial=True), Question("m", 1, 2))
    assert [one.request_id for one in world.shown] == [mixed[1].request_id]
    assert counted.get() == before + 1


@pytest.mark.requirement("G-04")
def test_each_dropped_item_is_told_by_the_first_entry_that_drops_it(world, gateway):
    made = serving(world, retrieve={"candidates": 5}, filter=["has(price)", "has(price) and price > 0"], order={"explore": {"rate": 0}})
    (answer,) = answered(made, Question("m", 1, 2, frozenset({20}), explain=True))
    explanation = answer.explained.explanation
    assert explanation.looked - explanation.eligible == sum(explanation.dropped.values())
    assert explanation.dropped["seen before, or excluded"] == 1
    assert "has(price) and price > 0" not in explanation.dropped


@pytest.mark.requirement("G-01")
def test_a_stranger_who_brings_items_gets_what_is_like_them_the_newest_most(world, gateway):
    (found, other, none) = answered(
        gateway, Question("m", 99, 2, items=(50, 10)), Question("m", 99, 2, items=(10, 50)), Question("m", 99, 2, items=(77,))
    )
    assert (items(found), found.fallback) == ([20, 30], "unknown user, by items")
    assert items(other) == [30, 40]
    assert (items(none), none.fallback) == ([50, 40], "unknown user")
    (known,) = answered(gateway, Question("m", 1, 2, items=(50,)))
    assert (items(known), known.fallback) == ([10, 20], None)


@pytest.mark.requirement("G-01")
def test_new_items_stand_among_popular_ones_as_many_as_the_spec_says(world, gateway):
    world.add_version(2, **{"fresh.npy": npy([10, 77, 20])})
    world.routes["m"] = Route(2, generation=2)
    gateway.refresh()
    assert items(gateway.recommend("m", 99, 5)) == [50, 40, 30, 20, 10]  # every fifth: the newest
    for share, wanted in ((0, [50, 40, 30, 20, 10]), (0.5, [50, 10, 40, 20, 30]), (1, [10, 20, 50, 40, 30]), (0.4, [50, 40, 10, 30, 20])):
        made = serving(world, fresh=share)
        assert items(made.recommend("m", 99, 5)) == wanted, share
        assert 10 not in [item for item, _ in made.recommend("m", 99, 5, exclude=[10]).items]


def test_the_version_waits_no_longer_than_the_spec_says(world, gateway):
    asked = []
    made = serving(world, deadlines={"score": "50ms"})

    def score(name, number, feed, patience):
        asked.append(patience)
        raise Unavailable("Deadline Exceeded")

    world.score = score
    assert made.recommend("m", 1, 2).fallback == "scoring unavailable"
    assert asked == [0.05]


def test_what_was_seen_is_waited_for_no_longer_than_the_spec_says(world, gateway):
    made = serving(world, deadlines={"seen": "20ms"})
    world.likes = frozenset({10})
    assert 10 not in items(made.recommend("m", 1, 5))
    hang = threading.Event()
    usual = world.seen_items

    def slow(*asked):
        hang.wait(10)
        return usual(*asked)

    world.seen_items = slow
    answer = made.recommend("m", 1, 5)
    hang.set()
    assert (10 in items(answer), answer.fallback) == (True, None)
    world.seen_items = usual
    assert 10 not in items(made.recommend("m", 1, 5))  # one who couldn't wait hasn't made the log go away


@pytest.mark.requirement("G-01")
def test_items_are_scored_by_the_users_version_in_the_order_asked(world, gateway):
    found = gateway.score("m", 1, [30, 77, 10, 30])
    assert (found.version, found.variant, found.items) == (1, "stable", [(30, -30.0), (77, None), (10, -10.0), (30, -30.0)])
    assert gateway.score("m", 1, [77]).items == [(77, None)]
    stranger = gateway.score("m", 99, [10])
    assert (stranger.items, stranger.fallback) == ([(10, None)], "unknown user")
    assert world.shown == []
    world.score = world.fail
    with pytest.raises(Unavailable):
        gateway.score("m", 1, [10])
    with pytest.raises(NotFound):
        gateway.score("nobody", 1, [10])


@pytest.mark.requirement("G-01")
def test_similar_items_are_of_those_that_may_be_shown(world, gateway):
    found = gateway.similar("m", 10, 2)
    assert [item for item, _ in found.items] == [20, 30]
    assert found.items[0][1] == pytest.approx(0.9939, abs=1e-3)
    assert [item for item, _ in gateway.similar("m", 10, 2, exclude=[20]).items] == [30, 40]
    with pytest.raises(NotFound, match="no item 77"):
        gateway.similar("m", 77, 2)
    world.add_version(2)
    world.routes["m"] = Route(2, generation=2)
    gateway.refresh()
    with pytest.raises(Invalid, match="no vectors"):
        gateway.similar("m", 10, 2)
