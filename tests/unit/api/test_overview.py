"""How every recommender fares, by one question."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.monitor.kpi_history import KpiPeriod, VersionHistories
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import Unreadable
from shared.domain.sequential_test import VariantSample
from tests.support.api_world import NOW, document
from tests.support.drift_readings import look

pytestmark = pytest.mark.requirement("C-09")

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("seen", "state", "said"),
    [
        (look(genres=0.01), "steady", "no drift: the least likely of 1 readings is drift of genres: psi 0.010"),
        (
            look(genres=3.66, chance=0.2),
            "unsure",
            "drift of genres: psi 3.660; by chance alone in 20% of all looks; chance may explain it",
        ),
        (look(genres=3.66), "unsure", "not confirmed yet"),
        (None, "unknown", "too few positives or users for two separate windows"),
    ],
)
def test_what_is_beyond_its_threshold_is_never_called_steady(world, client, seen, state, said):
    world.add_recommender()
    world.look = seen
    found = client.get("/v1/recommenders/m/drift").json()
    assert (found["state"], said in found["said"][0]) == (state, True), found["said"]


def test_it_tells_what_serves_what_it_earns_and_what_is_under_way(world, client):
    world.add_recommender()
    world.route(2)
    world.add_run(state="train", reason="it goes on")
    world.add_run("r2", state="failed")
    world.add_rollout(state="canary")
    lines = {
        1: [KpiPeriod(NOW, NOW + MINUTE, VariantSample(9, 9.0, 9.0, 9, 9, 9))],
        2: [KpiPeriod(NOW, NOW + MINUTE, VariantSample(8, 2.0, 2.0, 8, 2, 2))],
    }
    world.life = VersionHistories(NOW, NOW + MINUTE, MINUTE, NOW, lines, 0)
    (found,) = client.get("/v1/overview").json()["items"]
    assert (found["name"], found["serving"]["stable"]) == ("m", 2)
    assert [(one["users"], one["hit_rate"]) for one in found["points"]] == [(8, 0.25)]
    assert found["last"] == found["points"][-1]
    assert [(one["kind"], one["id"], one["state"], one["reason"]) for one in found["under_way"]] == [
        ("rollout", "r1-rollout", "canary", ""),
        ("run", "r1", "train", "it goes on"),
    ]
    assert found["drift"]["said"] == client.get("/v1/recommenders/m/drift").json()["said"]
    assert found["drift"]["state"] == client.get("/v1/recommenders/m/drift").json()["state"] == "unsure"


def test_what_serves_nothing_yet_is_there_too(world, client):
    world.add_recommender()
    world.look = None
    (found,) = client.get("/v1/overview").json()["items"]
    assert (found["serving"], found["newest"], found["points"], found["last"], found["under_way"]) == (None, None, [], None, [])
    assert found["drift"]["state"] == "unknown" and "too few" in found["drift"]["said"][0]


def test_drift_that_cannot_be_measured_hides_no_recommender(world, client):
    world.add_recommender()
    world.look = Unreadable("version 2 of 'm': its files are gone")
    (found,) = client.get("/v1/overview").json()["items"]
    assert found["drift"] == {"state": "unknown", "said": ["version 2 of 'm': its files are gone"]}


def test_it_comes_in_pages_of_names_that_the_token_sees(world, client, problem):
    for name in ("films", "film-club", "music", "news"):
        world.recommenders.put(RecommenderSpec.model_validate(document(name=name)), NOW, "ada")
    first = client.get("/v1/overview?limit=3").json()
    second = client.get("/v1/overview", params={"limit": 3, "cursor": first["next"]}).json()
    assert [one["name"] for one in first["items"] + second["items"]] == ["film-club", "films", "music", "news"]
    assert second["next"] is None
    assert [one["name"] for one in client.get("/v1/overview?prefix=film").json()["items"]] == ["film-club", "films"]
    limited = world.holder("viewer", ["music"])
    assert [one["name"] for one in limited.get("/v1/overview").json()["items"]] == ["music"]
    problem(client.get("/v1/overview?window=soon"), 422, "invalid")
    problem(client.get("/v1/overview?points=0"), 422, "invalid")
