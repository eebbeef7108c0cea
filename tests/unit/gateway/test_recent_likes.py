"""Likes since the training in the gateway: which of them a version gets, what is read for them, and what an answer does without them."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import numpy as np
import pytest

from services.gateway import Question
from shared.domain.route import Route
from shared.serving.signature import BLANK
from shared.telemetry import metrics
from tests.support.gateway_world import ITEMS, NOW, npz
from tests.unit.gateway.test_stages import VECTORS, answered, items, serving

BLANK_KEY = BLANK["int64"]
INPUTS = [
    {"name": "userId", "dtype": "int64", "side": "user"},
    {"name": "movieId", "dtype": "int64", "side": "item"},
    {"name": "movieId_recent", "dtype": "int64", "width": 3, "side": "context", "lists": "shared"},
]
BEFORE, AFTER = (NOW - timedelta(minutes=1)).timestamp(), (NOW + timedelta(minutes=1)).timestamp()
KNOWN, STRANGER = 1, 99


def vectors(**changed: tuple[float, float]) -> dict[str, bytes]:
    rows = [changed.get(f"of_{item}", vector) for item, vector in VECTORS.items()]
    return {
        "embeddings.npz": npz(items=np.array(ITEMS), vectors=np.array(rows, np.float32)),
        "queries.npz": npz(users=np.array([1, 2]), vectors=np.array([(1.0, 0.0), (0.0, 1.0)], np.float32)),
    }


def add(world, number=1, learned_until=BEFORE, files=None):
    document = {"user": "userId", "item": "movieId", "session": "movieId_recent", "inputs": INPUTS}
    if learned_until is not None:
        document["learned_until"] = learned_until
    world.add_version(number, **{"signature.json": json.dumps(document).encode()}, **(files or {}))
    world.routes["m"] = Route(number, generation=1)
    world.likes = frozenset({30, 50})


def recent(world, question, **serve):
    """The answer to a question, and the recent items that the version got, None if it was not asked."""
    gateway = serving(world, order={"explore": {"rate": 0}}, **serve)
    world.feeds.clear()

    def score(name, number, feed, patience):
        world.feeds.append((number, dict(feed)))
        return -feed["movieId"].astype(np.float32)

    world.score = score
    (answer,) = answered(gateway, question)
    got = world.feeds[-1][1]["movieId_recent"][0].tolist() if world.feeds else None
    return answer, got


@pytest.mark.requirement("U-14")
def test_a_version_gets_the_likes_since_its_training_and_then_the_items_of_the_request(world):
    add(world)
    answer, got = recent(world, Question("m", KNOWN, 2, items=(20,)))
    assert got == [30, 50, 20]
    assert items(answer) == [10, 40], "neither what was liked nor what was viewed is shown"


@pytest.mark.requirement("U-14")
@pytest.mark.parametrize(("learned_until", "user", "expected"), [(AFTER, KNOWN, False), (AFTER, STRANGER, True), (None, KNOWN, False)])
def test_what_the_version_has_learned_is_not_sent_again(world, learned_until, user, expected):
    """A user whom the version does not know is in none of its rows; a version of an older release does not say what it learned."""
    add(world, learned_until=learned_until)
    _, got = recent(world, Question("m", user, 2))
    assert got == ([30, 50, BLANK_KEY] if expected else [BLANK_KEY] * 3)


@pytest.mark.requirement("U-14")
def test_recent_likes_are_off_if_the_spec_says_so(world):
    add(world)
    _, got = recent(world, Question("m", KNOWN, 2), recent="off")
    assert got == [BLANK_KEY] * 3


@pytest.mark.requirement("U-14")
def test_candidates_are_also_similar_to_recent_likes_but_not_to_a_zero_vector(world):
    add(world, files=vectors())
    recent(world, Question("m", KNOWN, 2), retrieve={"candidates": 2}, filter=[])
    assert sorted(world.feeds[-1][1]["movieId"].tolist()) == [10, 40], "one by the user's vector, one like 30 and 50"
    add(world, files=vectors(of_30=(0.0, 0.0), of_50=(0.0, 0.0)))
    recent(world, Question("m", KNOWN, 2), retrieve={"candidates": 2}, filter=[])
    assert sorted(world.feeds[-1][1]["movieId"].tolist()) == [10, 20]


@pytest.mark.requirement("U-14")
def test_an_unknown_user_does_not_get_the_viewed_items_as_similar_ones_though_one_has_a_zero_vector(world):
    world.add_version(1, **vectors(of_50=(0.0, 0.0)))
    world.routes["m"] = Route(1, generation=1)
    gateway = serving(world, order={"explore": {"rate": 0}}, filter=[])
    (answer,) = answered(gateway, Question("m", STRANGER, 5, items=(50, 30)))
    assert answer.fallback == "unknown user, by items"
    assert sorted(items(answer)) == [10, 20, 40]


@pytest.mark.requirement("U-14", "C-05")
def test_a_candidate_that_reads_likes_changes_nothing_for_a_stable_version_that_does_not(world):
    world.add_version(1, **vectors())
    world.routes["m"] = Route(1, generation=1)
    world.likes = frozenset({30, 50})
    alone = serving(world, retrieve={"candidates": 2}).recommend("m", STRANGER, 2)
    add(world, 2, files=vectors())
    world.routes["m"] = Route(1, candidate=2, weight=0.0, generation=2)
    beside = serving(world, retrieve={"candidates": 2}).recommend("m", STRANGER, 2)
    assert (items(beside), beside.fallback, beside.version) == (items(alone), alone.fallback, 1)
    assert alone.fallback == "unknown user"


@pytest.mark.requirement("U-14")
def test_scores_read_the_log_only_for_a_version_that_reads_likes(world):
    add(world)
    gateway = serving(world)
    world.looked_since = "not read"
    gateway.score("m", KNOWN, [10])
    assert world.looked_since == NOW - timedelta(minutes=1)
    world.add_version(1)
    gateway = serving(world)
    world.looked_since = "not read"
    gateway.score("m", KNOWN, [10])
    assert world.looked_since == "not read"


@pytest.mark.requirement("U-14", "C-05")
def test_without_a_filter_of_seen_items_an_answer_does_not_wait_for_a_hanging_log_and_is_not_counted(world):
    add(world)
    gateway = serving(world, filter=[], deadlines={"seen": "10s", "features": "20ms"})
    world.log_hangs = threading.Event()
    before = metrics.UNFILTERED.labels("m")._value.get()
    (answer,) = answered(gateway, Question("m", KNOWN, 2, trial=True))
    assert answer.fallback is None
    assert metrics.UNFILTERED.labels("m")._value.get() == before
