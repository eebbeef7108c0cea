"""One recommendation: who answers, with what, and what is logged."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from services.gateway import Question
from services.gateway.batcher import IN_FLIGHT
from shared.domain.errors import Conflict, NotFound, Unavailable
from shared.domain.route import Route, choose
from shared.domain.traffic import MOST_BUCKET
from shared.telemetry import metrics
from tests.support.gateway_world import ITEMS, spec


@pytest.fixture
def gateway(world):
    world.routes["m"] = Route(1, generation=1)
    made = world.gateway()
    made.refresh()
    return made


def items(answer):
    return [item for item, _ in answer.items]


def test_a_known_user_gets_the_best_scores_first(world, gateway):
    world.scores = np.array([1, 5, 2, 4, 3], np.float32)
    answer = gateway.recommend("m", 1, k=3)
    assert answer.items == ((20, 5.0), (40, 4.0), (50, 3.0))
    assert (answer.version, answer.variant, answer.fallback) == (1, "stable", None)


def test_equal_scores_are_ordered_by_item_wherever_the_cut_falls(world, gateway, subtests):
    for k in (1, 2, 3, 5, 9):
        with subtests.test(k=k):
            world.scores = np.array([1, 1, 2, 1, 1], np.float32)
            assert items(gateway.recommend("m", 1, k)) == [30, 10, 20, 40, 50][:k]


@pytest.mark.requirement("C-05")
def test_each_user_stays_with_a_variant_and_the_candidates_users_stay_as_its_weight_grows(world, gateway):
    before = set()
    for generation, weight in enumerate((0.2, 0.5, 0.9), start=2):
        world.routes["m"] = route = Route(1, 2, weight, "r1-rollout", 0, generation=generation)
        gateway.refresh()
        answers = {user: gateway.recommend("m", user) for user in range(100)}
        assert all((answer.version, answer.variant) == choose(route, user) for user, answer in answers.items())
        now = {user for user, answer in answers.items() if answer.variant == "candidate"}
        assert before < now
        before = now


def test_a_user_that_the_version_does_not_know_gets_popular_items_and_is_told_so(world, gateway):
    answer = gateway.recommend("m", 99, k=2)
    assert answer.items == ((50, None), (40, None))
    assert answer.fallback == "unknown user"
    assert world.feeds == []


def test_scores_that_are_no_numbers_are_never_shown(world, gateway):
    world.scores = np.array([1, np.nan, 2, 4, 3], np.float32)
    answer = gateway.recommend("m", 1, k=2)
    assert (items(answer), answer.fallback) == ([50, 40], "scoring unavailable")


def test_a_server_that_does_not_answer_costs_the_scores_not_the_answer(world, gateway):
    world.scoring_fails = True
    answer = gateway.recommend("m", 1, k=2, exclude=[50])
    assert (items(answer), answer.fallback) == ([40, 30], "scoring unavailable")


def test_a_server_that_is_away_is_logged_once_and_once_again_when_it_is_back(world, gateway, caplog):
    with caplog.at_level("INFO"):
        for world.scoring_fails in (True, True, False, False):
            gateway.recommend("m", 1)
        assert [record.levelname for record in caplog.records] == ["WARNING"], "it may fail again at once"
        gateway._scoring._outages._quiet = 0
        gateway.recommend("m", 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_scores_of_another_shape_are_a_fallback(world, gateway):
    world.scores = np.ones((5, 1), np.float32)
    assert gateway.recommend("m", 1).fallback == "scoring unavailable"


@pytest.mark.requirement("G-02")
def test_liked_and_excluded_items_are_dropped_from_scored_and_popular_answers(world, gateway):
    world.likes = frozenset({10, 777})
    assert items(gateway.recommend("m", 1, k=5, exclude=[30, -1])) == [20, 40, 50]
    assert items(gateway.recommend("m", 99, k=5, exclude=[30])) == [50, 40, 20]


def test_liked_items_stay_where_the_spec_keeps_them(world, gateway):
    world.likes = frozenset({10})
    world.specs["m"] = world.specs["m"].model_copy(update={"serve": world.specs["m"].serve.model_copy(update={"filter": ()})})
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert items(gateway.recommend("m", 1, k=2)) == [10, 20]


def test_when_everything_is_excluded_the_answer_is_empty(gateway):
    assert gateway.recommend("m", 1, exclude=[10, 20, 30, 40, 50]).items == ()


def test_the_item_columns_are_the_same_objects_in_every_call(world, gateway):
    gateway.recommend("m", 1)
    gateway.recommend("m", 2)
    (_, first), (_, second) = world.feeds
    assert all(first[name] is second[name] for name in ("movieId", "genres"))
    assert first["userId"].tolist() == [1] * 5
    assert first["userId"].dtype == np.int64


@pytest.mark.requirement("G-13")
def test_what_is_shown_is_logged_with_version_variant_step_and_order(world, gateway):
    world.routes["m"] = Route(1, 2, 1.0, "r1-rollout", 3, generation=7)
    gateway.refresh()
    answer = gateway.recommend("m", 1, k=2)
    (shown,) = world.shown
    assert (shown.request_id, shown.user, shown.version, shown.variant) == (answer.request_id, 1, 2, "candidate")
    assert (shown.generation, shown.step, shown.items, shown.fallback) == (7, 3, (10, 20), None)


def test_a_fault_of_scoring_that_nobody_foresaw_costs_the_scores_not_the_answer(world, gateway, caplog):
    world.own_scores[1] = ["no", "numbers"]
    answer = gateway.recommend("m", 1, k=2)
    assert (items(answer), answer.fallback) == ([50, 40], "scoring unavailable")


def test_an_impression_carries_how_long_scoring_took_and_what_the_shown_items_scored(world, gateway):
    for user in (1, 99):
        gateway.recommend("m", user, k=2)
    world.scoring_fails = True
    gateway.recommend("m", 1)
    scored, unknown, failed = world.shown
    assert (scored.score, unknown.score, failed.score) == (4.5, None, None)
    assert 0 <= scored.bucket < MOST_BUCKET
    assert (unknown.bucket, failed.bucket is None) == (None, False)


def test_a_name_that_nobody_has_created_is_not_found_and_makes_no_metric(gateway):
    with pytest.raises(NotFound, match="'nobody'"):
        gateway.recommend("nobody", 1)
    assert all(sample.labels["recommender"] != "nobody" for metric in metrics.REQUESTS.collect() for sample in metric.samples)


def test_a_recommender_without_a_version_says_what_is_missing(world, gateway):
    world.specs["new"] = world.specs["m"]
    with pytest.raises(Conflict, match="'new' serves nothing yet"):
        gateway.recommend("new", 1)


def test_the_first_request_for_a_new_route_reads_it(world, gateway):
    """Whoever is told that the first version is promoted may ask at once."""
    world.specs["new"], world.versions["new", 1] = world.specs["m"], world.versions["m", 1]
    world.routes["new"] = Route(1, generation=1)
    assert gateway.submit(Question("new", 1)).result(10).version == 1


def test_a_new_route_that_cannot_be_read_now_says_so(world, gateway, monkeypatch):
    world.specs["new"] = world.specs["m"]
    world.routes["new"] = Route(1, generation=1)
    monkeypatch.setattr(gateway._loader, "refresh", lambda: None)
    with pytest.raises(Unavailable, match="not read the new route of 'new'"):
        gateway.recommend("new", 1)


def test_a_gateway_that_has_never_read_its_routes_takes_no_traffic(world):
    gateway = world.gateway()
    assert not gateway.ready
    with pytest.raises(Unavailable, match="not read its routes"):
        gateway.recommend("m", 1)


@pytest.mark.requirement("C-06")
def test_each_answer_is_counted_by_version_variant_and_outcome(world, gateway):
    def count(outcome: str) -> float:
        return metrics.REQUESTS.labels("m", "1", "stable", outcome)._value.get()

    before = {outcome: count(outcome) for outcome in ("ok", "unknown user", "error")}
    gateway.recommend("m", 1)
    gateway.recommend("m", 99)
    world.seen_items = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        gateway.recommend("m", 1)
    assert {outcome: count(outcome) - number for outcome, number in before.items()} == {"ok": 1, "unknown user": 1, "error": 1}


@pytest.mark.requirement("C-06")
def test_the_time_of_an_answer_includes_the_wait_for_a_batch(world, gateway, monkeypatch):
    """Else nobody sees that answers are slow because too many requests wait."""
    now = [100.0]
    monkeypatch.setattr("services.gateway.gateway.time.perf_counter", lambda: now[0])
    seconds = metrics.REQUEST_SECONDS.labels("m", "stable")._sum
    before, release = seconds.get(), threading.Event()
    seen_items = world.seen_items

    def slow(*arguments):
        release.wait(10)
        return seen_items(*arguments)

    world.seen_items = slow
    futures = [gateway.submit(Question("m", 1)) for _ in range(IN_FLIGHT + 1)]  # all work is in flight, and one request waits
    now[0] += 0.4
    release.set()
    assert all(future.result(10).items for future in futures)
    assert seconds.get() - before == pytest.approx(0.4 * len(futures))


def test_what_cannot_be_loaded_counts_as_not_answered(world, gateway):
    """Nobody else would say so: no version has been chosen."""
    count = metrics.REQUESTS.labels("broken", "none", "none", "error")._value
    before = count.get()
    world.specs["broken"] = world.specs["m"]
    world.routes["broken"] = Route(9, generation=1)
    with pytest.raises(Unavailable, match="the route of 'broken' cannot be loaded"):
        gateway.recommend("broken", 1)
    assert count.get() == before + 1


def together(gateway, *questions):
    """As if they had come while nobody was free."""
    return gateway._answered([Question(*one) for one in questions])


def test_requests_that_come_together_are_one_call_and_each_gets_its_own(world, gateway):
    world.likes = frozenset({10})
    world.own_scores[1] = np.array([1, 2, 3, 4, 7, 6, 5], np.float32)
    first, second = together(gateway, ("m", 1, 2), ("m", 2, 5, frozenset({40})))
    assert (items(first), items(second)) == ([50, 40], [20, 30, 50])
    ((_, feed),) = world.feeds
    assert feed["userId"].tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert feed["movieId"].tolist() == [20, 30, 40, 50, 20, 30, 50]
    assert feed["genres"].tolist() == [["a", ""]] * 7


def test_together_or_alone_everybody_gets_the_same(world, gateway):
    world.score = lambda name, number, feed, patience: (feed["movieId"] * feed["userId"] % 7).astype(np.float32)
    asked = [("m", user, 3, frozenset({10 * user})) for user in (1, 2, 3, 99, 5)] + [("m", 1, 1, frozenset(ITEMS))]
    alone = [gateway.recommend(*one) for one in asked]
    assert [(one.items, one.fallback) for one in together(gateway, *asked)] == [(one.items, one.fallback) for one in alone]
    assert len(world.shown) == 2 * len(asked)


def test_users_of_both_variants_are_asked_of_their_own_versions(world, gateway):
    world.routes["m"] = route = Route(1, 2, 0.5, "r1-rollout", 0, generation=2)
    gateway.refresh()
    world.score = lambda name, number, feed, patience: np.full(len(feed["movieId"]), number, np.float32)
    answers = together(gateway, *(("m", user) for user in (1, 2, 3, 4, 5)))
    assert [one.version for one in answers] == [choose(route, user)[0] for user in (1, 2, 3, 4, 5)]
    assert all(score == one.version for one in answers for _, score in one.items)


def test_one_that_asks_for_nothing_that_is_there_costs_the_others_nothing(world, gateway):
    lost, good = together(gateway, ("nobody", 1), ("m", 1))
    assert isinstance(lost, NotFound)
    assert good.fallback is None


def test_scores_that_are_no_numbers_cost_only_those_whose_they_are(world, gateway):
    world.own_scores[1] = np.array([1, 2, 3, 4, 5, 1, np.inf, 3, 4, 5], np.float32)
    first, second = together(gateway, ("m", 1), ("m", 2))
    assert (items(first), first.fallback) == ([50, 40, 30, 20, 10], None)
    assert second.fallback == "scoring unavailable"


def test_a_gateway_answers_many_at_once_each_in_its_own_future(world, gateway):
    world.score = lambda name, number, feed, patience: np.ones(len(feed["movieId"]), np.float32)
    futures = [gateway.submit(Question("m", user, 1)) for user in range(1, 6)] + [gateway.submit(Question("nobody", 1))]
    assert [one.result(10).fallback for one in futures[:5]] == [None] * 5
    with pytest.raises(NotFound):
        futures[5].result(10)
    assert len({one.request_id for one in world.shown}) == 5


@pytest.mark.requirement("G-13")
def test_an_impression_carries_its_slices_as_the_spec_was_when_it_was_given(world):
    world.routes["m"] = Route(1, generation=1)
    world.specs["m"] = spec(monitor={"slices": {"young": "user.age < 25", "germany": "user.country == 'de'"}})
    gateway = world.gateway()
    gateway.refresh()
    for context in ({"age": 20, "country": "de"}, {"age": 30, "country": "de"}, {"age": 30}, {}):
        gateway.recommend("m", 7, context=context)
    world.specs["m"] = spec(monitor={"slices": {"old": "user.age > 25"}})
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    gateway.recommend("m", 7, context={"age": 30, "country": "de"})
    assert [one.slices for one in world.shown] == [("germany", "young"), ("germany",), (), (), ("old",)]
