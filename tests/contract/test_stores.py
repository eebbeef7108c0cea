"""The SQL stores keep the ports' promises, and those that only SQL can break."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import Engine, event, insert, select

from services.store.audit import SqlAudit
from services.store.engine import open_engine
from services.store.outputs import SqlStageOutputs
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.tables import recommender_history, recommenders, route_history
from services.store.tokens import SqlTokens
from shared.domain.errors import Conflict, Damaged
from shared.domain.retrainer import RetrainerStatus
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import RunStatus
from shared.ports import Record
from shared.testing.access_suite import AuditLogSuite, FakeAudit, FakeTokens, TokenStoreSuite
from shared.testing.store_suite import (
    NOW,
    SECOND,
    RecommenderStoreSuite,
    RegistrySuite,
    ResourceStoreSuite,
    RouteStoreSuite,
    StageOutputsSuite,
    rollout,
    spec,
    version,
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


class TestSqlStageOutputs(StageOutputsSuite):
    @pytest.fixture
    def outputs(self, engine: Engine) -> SqlStageOutputs:
        return SqlStageOutputs(engine)


class TestSqlResources(ResourceStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlResources[RolloutStatus]:
        return SqlResources(engine, "rollout", RolloutStatus)

    def test_kinds_do_not_see_each_other(self, engine: Engine, store: SqlResources[RolloutStatus]) -> None:
        retrainers = SqlResources(engine, "retrainer", RetrainerStatus)
        store.create(rollout("films"), "ada")
        retrainers.create(Record("films", "films", {}, RetrainerStatus(fired=4), NOW, NOW), "eyas")
        assert retrainers.get("films").status.fired == 4
        assert [record.status.state for record in store.list()] == ["pending"]
        assert [record.status.state for record in retrainers.due(NOW, 10)] == ["watching"]
        assert [entry.actor for entry in store.history("films")] == ["ada"]

    def test_a_time_without_a_zone_is_refused(self, store: SqlResources[RolloutStatus]) -> None:
        naive = datetime(2026, 3, 1, 12)
        with pytest.raises(Exception, match="without a zone"):
            store.due(naive, 1)

    def test_another_process_reads_what_this_one_wrote(self, database_url: str, store: SqlResources[RolloutStatus]) -> None:
        store.create(rollout(), "ada")
        other = open_engine(database_url)
        assert SqlResources(other, "rollout", RolloutStatus).get("ro-1") == rollout()
        other.dispose()


class TestSqlRecommenders(RecommenderStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine)

    @pytest.mark.requirement("C-01")
    def test_every_spec_is_kept_with_who_wrote_it(self, engine: Engine, store: SqlRecommenders) -> None:
        for epochs, actor in ((5, "ada"), (6, "bob"), (6, "eve")):
            store.put(spec(epochs=epochs), NOW, actor)
        query = select(recommender_history.c.generation, recommender_history.c.actor)
        with engine.connect() as connection:
            assert connection.execute(query).all() == [(1, "ada"), (2, "bob")]

    @pytest.mark.requirement("C-01")
    def test_a_stored_spec_that_cannot_be_read_is_left_out_until_it_is_applied_again(
        self, engine: Engine, store: SqlRecommenders, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = store.put(spec(), NOW, "ada")
        broken = spec().document() | {"name": "broken", "gates": "none"}
        with engine.begin() as connection:
            row = {"name": "broken", "generation": 3, "spec": broken, "created_at": NOW, "updated_at": NOW}
            connection.execute(insert(recommenders).values(row))
        assert store.list() == [good]
        assert store.list() == [good]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "recommender 'broken' is left out until its spec is applied again" in caplog.text
        mended = spec().model_copy(update={"name": "broken"})
        assert store.put(mended, NOW, "ada").generation == 4
        assert [found.name for found in store.list()] == ["broken", good.name]
        assert store.get("broken").spec == mended


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
    @pytest.mark.parametrize(
        "damage",
        ["files = replace(files, 'abab', 'abac')", "files = replace(files, 'model.onnx', 'other.onnx')", "files = '[]'", "digest = 'x'"],
        ids=["another content", "another name", "no files at all", "another digest"],
    )
    def test_a_row_that_was_tampered_with_is_refused_and_hides_no_other(
        self, engine: Engine, registry: SqlRegistry, damage: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for run in ("run-1", "run-2"):
            registry.register(version(run))
        with engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE versions SET {damage} WHERE number = 1")
        for read in (lambda: registry.get("films", 1), lambda: registry.of_run("run-1")):
            with pytest.raises(Damaged, match="version 1 of 'films' is damaged"):
                read()
        for _ in range(2):
            assert [one.number for one in registry.list("films")] == [2]
        assert [record.levelname for record in caplog.records] == ["ERROR"]

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


class TestSqlTokens(TokenStoreSuite):
    @pytest.fixture
    def tokens(self, engine: Engine) -> SqlTokens:
        return SqlTokens(engine)


class TestSqlAudit(AuditLogSuite):
    @pytest.fixture
    def audit(self, engine: Engine) -> SqlAudit:
        return SqlAudit(engine)


class TestFakeAudit(AuditLogSuite):
    @pytest.fixture
    def audit(self) -> FakeAudit:
        return FakeAudit()


class TestFakeTokens(TokenStoreSuite):
    @pytest.fixture
    def tokens(self) -> FakeTokens:
        return FakeTokens()


@pytest.mark.parametrize("kind", [RunStatus, RolloutStatus, RetrainerStatus])
def test_a_status_of_older_code_reads_with_todays_defaults(engine: Engine, kind: type[RunStatus]) -> None:
    store = SqlResources(engine, "old", kind)
    store.create(Record("x", "films", {}, kind(), NOW, NOW), "ada")
    with engine.begin() as connection:
        connection.exec_driver_sql('UPDATE resources SET status = \'{"state": "watching"}\'')
    assert store.get("x").status == kind("watching")
