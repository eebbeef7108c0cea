"""What statements take is exported, whichever database it is; so is what it couldn't do, and nothing else."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from services.store.recommenders import SqlRecommenders
from shared.domain.errors import Unavailable
from tests.support.recommender_suite import spec
from tests.support.resource_suite import NOW


def counted(operation: str) -> float:
    return REGISTRY.get_sample_value("eyas_database_seconds_count", {"operation": operation}) or 0


def told() -> dict[str, float]:
    return {name: counted(name) for name in ("select", "insert", "update", "delete", "other")}


def faults() -> float:
    return REGISTRY.get_sample_value("eyas_database_faults_total") or 0


@pytest.mark.requirement("C-06")
def test_statements_are_counted_by_what_they_do(engine: Engine) -> None:
    before = told()
    store = SqlRecommenders(engine)
    store.put(spec("films"), NOW, "ada")
    assert counted("insert") > before["insert"]
    store.get("films")
    assert counted("select") > before["select"]
    before = told()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE recommenders SET name = name")
        connection.exec_driver_sql("  DELETE FROM recommenders")
        connection.exec_driver_sql("WITH a AS (SELECT 1) SELECT * FROM a")
    assert [counted(name) - before[name] for name in ("update", "delete", "other")] == [1, 1, 1]


def test_only_what_the_database_could_not_do_is_a_fault_of_it(engine: Engine) -> None:
    """Not what contradicts its rows: that is how a writer learns that another one was first."""
    SqlRecommenders(engine).put(spec("films"), NOW, "ada")
    before = faults()
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO recommenders SELECT * FROM recommenders")
    assert faults() == before
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
            statement = "CREATE TABLE one_more (page INTEGER)"
        else:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 1")
            statement = "SELECT pg_sleep(10)"
        with pytest.raises(Unavailable):
            connection.exec_driver_sql(statement)
        connection.rollback()
    assert faults() == before + 1
