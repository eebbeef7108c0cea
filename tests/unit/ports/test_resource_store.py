"""`SqlResources`, claims and leases keep the promises of their ports, and those that only SQL can break."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from sqlalchemy import Engine, select, update

from services.store import lease_time
from services.store.engine import open_engine
from services.store.lease_time import use_clock
from services.store.leases import SqlLeases
from services.store.resources import SqlResources
from services.store.tables import leases
from shared.contracts.records import RetrainerSpec, RolloutSpec
from shared.domain.evidence_history import MOST, LookBounds
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus
from shared.ports import Record
from tests.support.claim_suite import TERM, ClaimSuite, LeasesSuite, SetClock
from tests.support.query_plans import statements
from tests.support.resource_suite import NOW, SECOND, ResourceStoreSuite, rollout


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


class TestSqlResources(ResourceStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlResources[RolloutStatus, RolloutSpec]:
        return SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)

    def test_kinds_do_not_see_each_other(self, engine: Engine, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
        retrainers = SqlResources(engine, "retrainer", RetrainerStatus, RetrainerSpec)
        store.create(rollout("films"), "ada")
        retrainers.create(Record("films", "films", RetrainerSpec(), RetrainerStatus(fired=4), NOW, NOW), "eyas")
        assert retrainers.get("films").status.fired == 4
        assert [record.status.state for record in store.list()] == ["pending"]
        assert [row.id for row in retrainers.due(NOW, 10)] == ["films"]
        assert [entry.actor for entry in store.history("films")] == ["ada"]

    def test_a_time_without_a_zone_is_refused(self, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
        naive = datetime(2026, 3, 1, 12)
        with pytest.raises(Exception, match="without a time zone"):
            store.due(naive, 1)

    def test_another_engine_reads_what_this_one_wrote(self, database_url: str, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
        store.create(rollout(), "ada")
        other = open_engine(database_url)
        assert SqlResources(other, "rollout", RolloutStatus, RolloutSpec).get("ro-1") == rollout()
        other.dispose()

    @pytest.mark.requirement("C-01")
    def test_the_looks_of_a_rollout_come_back_as_they_were(self, store: SqlResources[RolloutStatus, RolloutSpec]) -> None:
        looks = tuple(LookBounds(NOW + n * SECOND, 0, 1, n, n + 1, "pass", 0.1 / (n + 1), -0.2, None) for n in range(MOST))
        record = store.create(rollout(), "ada")
        store.commit(record, RolloutStatus("canary", looks=looks), due_at=NOW, entry=None, finished=False, clear_request=False)
        assert store.get(record.id).status.looks == looks


class TestSqlClaims(ClaimSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlResources[RolloutStatus, RolloutSpec]:
        return SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)

    @pytest.fixture
    def leases(self, engine: Engine, clock: SetClock) -> SqlLeases:
        use_clock(engine, clock)
        return SqlLeases(engine)

    def test_claiming_what_is_settled_writes_nothing(
        self, engine: Engine, store: SqlResources[RolloutStatus, RolloutSpec], leases: SqlLeases
    ) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 5)
        for holder in "ab":
            store.claim(holder, 2)
        asked = statements(engine, lambda: [store.claim(holder, 2) for holder in "ab"])
        assert [statement for statement, _ in asked if "UPDATE" in statement] == []
        assert len(asked) == 2


class TestSqlLeases(LeasesSuite):
    @pytest.fixture
    def leases(self, engine: Engine, clock: SetClock) -> SqlLeases:
        use_clock(engine, clock)
        return SqlLeases(engine)


class Astray:
    """Stands for the class `datetime` in a process whose clock is wrong."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self._ahead


@pytest.mark.parametrize("ahead", [timedelta(days=100), timedelta(days=-100)])
def test_a_holder_whose_clock_is_wrong_locks_nobody_out_after_its_death(
    engine: Engine, database_url: str, database: str, ahead: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL the database's clock says when its term is over, on SQLite a lease that is too long counts for nothing."""
    other = open_engine(database_url)
    astray, right = SqlLeases(other), SqlLeases(engine)
    with monkeypatch.context() as patched:
        patched.setattr(lease_time, "datetime", Astray(ahead))
        assert astray.hold("x", "astray", TERM)
    other.dispose()
    if database == "postgresql":
        assert not right.hold("x", "right", TERM), "by the database's clock its term isn't over"
        assert right.live("x") == ["x"]
        with engine.begin() as connection:
            until = connection.execute(select(leases.c.until)).scalar_one()
            assert timedelta(0) < until - datetime.now(UTC) <= TERM
            connection.execute(update(leases).values(until=until - TERM))  # as if the term had passed
    assert right.live("x") == []
    assert right.hold("x", "right", TERM)
    assert right.live("x") == ["x"]


def test_of_two_holders_with_different_clocks_one_holds(engine: Engine, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    """Each takes its turn with a clock of its own. On PostgreSQL the first one keeps the lease."""
    holders: list[str] = []
    for _ in range(4):
        for holder, ahead in (("a", timedelta(days=100)), ("b", timedelta(0)), ("c", timedelta(days=-100))):
            with monkeypatch.context() as patched:
                patched.setattr(lease_time, "datetime", Astray(ahead))
                SqlLeases(engine).hold("x", holder, TERM)
            with engine.connect() as connection:
                holders += connection.execute(select(leases.c.holder)).scalars().all()
    assert len(holders) == 12
    assert database == "sqlite" or set(holders) == {"a"}


@pytest.mark.parametrize("kind", [RunStatus, RolloutStatus, RetrainerStatus])
def test_a_status_of_older_code_reads_with_todays_defaults(engine: Engine, kind: type[RunStatus]) -> None:
    store = SqlResources(engine, "old", kind, RetrainerSpec)
    store.create(Record("x", "films", RetrainerSpec(), kind(), NOW, NOW), "ada")
    with engine.begin() as connection:
        connection.exec_driver_sql('UPDATE resources SET status = \'{"state": "watching"}\'')
    assert store.get("x").status == kind("watching")
