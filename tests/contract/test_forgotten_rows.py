"""Where PostgreSQL has a forgotten user: no query finds it at once, and no byte of its tables after a full vacuum."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from shared.domain.archive import REFUSAL_LEAD
from shared.testing.event_suite import ATTRIBUTION, T0, did
from tests.servers.postgres_server import Server
from tests.support.forgotten import DIGEST, forgotten_users

pytestmark = pytest.mark.requirement("U-11")


def execute(engine: Engine, *statements: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))


def test_no_byte_of_the_tables_has_a_forgotten_user_after_a_full_vacuum(postgres: Server) -> None:
    url, ids = postgres.new_database(), [os.urandom(16).hex() for _ in range(40)]
    engine = open_engine(url)
    events = [did(user=user, id=f"{user}-{number}", user_id=id) for user, id in enumerate(ids) for number in range(20)]
    SqlEventLog(engine, DIGEST).interactions(events, [True] * len(events), ATTRIBUTION)
    for user in range(20):
        forgotten_users(engine).forget("films", user, lambda: T0)
    with engine.connect() as connection:
        names = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars().all()
        rows = str([connection.execute(text(f'SELECT * FROM "{name}"')).all() for name in names])
    assert [id in rows for id in ids] == [False] * 20 + [True] * 20
    execute(engine, "VACUUM FULL interactions", "CHECKPOINT")
    files = [path for path in (postgres.folder / "data/base").rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert [id.encode() in content for id in ids] == [False] * 20 + [True] * 20
    engine.dispose()
    postgres.drop_database(url)


def test_the_deletion_of_old_days_skips_rows_that_a_forgetting_deletes_now(postgres: Server) -> None:
    """Both lock the same rows in different orders: if both waited, PostgreSQL would abort one of them."""
    url = postgres.new_database()
    engine = open_engine(url)
    events = [did(user=user, id=str(user)) for user in range(10)]
    SqlEventLog(engine, DIGEST).interactions(events, [True] * len(events), ATTRIBUTION)
    deletion, tomorrow = SqlEventDeletion(engine), (T0 + timedelta(days=1)).date()
    deletion.refuse("films", "interactions", tomorrow, T0)
    deletion.mark_deleted("films", "interactions", tomorrow, 1, T0 + 2 * REFUSAL_LEAD)
    with engine.begin() as forgetting:
        forgetting.execute(text('DELETE FROM interactions WHERE "user" < 4'))
        assert deletion.delete("films", "interactions", tomorrow, 100) == 6
    assert deletion.delete("films", "interactions", tomorrow, 100) == 0
    engine.dispose()
    postgres.drop_database(url)
