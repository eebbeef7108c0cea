"""Placement: on the model server is what a route names, what a rollout needs and what a request may still want, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from services.control.placement import GRACE, TELL_AGAIN, Placement
from shared.domain.errors import EyasError, NotFound, Unavailable
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.ports import ServedUnit
from shared.testing.fakes import FakeModelServer
from tests.support.simulated_platform import NAME, Plane, World


class Watched(FakeModelServer):
    """Remembers what it was told to place."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[tuple[str, list[int]]] = []

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        self.orders.append((recommender, [unit.number for unit in units]))
        return super().place(recommender, units)


@pytest.fixture
def server(world: World) -> Watched:
    world.server = world.fake_server = Watched()
    for _ in range(3):
        world.version()
    return world.fake_server


@pytest.fixture
def plane(world: World, server: Watched) -> Plane:
    return world.plane()


def put(world: World, *route: Route) -> None:
    for one in route:
        world.routes.put(NAME, one, world.clock.now(), "ada", "a test")


def placed(world: World, plane: Plane) -> set[int]:
    plane.tick("placement")
    return set(world.fake_server.answering(NAME))


def move(world: World, state: str, finished: bool = False) -> None:
    world.rollouts.commit(
        world.rollouts.get("o2"), RolloutStatus(state), due_at=world.clock.now(), entry=None, finished=finished, clear_request=False
    )


def test_without_routes_and_rollouts_nothing_is_placed(world: World, server: Watched, plane: Plane) -> None:
    plane.tick("placement")
    assert server.orders == []


def test_what_a_route_names_is_placed(world: World, plane: Plane) -> None:
    put(world, Route(1, 2, 0.2))
    assert placed(world, plane) == {1, 2}


