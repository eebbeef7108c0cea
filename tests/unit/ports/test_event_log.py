"""The SQL event log keeps the ports' promises, and its questions are answered from indexes alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.store.shadow_totals import SqlShadowTotals
from shared.domain.errors import Invalid
from shared.testing.event_suite import ATTRIBUTION, LATER, T0, WINDOW, EventLogSuite, KpiSourceSuite, did, like, shown
from shared.testing.traffic_suite import EXAMPLE, ShadowTotalsSuite, TrafficSuite
from tests.support.drift_samples_suite import DriftSamplesSuite
from tests.support.query_plans import statements
from tests.support.sql_rows import damage


@pytest.fixture
def log(engine: Engine) -> SqlEventLog:
    return SqlEventLog(engine)


@pytest.fixture
def kpis(engine: Engine) -> SqlKpis:
    return SqlKpis(engine)


class TestSqlEventLog(EventLogSuite):
    def test_a_time_without_a_zone_is_refused(self, log: SqlEventLog) -> None:
        with pytest.raises(Invalid, match="zone"):
            log.impressions([shown("a", datetime(2026, 3, 1, 12))])

    def test_a_damaged_answer_earns_nothing_and_hinders_no_other(
        self, engine: Engine, log: SqlEventLog, kpis: SqlKpis, caplog: pytest.LogCaptureFixture
    ) -> None:
        log.impressions([shown("a"), shown("b")])
        damage(engine, "impressions", "items", "[1, 2", "request_id = 'a'")
        like(log, did(request_id="a"), did(request_id="b"))
        assert kpis.hit_rate("films", 1, T0, LATER, ATTRIBUTION).hits == 1
        assert "impression: unreadable items, earns no hits request=a" in caplog.text

    def test_a_name_is_never_read_as_sql(self, log: SqlEventLog, kpis: SqlKpis) -> None:
        evil = "x' OR '1'='1'; DROP TABLE impressions; --"
        log.impressions([shown(evil[:40]), shown("b", recommender=evil)])
        like(log, did(request_id=evil[:40]), did(recommender=evil))
        assert kpis.hit_rate(evil, 1, T0, LATER, ATTRIBUTION).hits == 1

    def test_a_failed_export_leaves_no_file(self, log: SqlEventLog, tmp_path: Path) -> None:
        folder = tmp_path / "export"
        (folder / "events.csv").mkdir(parents=True)
        with pytest.raises(OSError, match="events"):
            log.export("films", None, LATER, folder / "events.csv")
        assert [found.name for found in folder.iterdir()] == ["events.csv"]


class TestSqlSightings(DriftSamplesSuite):
    @pytest.fixture
    def sightings(self, engine: Engine) -> SqlDriftSamples:
        return SqlDriftSamples(engine)


class TestSqlKpis(KpiSourceSuite, TrafficSuite):
    def test_every_question_is_answered_from_an_index(self, engine: Engine, log: SqlEventLog, kpis: SqlKpis) -> None:
        def ask() -> None:
            kpis.samples("films", 1, WINDOW, ATTRIBUTION, LATER)
            kpis.traffic("films", 1, LATER)
            kpis.hit_rate("films", 1, T0, LATER, ATTRIBUTION)
            kpis.earned("films", 1, T0, LATER, ATTRIBUTION, {"purchase"})
            kpis.parts("films", 1, T0, LATER, ATTRIBUTION, {"purchase"})
            kpis.steps("films", 1, T0, LATER, WINDOW, ATTRIBUTION, {"purchase"})
            kpis.showings("films", 1, T0, LATER, 9)
            kpis.liked("films", LATER, 9)
            log.seen_items("films", [1, 2])
            log.seen_items("films", [1, 2], T0)
            log.count("films", T0, LATER, 9)

        log.impressions([shown("a")])
        sent = [(statement, values) for statement, values in statements(engine, ask) if statement.lstrip().startswith(("SELECT", "WITH"))]
        assert len(sent) == 23
        with engine.connect() as connection:
            for statement, parameters in sent:
                if engine.dialect.name == "sqlite":
                    plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                    reads = [step for step in plan if "impressions" in step or "interactions" in step]
                    assert reads, plan
                    bounded = "LIMIT" in statement  # a few rows that are looked at, whatever there is
                    assert all("SEARCH" in step and (bounded or "COVERING INDEX" in step) for step in reads), plan
                    if "bucket" in statement:
                        assert not any("TEMP B-TREE" in step for step in plan), plan
                else:  # on a table without rows PostgreSQL would read them all, if it may
                    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
                    plan = list(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
                    assert any("Index Cond: ((recommender" in step for step in plan), plan
                    assert not any("Seq Scan" in step for step in plan), plan

    def test_a_damaged_answer_is_looked_at_by_nobody(self, engine: Engine, log: SqlEventLog, kpis: SqlKpis) -> None:
        log.impressions([shown("a"), shown("b")])
        damage(engine, "impressions", "items", "[1, 2", "request_id = 'a'")
        found = kpis.traffic("films", 1, LATER)["stable"]
        assert (found.answers, found.looked, found.shown) == (2, 1, 3)


class TestSqlMirrors(ShadowTotalsSuite):
    @pytest.fixture
    def mirrors(self, engine: Engine) -> SqlShadowTotals:
        return SqlShadowTotals(engine)

    def test_a_damaged_row_counts_for_nothing_and_affects_no_other(
        self, engine: Engine, mirrors: SqlShadowTotals, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        mirrors.add("films", 1, "gate-a", EXAMPLE)
        mirrors.add("films", 1, "gate-b", EXAMPLE)
        for text in ["[1, 2", "[]", '{"a": 1}', '{"1": "x"}', "null"]:
            with subtests.test(text=text):
                caplog.clear()
                damage(engine, "shadow_totals", "candidate", text, "gateway = 'gate-b'")
                assert SqlShadowTotals(engine).total("films", 1) == EXAMPLE
                assert "gate-b" in caplog.text
