"""The SQL stores keep the ports' promises, and those that only SQL can break."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, select, update
from sqlalchemy import text as sql

from services.store.answers import SqlAnswers
from services.store.audit import SqlAudit
from services.store.engine import open_engine
from services.store.leases import SqlLeases
from services.store.outputs import SqlStageOutputs
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.tables import history, recommender_history, recommenders, resources, route_history
from services.store.tokens import SqlTokens
from shared.domain.access import Role, Token
from shared.domain.errors import Conflict, Damaged, Unreadable
from shared.domain.looks import MOST, Looked
from shared.domain.machine import Request
from shared.domain.reuse import StageOutput
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus
from shared.ports import Record
from shared.testing.access_suite import AnswersSuite, AuditLogSuite, FakeAnswers, FakeAudit, FakeTokens, TokenStoreSuite
from shared.testing.claim_suite import ClaimSuite, LeasesSuite
from shared.testing.recommender_suite import DeletionSuite, RecommenderStoreSuite, spec
from shared.testing.registry_suite import RegistrySuite, StageOutputsSuite, version
from shared.testing.resource_suite import NOW, SECOND, ResourceStoreSuite, rollout
from shared.testing.route_suite import RouteStoreSuite


def many(engine: Engine, count: int) -> None:
    """Rows of ten recommenders: most have ended, one in a hundred is at work."""
    status = {"state": "promoted"}
    rows = [
        {
            "kind": "rollout",
            "id": f"ro-{n}",
            "recommender": f"films-{n % 10}",
            "spec": {"version": n},
            "status": status,
            "state": "promoted" if n % 100 else "canary",
            "revision": 1,
            "finished": bool(n % 100),
            "created_at": NOW - n * SECOND,
            "due_at": NOW,
        }
        for n in range(count)
    ]
    with engine.begin() as connection:
        connection.execute(insert(resources), rows)
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("ANALYZE resources")


def statements(engine: Engine, act: Callable[[], object]) -> list[tuple[str, Any]]:
    asked: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "BEGIN" not in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    act()
    event.remove(engine, "before_cursor_execute", note)
    return asked


def plans(engine: Engine, act: Callable[[], object]) -> list[str]:
    """How the database answers what `act` asks."""
    found: list[str] = []
    for statement, parameters in statements(engine, act):
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                found += [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            else:
                found += connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}", parameters).scalars()
    return found


def assert_flat(engine: Engine, plan: list[str], narrowed: bool) -> None:
    """Nothing reads, and nothing sorts, more rows than a few: the work doesn't grow with the table."""
    said = "\n".join(plan)
    if engine.dialect.name == "sqlite":
        read = [step for step in plan if "resources" in step]
        assert read, said
        assert all("SEARCH" in step and "INDEX" in step for step in read), said
        assert not narrowed or "(kind=?)" not in said, said
    else:
        assert "Seq Scan" not in said, said
        assert all(int(rows) <= 1000 for rows in re.findall(r"rows=(\d+)", said)), said
        assert all(int(rows) <= 1000 for rows in re.findall(r"Removed by Filter: (\d+)", said)), said


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
        assert [row.id for row in retrainers.due(NOW, 10)] == ["films"]
        assert [entry.actor for entry in store.history("films")] == ["ada"]

    @pytest.mark.requirement("C-01")
    def test_runs_that_gave_up_are_found_among_many_that_failed(self, engine: Engine) -> None:
        runs = SqlResources(engine, "run", RunStatus)
        fixed = {"kind": "run", "recommender": "films", "spec": {}, "status": {"state": "failed"}, "state": "failed"}
        rows = [
            {**fixed, "id": f"r{n}", "revision": 1, "finished": True, "created_at": NOW - n * SECOND, "due_at": NOW} for n in range(5000)
        ]
        with engine.begin() as connection:
            connection.execute(insert(resources), rows)
        record = runs.create(Record("gave-up", "films", {}, RunStatus("etl"), NOW - 4000 * SECOND, NOW), "ada")
        ended = RunStatus("failed", dead_letter=True)
        runs.commit(record, ended, due_at=NOW, entry=None, finished=True, clear_request=False)
        if engine.dialect.name == "postgresql":
            with engine.begin() as connection:
                connection.exec_driver_sql("ANALYZE resources")
        for narrowed in ({}, {"states": {"failed"}}, {"recommender": "films"}, {"among": {"films", "books"}}):
            assert [one.id for one in runs.list(dead_letter=True, limit=26, **narrowed)] == ["gave-up"]  # type: ignore[arg-type]
            assert_flat(engine, plans(engine, lambda narrowed=narrowed: runs.list(dead_letter=True, limit=26, **narrowed)), False)
        assert "gave-up" not in [one.id for one in runs.list(dead_letter=False, limit=5001)]

    def test_a_time_without_a_zone_is_refused(self, store: SqlResources[RolloutStatus]) -> None:
        naive = datetime(2026, 3, 1, 12)
        with pytest.raises(Exception, match="without a zone"):
            store.due(naive, 1)

    def test_another_process_reads_what_this_one_wrote(self, database_url: str, store: SqlResources[RolloutStatus]) -> None:
        store.create(rollout(), "ada")
        other = open_engine(database_url)
        assert SqlResources(other, "rollout", RolloutStatus).get("ro-1") == rollout()
        other.dispose()

    @pytest.mark.requirement("C-01")
    def test_the_looks_of_a_rollout_come_back_as_they_were(self, store: SqlResources[RolloutStatus]) -> None:
        looks = tuple(Looked(NOW + n * SECOND, 0, 1, n, n + 1, "pass", 0.1 / (n + 1), -0.2, None) for n in range(MOST))
        record = store.create(rollout(), "ada")
        store.commit(record, RolloutStatus("canary", looks=looks), due_at=NOW, entry=None, finished=False, clear_request=False)
        assert store.get(record.id).status.looks == looks

    def test_a_row_that_cannot_be_read_hides_no_other(
        self, engine: Engine, store: SqlResources[RolloutStatus], caplog: pytest.LogCaptureFixture
    ) -> None:
        for id in ("ro-1", "ro-2"):
            store.create(rollout(id), "ada")
        with engine.begin() as connection:
            connection.execute(update(resources).where(resources.c.id == "ro-1").values(status={"state": "pending", "step": "many"}))
        for _ in range(2):
            assert [record.id for record in store.list()] == ["ro-2"]
        assert caplog.text.count("rollout 'ro-1' (pending) is stored in a form that this version of the platform can't read") == 1
        assert [row.id for row in store.due(NOW, 10)] == ["ro-1", "ro-2"]
        with pytest.raises(Unreadable, match="ro-1"):
            store.get("ro-1")
        assert store.list(before="ro-1") == []

    def test_a_page_of_a_long_history_reads_no_more_than_itself(self, engine: Engine, store: SqlResources[RolloutStatus]) -> None:
        store.create(rollout(), "ada")
        entry = {"kind": "rollout", "id": "ro-1", "at": NOW, "source": "", "target": "", "reason": "", "actor": ""}
        with engine.begin() as connection:
            connection.execute(insert(history), [entry] * 5_000)
        middle = store.history("ro-1", 2_500)[-1].seq
        for page in (lambda: store.history("ro-1", 5, middle), lambda: store.latest("ro-1", 5, middle)):
            asked = statements(engine, page)
            assert len(asked) == 1
            assert "LIMIT" in asked[0][0]
            plan = " ".join(plans(engine, page))
            assert "history_of" in plan or "history_pkey" in plan
            assert "B-TREE" not in plan and "Sort" not in plan
            assert len(page()) == 5

    def test_lists_are_read_from_an_index_however_many_rows_there_are(self, engine: Engine, store: SqlResources[RolloutStatus]) -> None:
        many(engine, 20_000)
        lists: list[dict[str, Any]] = [
            {},
            {"active": True},
            {"active": False},
            {"states": ["promoted"]},
            {"states": ["paused", "canary", "unknown"]},
            {"before": "ro-100"},
            {"states": ["aborted", "promoted"], "before": "ro-100"},
        ]
        for recommender in (None, "films-3"):
            for asked in lists:
                plan = plans(engine, lambda asked=asked, recommender=recommender: store.list(recommender, limit=5, **asked))  # type: ignore[misc]
                assert_flat(engine, plan, narrowed=bool(recommender or asked))
        assert_flat(engine, plans(engine, lambda: store.oldest_active("films-3")), narrowed=True)
        assert_flat(engine, plans(engine, lambda: store.due(NOW, 5)), narrowed=True)