def test_a_rollouts_version_is_placed_from_its_loading_to_its_end(world: World, plane: Plane) -> None:
    put(world, Route(1))
    world.start_rollout(2)
    assert placed(world, plane) == {1}
    for state in ("loading", "paused"):
        move(world, state)
        assert placed(world, plane) == {1, 2}
    move(world, "aborted", finished=True)
    assert placed(world, plane) == {1}


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("after", ["routes", "rollouts"])
def test_a_version_that_is_promoted_while_one_looks_stays(
    world: World, server: Watched, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    placement = Placement(world.routes, world.rollouts, world.registry, server, world.clock, world.keep_warm)
    world.start_rollout(2)
    move(world, "loading")
    placement.tick()
    assert server.orders == [(NAME, [2])]
    store, method = {"routes": (world.routes, "all"), "rollouts": (world.rollouts, "list")}[after]
    read = getattr(store, method)

    def promoted_meanwhile(**asked: Any) -> Any:
        found = read(**asked)
        monkeypatch.undo()
        put(world, Route(2))
        move(world, "promoted", finished=True)
        return found

    monkeypatch.setattr(store, method, promoted_meanwhile)
    placement.tick()
    assert world.routes.all()[NAME].stable == 2, "it was promoted"
    assert server.orders == [(NAME, [2])]


@pytest.mark.requirement("C-05")
def test_the_previous_stable_version_is_kept_warm_for_as_long_as_the_spec_says(world: World, plane: Plane) -> None:
    world.apply(rollout={"keep_warm": "2h"})
    put(world, Route(1), Route(2))
    assert placed(world, plane) == {1, 2}
    world.clock.time += timedelta(hours=2) - timedelta(milliseconds=1)
    assert placed(world, plane) == {1, 2}
    world.clock.pass_by(milliseconds=1)
    assert placed(world, plane) == {2}


def test_a_spec_that_changes_how_long_is_heard_soon(world: World, plane: Plane) -> None:
    world.apply(rollout={"keep_warm": "2h"})
    put(world, Route(1), Route(2))
    world.clock.pass_by(minutes=30)
    assert placed(world, plane) == {1, 2}
    world.apply(rollout={"keep_warm": "10m"})
    world.clock.pass_by(seconds=10)
    assert placed(world, plane) == {2}


def test_a_rollout_after_the_next_one_does_not_renew_the_warmth(world: World, plane: Plane) -> None:
    put(world, Route(1), Route(2))
    world.clock.pass_by(minutes=50)
    put(world, Route(2, 3, 0.1), Route(2))
    world.clock.pass_by(minutes=10)
    assert placed(world, plane) == {2}


def test_a_version_that_has_left_the_routes_stays_for_as_long_as_a_request_lives(world: World, plane: Plane) -> None:
    put(world, Route(1), Route(1, 2, 0.2))
    world.clock.pass_by(seconds=100)
    put(world, Route(1))
    assert placed(world, plane) == {1, 2}
    world.clock.time += GRACE - timedelta(milliseconds=1)
    assert placed(world, plane) == {1, 2}
    world.clock.pass_by(milliseconds=1)
    assert placed(world, plane) == {1}


def test_the_version_before_the_previous_one_goes(world: World, plane: Plane) -> None:
    put(world, Route(1), Route(2), Route(3))
    assert placed(world, plane) == {1, 2, 3}
    world.clock.pass_by(seconds=31)
    assert placed(world, plane) == {2, 3}


def test_the_server_is_told_only_when_what_is_wanted_changes(world: World, server: Watched, plane: Plane) -> None:
    put(world, Route(1))
    for _ in range(100):
        plane.tick("placement")
        world.clock.pass_by(seconds=1)
    put(world, Route(1, 2, 0.2))
    plane.tick("placement")
    put(world, Route(1, 2, 0.5))
    plane.tick("placement")
    assert server.orders == [(NAME, [1]), (NAME, [1, 2])]


def test_a_new_control_plane_tells_the_server_once_more(world: World, server: Watched, plane: Plane) -> None:
    put(world, Route(1))
    plane.tick("placement")
    again = world.plane()
    again.tick("placement")
    again.tick("placement")
    assert server.orders == [(NAME, [1])] * 2


def test_why_a_version_cannot_be_loaded_is_remembered_and_the_others_serve(world: World, server: Watched, plane: Plane) -> None:
    server.broken[NAME, 2] = "corrupt"
    put(world, Route(1, 2, 0.2))
    for _ in range(3):
        assert placed(world, plane) == {1}
        assert plane.placement.fault(NAME, 2) == "corrupt"
    assert plane.placement.fault(NAME, 1) is None
    assert plane.placement.fault("books", 2) is None
    assert len(server.orders) == 1


def test_a_fault_is_forgotten_when_the_version_is_no_longer_wanted(world: World, server: Watched, plane: Plane) -> None:
    server.broken[NAME, 2] = "corrupt"
    put(world, Route(1), Route(1, 2, 0.2))
    plane.tick("placement")
    put(world, Route(1))
    world.clock.pass_by(seconds=31)
    plane.tick("placement")
    assert plane.placement.fault(NAME, 2) is None


def test_a_server_that_was_away_is_told_again(world: World, server: Watched, plane: Plane) -> None:
    put(world, Route(1))
    server.down = True
    with pytest.raises(Unavailable):
        plane.tick("placement")
    server.restart()
    assert placed(world, plane) == {1}


def test_units_carry_the_files_of_their_version(world: World, server: Watched, plane: Plane) -> None:
    world.start_run()
    world.until(plane, "registered", "run")
    put(world, Route(4))
    plane.tick("placement")
    assert server._placed[NAME, 4].files == world.registry.get(NAME, 4).files != {}


@pytest.mark.requirement("C-06")
def test_what_each_version_served_is_exported(world: World, server: Watched, plane: Plane) -> None:
    put(world, Route(1))
    plane.tick("placement")
    server.score(NAME, 1, {"user": np.zeros(1), "item": np.zeros(1)})
    plane.placement.export()
    assert REGISTRY.get_sample_value("eyas_triton_successes", {"recommender": NAME, "version": "1"}) == 1


def test_a_first_version_whose_rollout_was_aborted_leaves_the_server(world: World, plane: Plane) -> None:
    world.start_rollout(2)
    move(world, "loading")
    assert placed(world, plane) == {2}
    move(world, "aborted", finished=True)
    world.clock.pass_by(seconds=60)
    assert placed(world, plane) == set()


def test_a_recommender_that_cannot_be_placed_does_not_stop_the_others(world: World, plane: Plane) -> None:
    put(world, Route(1))
    world.routes.put("books", Route(9), world.clock.now(), "ada", "a version that the registry doesn't have")
    for _ in range(2):
        with contextlib.suppress(Exception):  # whether it raises at the end is not the point
            plane.tick("placement")
    assert world.fake_server.answering(NAME) == {1}


@pytest.mark.requirement("G-11")
def test_a_version_whose_row_was_tampered_with_is_left_out_and_keeps_no_other_down(world: World, plane: Plane) -> None:
    put(world, Route(1), Route(2, 3, 0.1, "s", 0))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE versions SET digest = 'x' WHERE number = 3")
    assert placed(world, plane) == {1, 2}
    assert "damaged" in (plane.placement.fault(NAME, 3) or "")


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("restarted", [False, True], ids=["the same control plane", "another one"])
def test_what_is_deleted_is_unloaded_when_its_last_requests_are_over(world: World, plane: Plane, restarted: bool) -> None:
    world.apply()
    put(world, Route(1), Route(2))
    assert placed(world, plane) == {1, 2}
    world.recommenders.delete(NAME, world.clock.now())
    assert placed(world, plane) == {1, 2}
    world.clock.pass_by(seconds=GRACE.total_seconds())
    plane = world.plane() if restarted else plane
    assert placed(world, plane) == set()
    orders = len(world.fake_server.orders)  # type: ignore[attr-defined]
    assert placed(world, plane) == set()
    assert len(world.fake_server.orders) == orders, "told once"  # type: ignore[attr-defined]
    world.apply()
    put(world, Route(3))
    assert placed(world, plane) == {3}


def test_who_leads_again_forgets_what_was_placed_before(world: World, server: Watched) -> None:
    terms = [1]
    placement = Placement(world.routes, world.rollouts, world.registry, server, world.clock, world.keep_warm, lambda: terms[-1])
    put(world, Route(1))
    placement.tick()
    server.place(NAME, [])  # by another, in between
    placement.tick()
    assert server.answering(NAME) == frozenset(), "within a term it is known what is there"
    terms.append(2)
    placement.tick()
    assert server.answering(NAME) == {1}


def test_what_one_that_slept_since_its_turn_has_removed_comes_back(world: World, server: Watched) -> None:
    placement = Placement(world.routes, world.rollouts, world.registry, server, world.clock, world.keep_warm, lambda: 1)
    put(world, Route(1))
    placement.tick()
    server.place(NAME, [])  # by another, which had made up its mind before this one began to lead
    world.clock.pass_by(seconds=TELL_AGAIN.total_seconds())
    placement.tick()
    assert server.answering(NAME) == {1}


@pytest.mark.parametrize(
    ("fault", "settled"),
    [(Unavailable("the server is away"), False), (NotFound("no such version"), True)],
    ids=["the server is away", "the version is gone"],
)
def test_it_is_settled_when_the_server_was_first_given_all_that_can_be_had(
    world: World, server: Watched, monkeypatch: pytest.MonkeyPatch, fault: EyasError, settled: bool
) -> None:
    placement = Placement(world.routes, world.rollouts, world.registry, server, world.clock, world.keep_warm)
    put(world, Route(1))

    def refuse(recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(server, "place", refuse)
        with pytest.raises(type(fault)):
            placement.tick()
    assert placement.settled is settled
    placement.tick()
    assert placement.settled


def test_where_nobody_else_places_nothing_is_told_twice(world: World, plane: Plane, server: Watched) -> None:
    put(world, Route(1))
    for _ in range(4):
        plane.tick("placement")
        world.clock.pass_by(seconds=TELL_AGAIN.total_seconds())
    assert server.orders == [(NAME, [1])]
