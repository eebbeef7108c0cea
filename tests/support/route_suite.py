"""Conformance suite of RouteStore."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.domain.route import Route
from shared.ports import (
    RouteStore,
)
from shared.testing.threads import THREADS, at_once
from tests.support.resource_suite import NOW, SECOND


class RouteStoreSuite:
    def put(self, routes: RouteStore, route: Route, second: int) -> Route:
        return routes.put("films", route, NOW + second * SECOND, "ada", "a test")

    def test_a_route_is_read_back_with_its_generation_and_time(self, routes: RouteStore) -> None:
        assert routes.get("films") is None
        made = self.put(routes, Route(1, 2, 0.05, "ro-1", 0), 0)
        assert made == Route(1, 2, 0.05, "ro-1", 0, generation=1, since=NOW)
        assert routes.get("films") == made
        assert routes.all() == {"films": made}

    def test_a_shadow_is_kept_and_is_a_change(self, routes: RouteStore) -> None:
        self.put(routes, Route(1, 2, 0.0, "ro-1"), 0)
        made = self.put(routes, Route(1, 2, 0.0, "ro-1", shadow=True), 1)
        assert (made.shadow, made.generation) == (True, 2)
        assert routes.get("films") == routes.all()["films"] == made
        assert [entry.route.shadow for entry in routes.history("films")] == [True, False]

    def test_each_change_raises_the_generation_by_one(self, routes: RouteStore) -> None:
        changes = [Route(1), Route(1, 2, 0.05, "s", 0), Route(1, 2, 0.25, "s", 1), Route(1), Route(1, 2, 0.25, "t", 1)]
        assert [self.put(routes, route, n).generation for n, route in enumerate(changes)] == [1, 2, 3, 4, 5]
        assert routes.put("books", Route(1), NOW, "ada", "").generation == 1

    def test_an_equal_route_changes_nothing(self, routes: RouteStore) -> None:
        made = self.put(routes, Route(1, 2, 0.05, "s", 0), 0)
        assert self.put(routes, Route(1, 2, 0.05, "s", 0), 9) == made
        assert self.put(routes, made, 9) == made == routes.get("films")

    def test_all_of_them_are_the_same_object_until_one_changes(self, routes: RouteStore) -> None:
        self.put(routes, Route(1), 0)
        before = routes.all()
        self.put(routes, Route(1), 1)
        assert routes.all() is before
        made = self.put(routes, Route(1, 2, 0.05, "s", 0), 2)
        assert routes.all() == {"films": made}
        routes.put("books", Route(1), NOW, "ada", "")
        assert list(routes.all()) == ["books", "films"]
        assert list(before) == ["films"], "an earlier result must not change"

    def test_changes_that_race_are_all_seen_by_whoever_reads_meanwhile(self, routes: RouteStore) -> None:
        def put_and_read(n: int) -> None:
            made = routes.put(f"films-{n}", Route(n + 1), NOW, "ada", "")
            assert routes.all()[f"films-{n}"] == made

        at_once(THREADS, put_and_read)
        assert len(routes.all()) == THREADS

    def test_generations_of_racing_changes_are_consecutive(self, routes: RouteStore) -> None:
        made = at_once(THREADS, lambda n: self.put(routes, Route(n + 1), n))
        assert sorted(route.generation for route in made) == list(range(1, THREADS + 1))
        assert routes.get("films") == max(made, key=lambda route: route.generation)

    @pytest.mark.requirement("G-11")
    def test_the_history_says_what_served_when_and_by_whose_decision(self, routes: RouteStore) -> None:
        changes = [Route(1), Route(1, 2, 0.05, "ro-1", 0), Route(2), Route(1)]
        for n, route in enumerate(changes):
            routes.put("films", route, NOW + n * SECOND, f"actor {n}", f"reason {n}")
        routes.put("books", Route(7), NOW, "ada", "")
        history = routes.history("films")
        assert [replace(entry.route, generation=0, since=None) for entry in history] == changes[::-1]
        assert [(entry.route.generation, entry.actor, entry.reason) for entry in history] == [
            (n + 1, f"actor {n}", f"reason {n}") for n in (3, 2, 1, 0)
        ]
        assert [entry.until for entry in history] == [None, *(NOW + n * SECOND for n in (3, 2, 1))]
        assert [entry.route.generation for entry in routes.history("films", 2)] == [4, 3]
        assert [entry.route.generation for entry in routes.history("films", 2, 3)] == [2, 1]
        assert routes.history("music") == []

    @pytest.mark.requirement("G-11")
    def test_what_served_at_a_time_is_known(self, routes: RouteStore) -> None:
        for n, route in enumerate((Route(1), Route(2), Route(3))):
            self.put(routes, route, 10 * n)
        for second, stable in ((0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (99, 3)):
            entry = routes.at("films", NOW + second * SECOND)
            assert entry is not None
            assert entry.route.stable == stable
        assert routes.at("films", NOW - SECOND) is None
        assert routes.at("books", NOW) is None

    def test_a_version_has_left_when_no_route_names_it_any_more(self, routes: RouteStore) -> None:
        assert routes.left("films") == {}
        for second, route in enumerate((Route(1), Route(1, 2, 0.05), Route(1, 2, 0.25), Route(2), Route(2, 3, 0.05), Route(2))):
            self.put(routes, route, second)
        assert routes.left("films") == {1: NOW + 3 * SECOND, 3: NOW + 5 * SECOND}
        self.put(routes, Route(2, 1, 0.05), 6)
        assert routes.left("films") == {3: NOW + 5 * SECOND}
        self.put(routes, Route(2), 7)
        assert routes.left("films") == {1: NOW + 7 * SECOND, 3: NOW + 5 * SECOND}
        assert routes.left("books") == {}

    def test_a_version_serves_since_it_last_became_stable(self, routes: RouteStore) -> None:
        for second, route in enumerate((Route(1), Route(1, 2, 0.05), Route(2), Route(2, 3, 0.5), Route(1), Route(1, 3, 0.5))):
            self.put(routes, route, second)
        assert routes.serving_since("films", 1) == NOW + 4 * SECOND
        assert routes.serving_since("films", 2) == NOW + 2 * SECOND
        assert routes.serving_since("films", 3) is None
        assert routes.serving_since("books", 1) is None

    def test_going_back_never_leads_forward_again(self, routes: RouteStore) -> None:
        upwards = [(Route(1), None), (Route(1, 2, 0.05), None), (Route(2), 1), (Route(2, 3, 0.05), 1), (Route(3), 2)]
        expected = [*upwards, (Route(2), 1), (Route(1), None), (Route(4), 1)]
        for second, (route, previous) in enumerate(expected):
            self.put(routes, route, second)
            assert routes.previous("films") == previous
        assert routes.previous("books") is None

    def test_gateways_report_what_they_serve(self, routes: RouteStore) -> None:
        routes.report("gate-a", {"films": 3, "books": 1}, NOW)
        routes.report("gate-b", {"films": 2}, NOW + SECOND)
        routes.report("gate-c", {}, NOW + SECOND)
        assert routes.reports("films", NOW) == {"gate-a": 3, "gate-b": 2, "gate-c": 0}
        assert routes.reports("books", NOW + SECOND) == {"gate-b": 0, "gate-c": 0}
        reports = [(gateway.name, dict(gateway.served), gateway.heard_at) for gateway in routes.gateways(NOW + SECOND)]
        assert reports == [("gate-b", {"films": 2}, NOW + SECOND), ("gate-c", {}, NOW + SECOND)]
        routes.report("gate-b", {"films": 3}, NOW + 2 * SECOND)
        assert routes.reports("films", NOW + 2 * SECOND) == {"gate-b": 3}

    def test_a_gateway_that_serves_what_it_said_is_heard(self, routes: RouteStore) -> None:
        assert not routes.heard("gate-a", NOW), "an unknown gateway"
        assert routes.reports("films", NOW) == {}
        routes.report("gate-a", {"films": 3}, NOW)
        assert routes.heard("gate-a", NOW + SECOND)
        assert routes.reports("films", NOW + SECOND) == {"gate-a": 3}

    def test_gateways_that_report_at_once_are_all_heard(self, routes: RouteStore) -> None:
        at_once(THREADS, lambda n: routes.report(f"gate-{n % 4}", {"films": 1}, NOW))
        assert routes.reports("films", NOW) == {f"gate-{n}": 1 for n in range(4)}