CUT = ["", "{", '{"a": ', "nothing", "[" * 5000]
"""Texts that are no JSON."""


def damage(engine: Engine, table: str, column: str, text: str, where: str) -> None:
    with engine.begin() as connection:
        set_text = sql(f"UPDATE {table} SET {column} = :text WHERE {where}")
        assert connection.execute(set_text, {"text": text}).rowcount == 1


@pytest.mark.requirement("C-01")
class TestDamagedTexts:
    @pytest.mark.parametrize("text", [*CUT, "[]", "7"], ids=lambda text: text[:9])
    @pytest.mark.parametrize("column", ["spec", "status", "intent", "asked"])
    def test_a_row_stops_nothing_but_itself(self, engine: Engine, column: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
        store = SqlResources(engine, "rollout", RolloutStatus)
        for id in ("ro-1", "ro-2"):
            store.create(rollout(id), "ada")
        damage(engine, "resources", column, text, "id = 'ro-1'")
        for _ in range(2):
            assert [one.id for one in store.list()] == [one.id for one in store.list("films", states=["pending"])] == ["ro-2"]
        assert caplog.text.count("left out of a list: rollout 'ro-1' (pending) is stored in a form") == 1
        assert [one.id for one in store.due(NOW, 10)] == ["ro-1", "ro-2"]
        assert {one.id for one in store.queued()} == {"ro-1", "ro-2"}
        for act in (lambda: store.get("ro-1"), lambda: store.ask("ro-1", Request("pause", "ada"), NOW)):
            with pytest.raises(Unreadable, match="ro-1"):
                act()
        assert store.ask("ro-2", Request("pause", "ada"), NOW).asked is not None

    @pytest.mark.parametrize("text", CUT, ids=lambda text: text[:9])
    def test_a_recommender_is_left_out_until_it_is_applied_again(self, engine: Engine, text: str, caplog: pytest.LogCaptureFixture) -> None:
        store = SqlRecommenders(engine)
        for name in ("films", "books"):
            store.put(spec(name), NOW, "ada")
        damage(engine, "recommenders", "spec", text, "name = 'films'")
        for _ in range(2):
            assert [one.name for one in store.list()] == ["books"]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        with pytest.raises(Unreadable, match="films"):
            store.get("films")
        assert store.put(spec(), NOW, "ada").generation == 2
        assert [one.name for one in store.list()] == ["books", "films"]

    @pytest.mark.parametrize("text", CUT, ids=lambda text: text[:9])
    @pytest.mark.parametrize("column", ["files", "metrics", "lineage"])
    def test_a_version_is_damaged_like_one_that_was_tampered_with(self, engine: Engine, column: str, text: str) -> None:
        registry = SqlRegistry(engine)
        for run in ("run-1", "run-2"):
            registry.register(version(run))
        damage(engine, "versions", column, text, "number = 1")
        assert [one.number for one in registry.list("films")] == [2]
        with pytest.raises(Damaged, match=f"version 1 of 'films' is damaged: its row can't be read .{column}"):
            registry.get("films", 1)
        with pytest.raises(Damaged):
            registry.everything()

    @pytest.mark.parametrize("text", [*CUT, "{}", '"films"'], ids=lambda text: text[:9])
    def test_a_token_opens_nothing_and_never_everything(self, engine: Engine, text: str, caplog: pytest.LogCaptureFixture) -> None:
        tokens = SqlTokens(engine)
        for id in ("t1", "t2"):
            tokens.add(Token(id, f"name {id}", "", Role.ADMIN, frozenset({"films"}), NOW, "ada"))
        damage(engine, "tokens", "recommenders", text, "id = 't1'")
        for _ in range(2):
            assert [one.id for one in tokens.list()] == ["t2"]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        with pytest.raises(Unreadable, match="opens nothing"):
            tokens.get("t1")

    @pytest.mark.parametrize("text", [*CUT, "[]"], ids=lambda text: text[:9])
    def test_a_stage_is_run_and_a_gateway_serves_nothing_as_far_as_anybody_knows(self, engine: Engine, text: str) -> None:
        outputs, routes = SqlStageOutputs(engine), SqlRoutes(engine)
        outputs.put(StageOutput("films", "etl", "d1", {}, "r1-etl-1", NOW))
        damage(engine, "stage_outputs", "parts", text, "digest = 'd1'")
        assert (outputs.find("films", "etl", "d1"), outputs.newest("films", "etl")) == (None, None)
        for gateway in ("a", "b"):
            routes.report(gateway, {"films": 3}, NOW)
        damage(engine, "gateways", "served", text, "gateway = 'a'")
        assert routes.reports("films", NOW) == {"a": 0, "b": 3}


class TestSqlClaims(ClaimSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlResources[RolloutStatus]:
        return SqlResources(engine, "rollout", RolloutStatus)

    @pytest.fixture
    def leases(self, engine: Engine) -> SqlLeases:
        return SqlLeases(engine)

    def test_claiming_what_is_settled_writes_nothing(self, engine: Engine, store: SqlResources[RolloutStatus], leases: SqlLeases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 5)
        for holder in "ab":
            store.claim(holder, NOW, 2)
        asked = statements(engine, lambda: [store.claim(holder, NOW, 2) for holder in "ab"])
        assert [statement for statement, _ in asked if "UPDATE" in statement] == []
        assert len(asked) == 2


class TestSqlLeases(LeasesSuite):
    @pytest.fixture
    def leases(self, engine: Engine) -> SqlLeases:
        return SqlLeases(engine)


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


class TestSqlDeletion(DeletionSuite):
    @pytest.fixture
    def recommenders(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine)

    @pytest.fixture
    def rollouts(self, engine: Engine) -> SqlResources[RolloutStatus]:
        return SqlResources(engine, "rollout", RolloutStatus)

    @pytest.fixture
    def routes(self, engine: Engine) -> SqlRoutes:
        return SqlRoutes(engine)

    @pytest.mark.requirement("C-01")
    def test_a_deletion_is_one_transaction(self, engine: Engine, recommenders: SqlRecommenders, routes: SqlRoutes) -> None:
        """Whatever it dies at, all of it is undone, and the next call does it."""
        made = recommenders.put(spec(), NOW, "ada")
        route = routes.put("films", Route(1), NOW, "ada", "")
        left = 0

        def die(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            nonlocal left
            if statement.startswith(("UPDATE", "DELETE")):
                left -= 1
                if left < 0:
                    raise RuntimeError("killed")

        event.listen(engine, "before_cursor_execute", die)
        writes = 6
        for at in range(writes):
            left = at
            with pytest.raises(RuntimeError, match="killed"):
                recommenders.delete("films", NOW)
            assert (recommenders.get("films"), routes.get("films"), routes.history("films")[0].until) == (made, route, None)
        left = writes
        recommenders.delete("films", NOW)
        event.remove(engine, "before_cursor_execute", die)
        assert routes.closed() == {"films": NOW}


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


class TestSqlAnswers(AnswersSuite):
    @pytest.fixture
    def answers(self, engine: Engine) -> SqlAnswers:
        return SqlAnswers(engine)


class TestFakeAnswers(AnswersSuite):
    @pytest.fixture
    def answers(self) -> FakeAnswers:
        return FakeAnswers()
