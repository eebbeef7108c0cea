"""Old days of events leave SQL, a few rows at a time, found by an index; older code can't start once days are refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, select

from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.sql import SqlEventLog
from services.eventlog.tables import impressions, instant, interactions
from services.store.migrate import readable_by, renew_readable_by
from shared.contracts.archive import TABLES, EventTable
from shared.domain.archive import DAY
from shared.ports import DeletionMarks
from shared.testing.event_suite import ATTRIBUTION, T0, did, shown
from tests.support.query_plans import statements

TODAY = T0.date()


@pytest.fixture
def deletion(engine: Engine) -> SqlEventDeletion:
    return SqlEventDeletion(engine, partial(renew_readable_by, engine))


def fill(engine: Engine, *ages: int, version: int = 1, recommender: str = "films") -> None:
    """Writes an impression and an interaction for each age in days."""
    log = SqlEventLog(engine)
    for age in ages:
        at = T0 - age * DAY
        log.impressions([shown(f"{recommender}-{version}-{age}", at, version=version, recommender=recommender)])
        log.interactions([did(10, at, recommender=recommender)], [True], ATTRIBUTION)


def days(engine: Engine, table: EventTable, recommender: str = "films") -> list[int]:
    """Returns the ages of the stored events."""
    columns = (impressions if table == "impressions" else interactions).c
    with engine.connect() as connection:
        instants = connection.execute(select(columns.at).where(columns.recommender == recommender)).scalars()
        return sorted((instant(T0) - at) // instant(datetime(1970, 1, 2, tzinfo=T0.tzinfo)) for at in instants)


@pytest.mark.requirement("U-11")
@pytest.mark.parametrize("table", TABLES)
def test_marks_are_per_recommender_and_table(deletion: SqlEventDeletion, table: EventTable) -> None:
    other: EventTable = "impressions" if table == "interactions" else "interactions"
    assert deletion.marks("films", table) == DeletionMarks()
    deletion.refuse("films", table, TODAY, T0)
    assert deletion.marks("films", table) == DeletionMarks(TODAY, T0, None)
    deletion.refuse("films", table, TODAY + DAY, T0 + DAY)
    deletion.mark_deleted("films", table, TODAY, 3, T0 + 2 * DAY)
    assert deletion.marks("films", table) == DeletionMarks(TODAY + DAY, T0 + DAY, TODAY, 3)
    assert deletion.marks("films", other) == deletion.marks("books", table) == DeletionMarks()


@pytest.mark.requirement("U-11")
def test_marks_of_deleted_days_follow_a_refusal_of_a_day_ago_and_never_move_back(deletion: SqlEventDeletion) -> None:
    """A control plane that stalled may write what another one has overtaken."""
    deletion.mark_deleted("films", "interactions", TODAY, 1, T0)
    assert deletion.marks("films", "interactions") == DeletionMarks(), "nothing is refused"
    deletion.refuse("films", "interactions", TODAY, T0)
    deletion.mark_deleted("films", "interactions", TODAY, 1, T0 + DAY - timedelta(seconds=1))
    deletion.mark_deleted("films", "interactions", TODAY + DAY, 1, T0 + DAY)
    assert deletion.marks("films", "interactions") == DeletionMarks(TODAY, T0, None), "too early, and a day that is not refused"
    deletion.mark_deleted("films", "interactions", TODAY, 2, T0 + DAY)
    deletion.mark_deleted("films", "interactions", TODAY - DAY, 1, T0 + DAY)
    deletion.refuse("films", "interactions", TODAY - DAY, T0 + DAY)
    assert deletion.marks("films", "interactions") == DeletionMarks(TODAY, T0, TODAY, 2)


@pytest.mark.requirement("U-11")
@pytest.mark.parametrize("table", TABLES)
def test_only_rows_of_deleted_days_go_and_at_most_the_limit_at_once(engine: Engine, deletion: SqlEventDeletion, table: EventTable) -> None:
    fill(engine, 1, 3, 5, 7)
    fill(engine, 2, 4, 6, version=2)
    fill(engine, 8, recommender="books")
    SqlEventLog(engine).interactions([did(10, datetime(1969, 5, 1, tzinfo=T0.tzinfo))], [True], ATTRIBUTION)
    SqlEventLog(engine).impressions([shown("ancient", datetime(1969, 5, 1, tzinfo=T0.tzinfo))])
    ancient = max(days(engine, table))
    assert deletion.oldest("films", table) == TODAY - 7 * DAY and deletion.oldest("music", table) is None
    assert deletion.delete("films", table, TODAY, 10) == 0, "nothing is marked"
    deletion.refuse("films", table, TODAY - 3 * DAY, T0)
    assert deletion.delete("films", table, TODAY, 10) == 0, "refused days are not deleted yet"
    deletion.mark_deleted("films", table, TODAY - 3 * DAY, 1, T0 + DAY)
    assert deletion.delete("films", table, TODAY - 7 * DAY, 10) == 0, "none is older"
    counts = []
    while rows := deletion.delete("films", table, TODAY, 2):
        counts.append(rows)
    assert sum(counts) == 4 and max(counts) <= 2
    assert days(engine, table) == [1, 2, 3, ancient] and days(engine, table, "books") == [8]
    assert deletion.oldest("films", table) == TODAY - 3 * DAY
    other: EventTable = "impressions" if table == "interactions" else "interactions"
    assert days(engine, other)[:7] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.requirement("U-11")
def test_older_code_cannot_start_once_days_are_refused(engine: Engine, deletion: SqlEventDeletion) -> None:
    def oldest() -> str | None:
        with engine.connect() as connection:
            return readable_by(connection)

    deletion.refuse("films", "interactions", date(1970, 1, 1), T0)
    assert oldest() == "text_ids", "old events are only noticed"
    deletion.refuse("films", "interactions", date(2020, 1, 1), T0)
    assert oldest() == "event_deletions"


@pytest.mark.parametrize("table", TABLES)
def test_an_index_finds_the_rows_of_a_step(engine: Engine, deletion: SqlEventDeletion, table: EventTable) -> None:
    fill(engine, *range(1, 10))
    deletion.refuse("films", table, TODAY, T0)
    deletion.mark_deleted("films", table, TODAY, 1, T0 + DAY)
    sent = statements(engine, lambda: deletion.oldest("films", table))
    sent += statements(engine, lambda: deletion.delete("films", table, TODAY, 3))
    selects = [(statement, values) for statement, values in sent if statement.startswith("SELECT") and table in statement.split("FROM")[1]]
    assert len(selects) >= 2
    with engine.connect() as connection:
        for statement, values in selects:
            if engine.dialect.name == "sqlite":
                (step,) = (row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values))
                assert "SEARCH" in step and "USING COVERING INDEX" in step, step
            else:  # on a small table PostgreSQL would read it as a whole, if it may
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
                connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
                plan = str(connection.exec_driver_sql(f"EXPLAIN {statement}", values).all())
                assert "Index Cond" in plan and "Filter" not in plan and "Sort" not in plan, plan


def test_events_of_a_refused_day_are_left_out(engine: Engine, deletion: SqlEventDeletion) -> None:
    for table in TABLES:
        deletion.refuse("films", table, TODAY, T0)
    log = SqlEventLog(engine)
    late, in_time = T0 - timedelta(hours=12, microseconds=1), T0 - timedelta(hours=12)
    result = log.interactions([did(1, late, id="a"), did(2, in_time, id="b"), did(2, in_time, id="b")], [True] * 3, ATTRIBUTION)
    assert (result.new, result.duplicates, result.too_old) == (1, 1, 1)
    log.impressions([shown("late", late), shown("in time", in_time), shown("of books", late, recommender="books")])
    assert [len(days(engine, table)) for table in TABLES] == [1, 1]
    assert len(days(engine, "impressions", "books")) == 1
