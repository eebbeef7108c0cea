"""Versions that read the items of a request: a stranger who brings some is scored, and not shown what is merely like them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from services.gateway import Question
from shared.domain.route import Route
from shared.serving.signature import BLANK
from tests.support.gateway_world import ITEMS, npz
from tests.unit.gateway.test_stages import VECTORS, answered, items, serving

INPUTS = [
    {"name": "userId", "dtype": "int64", "side": "user"},
    {"name": "movieId", "dtype": "int64", "side": "item"},
    {"name": "movieId_session", "dtype": "int64", "width": 3, "side": "context"},
]
NOTHING = BLANK["int64"]


@pytest.fixture
def reading(world):
    files = {
        "embeddings.npz": npz(items=np.array(ITEMS), vectors=np.array(list(VECTORS.values()), np.float32)),
        "queries.npz": npz(users=np.array([1, 2]), vectors=np.array([(1.0, 0.0), (0.0, 1.0)], np.float32)),
    }
    said = {"user": "userId", "item": "movieId", "session": "movieId_session", "inputs": INPUTS}
    world.add_version(1, **{"signature.json": json.dumps(said).encode()}, **files)
    world.routes["m"] = Route(1, generation=1)
    return world


def asking(world, **serve):
    """The score of an item is the higher, the nearer it is to what was brought last."""
    made = serving(world, order={"explore": {"rate": 0}}, **serve)

    def score(name, number, feed, patience):
        world.feeds.append((number, dict(feed)))
        brought = feed["movieId_session"]
        last = np.where(brought == NOTHING, 0, brought).max(axis=1)
        return -np.abs(feed["movieId"] - last).astype(np.float32)

    world.score = score
    return made


@pytest.mark.requirement("G-20", "G-01")
def test_a_stranger_is_scored_by_the_items_that_the_request_brings(reading):
    (found, none, unknown) = answered(
        asking(reading), Question("m", 99, 2, items=(50, 30, 10)), Question("m", 99, 2), Question("m", 99, 2, items=(77,))
    )
    assert (items(found), found.fallback) == ([40, 20], None), "what was brought isn't shown again"
    assert all(score is not None for _, score in found.items)
    ((_, feed),) = reading.feeds
    assert feed["movieId_session"].tolist() == [[50, 30, 10]] * len(ITEMS)
    assert none.fallback == unknown.fallback == "unknown user", "who brings nothing that the version has"


@pytest.mark.requirement("G-20", "G-01")
def test_of_many_items_the_newest_are_read_and_a_known_users_too(reading):
    gateway = asking(reading)
    known, quiet = answered(gateway, Question("m", 1, 1, items=(50, 40, 30, 20)), Question("m", 2, 1))
    assert (items(known), known.fallback, quiet.fallback) == ([10], None, None)
    brought = {int(feed["userId"][0]): feed["movieId_session"][0].tolist() for _, feed in reading.feeds}
    every = np.concatenate([np.c_[feed["userId"], feed["movieId_session"]] for _, feed in reading.feeds]).tolist()
    assert [1, 40, 30, 20] in every and [2, NOTHING, NOTHING, NOTHING] in every and brought


@pytest.mark.requirement("G-20", "G-02")
def test_where_candidates_are_retrieved_a_strangers_are_like_the_items_and_the_version_orders_them(reading):
    (found,) = answered(asking(reading, retrieve={"candidates": 3}), Question("m", 99, 2, items=(10,)))
    assert (items(found), found.fallback) == ([20, 30], None)
    ((_, feed),) = reading.feeds
    assert sorted(feed["movieId"].tolist()) == [20, 30, 40], "without what was brought"


@pytest.mark.requirement("G-20", "N-05")
def test_a_stranger_whom_nobody_scores_gets_what_is_popular_or_like_the_items_and_is_told_so(reading):
    gateway = asking(reading)
    reading.score = lambda name, number, feed, patience: np.full(len(feed["movieId"]), np.nan)
    (found,) = answered(gateway, Question("m", 99, 2, items=(10,)))
    assert found.fallback == "scoring unavailable" and len(found.items) == 2


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize("wrong", [{"side": "item"}, {"width": None}, {"dtype": "float32"}])
def test_a_unit_whose_input_takes_no_items_is_refused(reading, wrong):
    inputs = [*INPUTS[:2], INPUTS[2] | wrong]
    said = {"user": "userId", "item": "movieId", "session": "movieId_session", "inputs": inputs}
    reading.add_version(1, **{"signature.json": json.dumps(said).encode()})
    gateway = serving(reading)
    with pytest.raises(Exception, match="takes the items of the request: expected a list of int64 per row"):
        gateway.recommend("m", 1)
