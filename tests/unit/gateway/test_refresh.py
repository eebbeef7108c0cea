"""How a gateway follows the routes: loaded, then swapped, then reported; and what it does without a control plane."""

from __future__ import annotations

import logging

import pytest

from shared.domain.errors import NotFound
from shared.domain.route import Route
from shared.telemetry import metrics


def test_a_generation_is_reported_only_after_its_versions_are_loaded(world):
    world.routes["m"] = Route(1, 2, 0.1, "s", 0, generation=4)
    gateway = world.gateway()
    gateway.refresh()
    assert world.said == ["load 1", "load 2", "report {'m': 4}"]


def test_a_pass_that_finds_nothing_new_loads_and_reports_nothing(world):
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    reads = world.artifacts.reads
    gateway.refresh()
    assert (len(world.reported), world.artifacts.reads) == (1, reads)


def test_while_nothing_changes_no_spec_is_read_and_the_heartbeat_says_nothing_else(world, monkeypatch):
    gateway = world.gateway()
    world.routes["m"] = Route(1, generation=1)
    gateway.refresh()
    asked, heard = [], []
    monkeypatch.setattr(world, "get", lambda *given: asked.append(given))
    monkeypatch.setattr(world, "heard", lambda gateway, now: heard.append(now) or True)
    for _ in range(50):
        world.clock.pass_by(seconds=0.1)
        gateway.refresh()
    assert (asked, len(world.reported)) == ([], 1)
    assert 9 <= len(heard) <= 10


def test_a_spec_that_changes_is_heard_at_the_next_pass(world):
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    assert not gateway._loader.snapshot.served["m"].slices.conditions
    changed = world.specs["m"].model_dump(mode="json", by_alias=True) | {"monitor": {"slices": {"young": "user.age < 30"}}}
    world.specs["m"] = type(world.specs["m"]).model_validate(changed)
    gateway.refresh()
    assert list(gateway._loader.snapshot.served["m"].slices.conditions) == ["young"]


def test_the_report_is_repeated_as_a_heartbeat_even_where_nothing_serves(world):
    gateway = world.gateway()
    for _ in range(3):
        gateway.refresh()
        world.clock.pass_by(seconds=0.6)
    assert [served for _, served in world.reported] == [{}, {}, {}]
    assert gateway.ready


def test_a_version_that_stays_is_not_loaded_again(world):
    gateway = world.gateway()
    world.routes["m"] = Route(1, generation=1)
    gateway.refresh()
    world.routes["m"] = Route(1, 2, 0.1, "s", 0, generation=2)
    gateway.refresh()
    assert world.said == ["load 1", "report {'m': 1}", "load 2", "report {'m': 2}"]


@pytest.mark.requirement("C-05")
def test_without_the_store_the_last_routes_serve_on_and_the_log_says_it_once(world, caplog):
    gateway = world.gateway()
    world.routes["m"] = Route(1, generation=1)
    gateway.refresh()
    world.store_fails = True
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            world.clock.pass_by(seconds=1)
            gateway.refresh()
        assert gateway.recommend("m", 1).version == 1
        assert len(caplog.records) == 1
        assert "the store is away" in caplog.text
        world.store_fails = False
        gateway.refresh()
    assert "route: loading recovered" in caplog.text
    assert len(world.reported) == 2, "it reports nothing while it can't know the routes"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("users.npy", None, "has no users.npy"),
        ("popular.npy", b"not an array", "allow_pickle"),
        ("signature.json", b'{"user": "u"}', "signature.json of version 2"),
    ],
)
def test_a_version_that_cannot_be_loaded_leaves_the_former_route_in_force_and_unreported(world, caplog, file, content, said):
    world.add_version(2, **{file: content})
    gateway = world.gateway()
    world.routes["m"] = Route(1, generation=1)
    gateway.refresh()
    world.routes["m"] = Route(2, generation=2)
    for _ in range(3):
        world.clock.pass_by(seconds=1)
        gateway.refresh()
    assert {served["m"] for _, served in world.reported} == {1}
    assert gateway.recommend("m", 1).version == 1
    assert len(caplog.records) == 1
    assert said in caplog.text


def test_one_broken_recommender_does_not_hold_back_another(world):
    world.specs["b"] = world.specs["m"]
    world.routes = {"b": Route(9, generation=1), "m": Route(1, generation=1)}
    gateway = world.gateway()
    gateway.refresh()
    assert world.reported[-1][1] == {"m": 1}
    assert gateway.recommend("m", 1).version == 1


def test_what_cannot_be_loaded_is_tried_again_with_the_heartbeat_not_at_each_pass(world):
    world.routes["m"] = Route(3, generation=1)
    gateway = world.gateway()
    for _ in range(4):
        gateway.refresh()
        world.clock.pass_by(milliseconds=100)
    assert world.said.count("load 3") == 1
    world.add_version(3)
    world.clock.pass_by(milliseconds=500)
    gateway.refresh()
    assert world.reported[-1][1] == {"m": 1}


@pytest.mark.requirement("C-01")
def test_what_is_deleted_answers_as_what_never_was(world):
    world.routes["m"] = Route(1, generation=1)
    gateway = world.gateway()
    gateway.refresh()
    assert gateway.recommend("m", 1).version == 1
    del world.routes["m"], world.specs["m"]
    gateway.refresh()
    with pytest.raises(NotFound, match="no recommender is called 'm'"):
        gateway.recommend("m", 1)
    assert world.reported[-1][1] == {}


def test_errors_of_a_loaded_version_are_counted_from_0(world):
    """Else a rate misses the first error, or all errors of a version that only fails."""
    world.routes["m"] = Route(1, 2, 0.1, "s", 0, generation=4)
    metrics.REQUESTS.clear()
    world.gateway().refresh()
    (family,) = metrics.REQUESTS.collect()
    counts = {tuple(sample.labels.values()): sample.value for sample in family.samples if sample.name.endswith("_total")}
    assert counts == {("m", "1", "stable", "error"): 0, ("m", "2", "candidate", "error"): 0}
