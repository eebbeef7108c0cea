"""`SqlRegistry` and `SqlStageOutputs` keep the promises of their ports; a version never changes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event

from services.store.registry import SqlRegistry
from services.store.routes import SqlRoutes
from services.store.stage_outputs import SqlStageOutputs
from shared.domain.route import Route
from tests.support.registry_suite import RegistrySuite, StageOutputsSuite, version
from tests.support.resource_suite import NOW


class TestSqlStageOutputs(StageOutputsSuite):
    @pytest.fixture
    def outputs(self, engine: Engine) -> SqlStageOutputs:
        return SqlStageOutputs(engine)


class TestSqlRegistry(RegistrySuite):
    @pytest.fixture
    def registry(self, engine: Engine) -> SqlRegistry:
        return SqlRegistry(engine)

    def test_what_a_reader_holds_is_no_hindrance_to_writers(self, engine: Engine, registry: SqlRegistry) -> None:
        with engine.execution_options(read_only=True).connect() as reader:
            reader.exec_driver_sql("SELECT count(*) FROM versions").one()
            assert registry.register(version()).number == 1
            assert reader.exec_driver_sql("SELECT count(*) FROM versions").scalar() == 0

    @pytest.mark.requirement("G-11")
    def test_nothing_that_a_registry_or_a_route_does_changes_a_version(self, engine: Engine, registry: SqlRegistry) -> None:
        statements: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda c, cursor, statement, *_: statements.append(" ".join(statement.split())))
        made = registry.register(version())
        registry.register(replace(version(), metrics={}))
        registry.tag("films", 1, "champion", NOW, "ada")
        registry.untag("films", 1, "champion")
        routes = SqlRoutes(engine)
        routes.put("films", Route(1), NOW, "ada", "")
        routes.put("films", Route(2), NOW, "ada", "")
        assert registry.collect("films", 1, NOW)
        assert registry.get("films", 1) == made
        changing = [one for one in statements if re.match(r"(UPDATE|DELETE FROM|REPLACE INTO|INSERT OR \w+ INTO) versions\b", one)]
        assert changing == []
        assert len([one for one in statements if one.startswith("INSERT INTO versions ")]) == 1
