"""Forgotten users in SQL: what is deleted, remembered and refused."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from services.eventlog import forgetting
from services.eventlog.sql import SqlEventLog
from services.eventlog.tables import impressions, instant, interactions, metadata
from services.store.engine import open_engine, sqlite_url
from shared.domain.forgetting import ForgottenUser
from shared.testing.event_suite import ATTRIBUTION, did, shown
from shared.testing.event_suite import T0 as NOW
from tests.support.forgotten import DIGEST, forgotten_users

pytestmark = pytest.mark.requirement("U-11")
SECOND = timedelta(seconds=1)


class Case:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.log, self.users = SqlEventLog(engine, DIGEST), forgotten_users(engine)

    def take(self, *events: tuple[int, datetime]) -> int:
        """Writes an answer and a positive for each user and time; returns the new positives."""
        self.log.impressions([shown(f"{user}-{instant(at)}", user=user, at=at) for user, at in events])
        made = [did(user=user, at=at, id=f"{user}-{instant(at)}") for user, at in events]
        return self.log.interactions(made, [True] * len(made), ATTRIBUTION).new

    def rows(self, user: int) -> tuple[int, int]:
        with self.engine.connect() as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table).where(table.c.user == user)).scalar_one()
                for table in (interactions, impressions)
            ]
        return counts[0], counts[1]

    def forget(self, user: int, at: datetime = NOW) -> tuple[datetime, int, int]:
        rows = self.users.forget("films", user, lambda: at)
        return rows.at, rows.interactions, rows.impressions


@pytest.fixture
def case(engine: Engine) -> Case:
    return Case(engine)


def test_all_rows_of_one_user_are_deleted_in_small_steps(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "AT_ONCE", 3)
    case.take(*((user, NOW - number * SECOND) for user in (1, 2) for number in range(1, 8)))
    assert case.forget(1) == (NOW, 7, 7)
    assert (case.rows(1), case.rows(2)) == ((0, 0), (7, 7))
    assert case.users.all("films") == [ForgottenUser(DIGEST.of(1), NOW)]
    assert case.users.keys("films") == {2}
    assert (case.users.newest("films"), case.users.newest("films", NOW - SECOND), case.users.newest("books")) == (NOW, None, None)
    assert case.users.recommenders() == ["films"]


def test_late_events_are_refused_and_later_ones_are_those_of_a_new_user(case: Case) -> None:
    case.forget(1)
    assert case.take((1, NOW), (1, NOW - SECOND), (2, NOW - SECOND), (1, NOW + SECOND)) == 2
    assert (case.rows(1), case.rows(2)) == ((1, 1), (1, 1))
    assert case.forget(1, NOW + 2 * SECOND) == (NOW + 2 * SECOND, 1, 1)
    assert case.take((1, NOW + 2 * SECOND)) == 0


def test_events_from_a_clock_that_is_ahead_are_forgotten_too(case: Case) -> None:
    case.take((1, NOW + 60 * SECOND))
    assert case.forget(1) == (NOW + 60 * SECOND, 1, 1)
    assert case.take((1, NOW + 30 * SECOND), (1, NOW + 61 * SECOND)) == 1


def test_another_recommender_keeps_the_same_user(case: Case) -> None:
    case.take((1, NOW))
    case.users.forget("books", 1, lambda: NOW)
    assert case.rows(1) == (1, 1)
    assert case.take((1, NOW - SECOND)) == 1


def test_users_stay_pending_until_the_archive_lacks_them(case: Case) -> None:
    case.forget(1)
    case.forget(2)
    assert case.users.pending() == ["films"]
    times = {user.digest: user.at for user in case.users.all("films")}
    case.forget(2, NOW + SECOND)  # meanwhile
    case.users.mark_archived("films", times)
    assert [user.digest for user in case.users.all("films") if not user.archived] == [DIGEST.of(2)]
    case.users.mark_archived("films", {DIGEST.of(2): NOW + SECOND})
    assert case.users.pending() == []


def test_a_user_who_is_forgotten_again_does_not_move_the_first_time(case: Case) -> None:
    case.forget(1)
    case.forget(1, NOW + 5 * SECOND)
    assert [case.users.newest("films", NOW + seconds * SECOND) for seconds in (-1, 0, 4, 5)] == [None, NOW, NOW, NOW + 5 * SECOND]


def test_the_newer_time_of_another_ledger_counts(case: Case) -> None:
    case.forget(1)
    case.users.mark_archived("films", {DIGEST.of(1): NOW})

    def replay(*users: ForgottenUser) -> Sequence[ForgottenUser]:
        case.users.replay("films", users)
        return case.users.all("films")

    assert replay(ForgottenUser(DIGEST.of(1), NOW)) == [ForgottenUser(DIGEST.of(1), NOW, archived=True)]
    assert replay(ForgottenUser(DIGEST.of(1), NOW + SECOND, archived=True)) == [ForgottenUser(DIGEST.of(1), NOW + SECOND)]
    assert case.take((1, NOW + SECOND)) == 0


def test_older_code_is_refused_when_a_user_is_forgotten(engine: Engine) -> None:
    refused: list[int] = []
    users = forgetting.SqlForgottenUsers(engine, DIGEST, lambda: refused.append(1))
    users.forget("films", 1, lambda: NOW)
    assert refused == [1]


def test_no_byte_of_a_text_id_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    metadata.create_all(engine)
    case, ids = Case(engine), ["".join(random.choices(string.ascii_letters, k=32)) for _ in range(300)]
    for _ in range(10):
        made = [did(user=user, id=f"{user} {random.random()}", user_id=id) for user, id in enumerate(ids)]
        case.log.interactions(made, [True] * len(made), ATTRIBUTION)
    for user in range(0, 300, 2):
        case.forget(user)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert [user for user, id in enumerate(ids) if id.encode() in content] == list(range(1, 300, 2))
    engine.dispose()


def test_a_reader_of_old_pages_only_delays_that_they_go(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    metadata.create_all(engine)
    case, id = Case(engine), "".join(random.choices(string.ascii_letters, k=32))
    case.log.interactions([did(user=1, user_id=id)], [True], ATTRIBUTION)
    with engine.execution_options(read_only=True).connect() as reader:
        reader.execute(select(func.count()).select_from(interactions)).scalar_one()
        case.forget(1)
        assert id.encode() in b"".join(path.read_bytes() for path in tmp_path.iterdir()), "the reader sees the time before"
    case.users.pending()
    assert id.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    engine.dispose()
