"""`SqlRoutes` keeps the promises of its port, and never routes to a collected version."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, select

from services.store.registry import SqlRegistry
from services.store.routes import SqlRoutes
from services.store.tables import route_history
from shared.domain.errors import Conflict
from shared.domain.route import Route
from tests.support.registry_suite import version
from tests.support.resource_suite import NOW, SECOND
from tests.support.route_suite import RouteStoreSuite


class TestSqlRoutes(RouteStoreSuite):
    @pytest.fixture
    def routes(self, engine: Engine) -> SqlRoutes:
        return SqlRoutes(engine)

    @pytest.mark.requirement("G-11")
    def test_a_version_whose_files_were_given_up_is_not_routed_and_not_gone_back_to(self, engine: Engine, routes: SqlRoutes) -> None:
        registry = SqlRegistry(engine)
        for n in (1, 2, 3):
            registry.register(version(f"run-{n}"))
            routes.put("films", Route(n), NOW + n * SECOND, "ada", "")
        assert not registry.collect("films", 3, NOW)
        assert routes.previous("films") == 2
        assert registry.collect("films", 2, NOW)
        assert routes.previous("films") == 1
        for route in (Route(2), Route(3, 2, 0.1, "s", 0)):
            with pytest.raises(Conflict, match="version 2 of 'films' was collected"):
                routes.put("films", route, NOW, "ada", "")
        assert registry.collect("films", 1, NOW)
        assert routes.previous("films") is None

    @pytest.mark.requirement("C-01")
    def test_every_route_is_kept_with_who_decided_it_and_why(self, engine: Engine, routes: SqlRoutes) -> None:
        routes.put("films", Route(1), NOW, "eyas", "the first version")
        routes.put("films", Route(2), NOW + SECOND, "ada", "by hand")
        query = select(route_history.c.generation, route_history.c.actor, route_history.c.reason)
        with engine.connect() as connection:
            assert connection.execute(query).all() == [(1, "eyas", "the first version"), (2, "ada", "by hand")]
