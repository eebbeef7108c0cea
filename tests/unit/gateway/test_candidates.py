"""A version with vectors is asked for what they find; who has none, or too little, gets what there is."""

from __future__ import annotations

import numpy as np
import pytest

from services.gateway import Question
from shared.domain.route import Route
from tests.support.gateway_world import ITEMS, npz, spec

VECTORS = {10: (1.0, 0.0), 20: (0.8, 0.1), 30: (0.5, 0.5), 40: (0.1, 0.8), 50: (0.0, 1.0)}
"""User 1 likes the first ones best, user 2 the last ones; user 3 is known to the model alone."""
QUERIES = {1: (1.0, 0.0), 2: (0.0, 1.0)}


@pytest.fixture
def gateway(world):
    files = {
        "embeddings.npz": npz(items=np.array(ITEMS), vectors=np.array(list(VECTORS.values()), np.float32)),
        "queries.npz": npz(users=np.array(list(QUERIES)), vectors=np.array(list(QUERIES.values()), np.float32)),
    }
    world.add_version(1, **files)
    world.specs["m"] = spec(serve={"retrieve": {"candidates": 3}})
    world.routes["m"] = Route(1, generation=1)
    world.score = scores_by_item(world)
    made = world.gateway()
    made.refresh()
    return made


def scores_by_item(world):
    """Dearer items score higher, whoever asks."""

    def score(name, number, feed, patience=None):
        world.feeds.append((number, dict(feed)))
        if world.scoring_fails:
            return np.full(len(feed["movieId"]), np.nan, np.float32)
        return feed["movieId"].astype(np.float32)

    return score


def items(answer):
    return [item for item, _ in answer.items]


@pytest.mark.requirement("G-01", "G-03")
def test_only_what_the_vectors_find_is_scored_and_the_scores_decide_the_order(world, gateway):
    assert items(gateway.recommend("m", 1, 2)) == [30, 20]
    ((_, feed),) = world.feeds
    assert sorted(feed["movieId"].tolist()) == [10, 20, 30]
    assert feed["userId"].tolist() == [1] * 3


def test_users_who_come_together_share_the_call_each_with_their_own_candidates(world, gateway):
    first, second = gateway._answered([Question("m", 1), Question("m", 2)])
    assert (items(first), items(second)) == ([30, 20, 10], [50, 40, 30])
    assert len(world.feeds) == 1


@pytest.mark.requirement("G-01")
def test_without_scores_the_likeliest_candidates_go_out(world, gateway):
    world.scoring_fails = True
    answer = gateway.recommend("m", 1, 2)
    assert answer.items == ((10, None), (20, None))
    assert answer.fallback == "scoring unavailable"


def test_where_a_filter_leaves_too_few_the_candidates_are_taken_from_further_away(world, gateway):
    answer = gateway.recommend("m", 1, 2, exclude=[10, 20, 30])
    assert items(answer) == [50, 40]
    assert answer.fallback is None
    assert gateway.recommend("m", 1, 2, exclude=ITEMS).fallback == "nothing left"


def test_a_user_whom_the_vectors_do_not_know_is_scored_on_popular_items(world, gateway):
    assert items(gateway.recommend("m", 3, 5)) == [50, 40, 30]
    ((_, feed),) = world.feeds
    assert sorted(feed["movieId"].tolist()) == [30, 40, 50]


def test_such_a_user_too_gets_what_a_strict_filter_leaves(world, gateway):
    assert items(gateway.recommend("m", 3, 2, exclude=[50, 40, 30])) == [20, 10]


@pytest.mark.requirement("G-01")
def test_a_user_whom_nobody_knows_gets_popular_items_that_nobody_scored(world, gateway):
    answer = gateway.recommend("m", 99, 2)
    assert (items(answer), answer.fallback, world.feeds) == ([50, 40], "unknown user", [])


def test_as_many_candidates_as_there_are_items_are_the_whole_catalogue(world, gateway):
    world.specs["m"] = spec(serve={"retrieve": {"candidates": 5}})
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert items(gateway.recommend("m", 1)) == [50, 40, 30, 20, 10]
